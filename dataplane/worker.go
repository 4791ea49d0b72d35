package dataplane

import (
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"sluice/offload"
	"sluice/vnet"
)

const (
	// batchFrames bounds a receive batch and the batch of an egress: what one
	// sendmmsg moves.
	batchFrames = 64
	// batchBytes is how much an egress's batch holds before it is written: about
	// one greatest frame, so that the first is on its way while the next is read.
	batchBytes = 512 << 10
	// batchScratch holds the made headers of an egress's batch: batchFrames of
	// what TCP over IPv6 with two tags, options and a jumbo header takes, and one
	// of vnet.MaxHeaders.
	batchScratch = batchFrames*160 + vnet.MaxHeaders
	// batchPieces bounds the payload pieces of an egress's batch.
	batchPieces = 4 * batchFrames
	// parkTime is how long a worker without traffic sleeps at a time. Wake ends it.
	parkTime = time.Minute
)

// worker owns one receive queue, and a transmit half of every port.
type worker struct {
	sw   *Switch
	in   *Port
	q    Queue
	slot int

	stopping atomic.Bool
	done     chan struct{}
	// turns is even while the worker is parked in ReadBatch and odd while it works
	// on a batch.
	turns atomic.Uint64

	snap     *snapshot // that egresses were made for
	egresses []egress  // by PortID
	touched  []PortID  // egresses that this batch wrote to
	rx       *vnet.Batch
	tally    rxTally
	counters *rxCounters
	now      Tick
	watching bool // loops.watching and loops.settling, in the current batch
	settling bool
	from     *view // of in, in the current batch
	subject  subject
	seg      offload.Segmenter
	rescues  []*rescue // by depth; see refused
	src, dst last      // of the last frames
	retags   retags
}

func newWorker(s *Switch, in *Port, q Queue, c *rxCounters, slot int) *worker {
	return &worker{
		sw: s, in: in, q: q, slot: slot, counters: c,
		done: make(chan struct{}),
		rx:   vnet.NewBatch(batchFrames, 0, 0),
	}
}

// run moves batches until it is told to stop or the queue is of no use any more.
func (w *worker) run() {
	// A worker's system calls are long: its thread is kept warm, and ends with it,
	// so that what OnWorker did to it does not outlive it.
	runtime.LockOSThread()
	defer close(w.done)
	if f := w.sw.options.OnWorker; f != nil {
		f(w.slot)
	}
	for !w.stopping.Load() {
		err := w.q.ReadBatch(w.rx, parkTime)
		w.batch()
		if err != nil {
			down := errors.Is(err, vnet.ErrDown)
			w.in.lose(w.q, !down, err)
			if !down {
				return
			}
		}
	}
}

// stop ends the worker and waits until it has ended.
func (w *worker) stop() {
	w.stopping.Store(true)
	w.q.Wake()
	<-w.done
}

// quiesce returns when the worker has passed a batch boundary or is parked. What
// was taken out of the snapshot before is then unknown to it.
func (w *worker) quiesce() {
	const poll = 50 * time.Microsecond
	for was := w.turns.Load(); was%2 == 1 && w.turns.Load() == was; {
		time.Sleep(poll)
	}
}

// batch forwards what was read, and publishes the counters.
func (w *worker) batch() {
	w.turns.Add(1)
	if s := w.sw.snap.Load(); s != w.snap {
		w.adopt(s)
	}
	w.now = Tick(w.sw.tick.Load())
	w.watching, w.settling = w.sw.fdb.loops.watching(w.now), w.sw.fdb.loops.settling(w.now)
	w.from = w.egresses[w.in.id].view
	for i := range w.rx.Frames {
		w.forward(&w.rx.Frames[i])
	}
	for d, n := range w.rx.Discarded {
		w.tally.frames += uint64(n)
		w.tally.drops[d] += uint64(n)
	}
	for _, id := range w.touched {
		e := &w.egresses[id]
		w.flush(e)
		e.counters.publish(&e.tally)
		e.touched, e.waited = false, false
	}
	w.touched = w.touched[:0]
	w.retags.reset()
	w.counters.publish(&w.tally)
	w.turns.Add(1)
}

// adopt makes the worker's egresses those of a new snapshot. Transmit halves are
// kept where the port's queues are the same.
func (w *worker) adopt(s *snapshot) {
	for len(w.egresses) < len(s.views) {
		w.egresses = append(w.egresses, egress{})
	}
	for i := range w.egresses {
		e := &w.egresses[i]
		if i >= len(s.views) || s.views[i] == nil {
			*e = egress{}
			continue
		}
		e.adopt(s.views[i], w.slot)
	}
	if cap(w.touched) < len(w.egresses) {
		w.touched = make([]PortID, 0, len(w.egresses))
	}
	w.snap = s
}

// forward does everything with one frame but the writing.
func (w *worker) forward(f *vnet.Frame) {
	s := &w.subject
	s.frame, s.len, s.parsed = f, f.Len(), false
	w.tally.frames++
	w.tally.bytes += uint64(s.len)
	w.tally.maxFrame = max(w.tally.maxFrame, s.len)
	in := w.from
	d := f.Check(&s.l2)
	switch {
	case d != vnet.Keep:
	case s.l2.Src.Group() || s.l2.Src == 0:
		d = vnet.DropBadSource
	case s.l2.Dst.Reserved() && (!in.forwardReserved || s.l2.Dst == vnet.PauseMAC):
		d = vnet.DropReservedMulticast
	case !in.vlan.all || s.len < vnet.EthLen+vnet.VLANLen:
		d = s.admit(in.vlan)
	default:
		s.vid = s.l2.VID()
	}
	if d == vnet.Keep && w.watching && w.returned(s) { // its source is not behind this port
		d = vnet.DropLoop
	}
	if d != vnet.Keep {
		w.tally.drop(f, d)
		return
	}
	if in.up && !(w.settling && s.l2.Dst.Group()) {
		if l := w.sw.fdb.Learn(fdbKey(s.vid, s.l2.Src), w.in.id, w.now, &w.src); l.news != 0 {
			w.tellLearnt(s, l)
		}
	}
	if !s.l2.Dst.Group() {
		if id, ok := w.sw.fdb.Lookup(fdbKey(s.vid, s.l2.Dst), w.now, &w.dst); ok {
			w.unicast(s, in, id)
			return
		}
	}
	w.flood(s, in)
}

// returned reports whether s would be flooded, and is there for a loop.
func (w *worker) returned(s *subject) bool {
	if !s.l2.Dst.Group() {
		if _, known := w.sw.fdb.Lookup(fdbKey(s.vid, s.l2.Dst), w.now, &w.dst); known {
			return false
		}
	}
	return w.sw.fdb.loops.returned(s.frame, w.in.id, w.now)
}

// tellLearnt tells what the learning of s's source brought up.
func (w *worker) tellLearnt(s *subject, l learnt) {
	e := Event{Port: w.in, Queue: w.q, MAC: s.l2.Src, VID: s.vid}
	if l.news&(newsMoved|newsFlaps) != 0 &&
		int(l.from) < len(w.egresses) && w.egresses[l.from].view != nil { // else it has just been removed
		e.Other = w.egresses[l.from].view.port
		if l.news&newsMoved != 0 {
			e.Kind = EventMoved
			w.sw.tell(e)
		}
		if l.news&newsFlaps != 0 {
			e.Kind = EventFlaps
			w.sw.tell(e)
		}
		e.Other = nil
	}
	if l.news&newsFull != 0 {
		e.Kind, e.Size = EventFDBFull, l.limit
		w.sw.tell(e)
	}
	if l.news&newsLimit != 0 {
		e.Kind, e.Size = EventMACLimit, l.limit
		w.sw.tell(e)
	}
}

func (w *worker) unicast(s *subject, in *view, id PortID) {
	switch {
	case id == w.in.id:
		w.tally.drops[vnet.DropSamePort]++
	case int(id) >= len(w.egresses) || w.egresses[id].view == nil:
		w.flood(s, in) // the port has just been removed
	default:
		e := &w.egresses[id]
		if d := reach(in, e.view, s.vid); d != vnet.Keep {
			w.tally.drops[d]++
			return
		}
		w.retags.begin()
		w.offer(e, s)
	}
}

// reach says why no frame of the VLAN goes from in to out, or Keep.
func reach(in, out *view, vid uint16) vnet.Drop {
	switch {
	case in.isolated && out.isolated:
		return vnet.DropIsolated
	case !out.vlan.carry(vid):
		return vnet.DropVLAN
	}
	return vnet.Keep
}

// flood offers the frame to every other port that is up and within reach.
func (w *worker) flood(s *subject, in *view) {
	if in.stormLimit > 0 && !w.in.storm.take(in.stormLimit, w.now) {
		w.tally.drops[vnet.DropStorm]++
		return
	}
	w.retags.begin()
	copies := 0
	none := vnet.DropNoEgress
	for i := range w.egresses {
		e := &w.egresses[i]
		if e.view == nil || !e.view.up || PortID(i) == w.in.id {
			continue
		}
		if d := reach(in, e.view, s.vid); d != vnet.Keep {
			if d == vnet.DropIsolated {
				none = d
			}
			continue
		}
		w.offer(e, s)
		copies++
	}
	if copies == 0 {
		w.tally.drops[none]++
		return
	}
	w.tally.copies += uint64(copies - 1)
}

// touch notes that this batch writes to e.
func (w *worker) touch(e *egress) {
	if !e.touched {
		e.touched = true
		w.touched = append(w.touched, e.view.port.id)
	}
}

// offer decides what becomes of the frame at e and does it.
func (w *worker) offer(e *egress, s *subject) {
	if s.vid != 0 || s.l2.Tags > 0 {
		if edit := s.edit(e.view.vlan); edit.Op != vnet.TagKeep {
			var fault vnet.Drop
			if s, fault = w.retag(s, edit); fault != vnet.Keep {
				w.tally.drops[fault]++
				return
			}
		}
	}
	d := decide(s, &e.view.limits, e.view.oversize)
	if d.outcome == drop && d.drop.Ingress() {
		w.tally.drop(s.frame, d.drop)
		return
	}
	w.touch(e)
	e.tally.offered++
	if !e.view.up && d.outcome != drop {
		d = dropped(vnet.DropPortDown)
	}
	switch d.outcome {
	case drop:
		e.tally.drops[d.drop]++
	case pass:
		if !e.batch.Room(0, 0) {
			w.flush(e)
		}
		*e.batch.Next() = *s.frame
		e.bytes += s.len
	case complete:
		if w.remade(e, s, offload.Complete(w.room(e, s.frame), s.frame, &s.l2)) {
			e.tally.csumCompleted++
		}
	case reform:
		w.remade(e, s, offload.Reform(w.room(e, s.frame), s.frame, &s.packet, e.view.limits.IPv6Form))
	case resegment, segment:
		w.cut(e, s, d)
	}
	if e.bytes >= batchBytes {
		w.flush(e)
	}
}

// retags are the frames of a worker's batch whose tags were edited: one for each frame
// and edit, however many egresses it goes to. They are made before they are cut, so that
// an edit costs the same whatever is cut from it, and live until they are written.
type retags struct {
	batch *vnet.Batch             // nil until the first edit
	made  [vnet.NumTagOps]bool    // of the current frame
	as    [vnet.NumTagOps]subject // by operation: a frame has one TCI at the most
}

// begin forgets what was made of another frame.
func (r *retags) begin() { r.made = [vnet.NumTagOps]bool{} }

// reset forgets every frame.
func (r *retags) reset() {
	if r.batch != nil {
		r.batch.Reset()
	}
}

// retag is s with its tag edited, or why it cannot be.
func (w *worker) retag(s *subject, edit vnet.TagEdit) (*subject, vnet.Drop) {
	r := &w.retags
	o := &r.as[edit.Op]
	if r.made[edit.Op] {
		return o, vnet.Keep
	}
	if r.batch == nil {
		r.batch = vnet.NewBatch(batchFrames, batchScratch, batchPieces)
	}
	if !r.batch.Room(vnet.MaxHeaders+vnet.VLANLen, len(s.frame.Body)+1) {
		for _, id := range w.touched { // they may wait for what is in it
			w.flush(&w.egresses[id])
		}
		r.reset()
		r.begin()
	}
	if fault := vnet.Retag(r.batch, s.frame, &s.l2, edit, &o.l2); fault != vnet.Keep {
		return nil, fault
	}
	o.frame = &r.batch.Frames[len(r.batch.Frames)-1]
	o.len, o.parsed = o.frame.Len(), false
	r.made[edit.Op] = true
	return o, vnet.Keep
}

// storm counts the frames that a port has flooded in the current Tick: a token bucket
// that holds what one second gives, and is filled once a second.
type storm struct{ state atomic.Uint64 } // Tick<<32 | frames

// take reports whether one more frame may be flooded, of limit a second.
func (t *storm) take(limit uint32, now Tick) bool {
	for {
		was := t.state.Load()
		next := uint64(now)<<32 | 1
		if Tick(was>>32) >= now { // perhaps a later one, of another worker's batch
			if uint32(was) >= limit {
				return false
			}
			next = was + 1
		}
		if t.state.CompareAndSwap(was, next) {
			return true
		}
	}
}
