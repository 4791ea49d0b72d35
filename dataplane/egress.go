package dataplane

import (
	"bytes"
	"time"

	"sluice/offload"
	"sluice/vnet"
)

const (
	// fullWait is the one wait per batch for a port without room: long enough for a receiver's
	// softirq, too short to disturb other ports.
	fullWait = 200 * time.Microsecond
	// latchAfter is how many well-formed frames of one GSO type in a row a port's kernel must
	// refuse before the port no longer gets the type. Linux 6.6.44 refuses only some of them, and
	// only those are cut.
	latchAfter = 3
)

// egress is one worker's side of a port: its transmit half, and the frames that wait to be written.
// view is nil if there is no port.
type egress struct {
	view     *view
	queue    Queue // that tx is of; nil where the port has none
	tx       Transmitter
	counters *txCounters
	tally    txTally
	batch    *vnet.Batch
	bytes    int  // in batch
	touched  bool // by the worker's current batch
	waited   bool // the worker's current batch has used its wait
	full     bool // the last write found no room
	lossy    bool // congestion dropped a piece of the super-packet that is cut after a refusal
	strikes  [numGSOKinds]uint8
	struck   bool // some strikes may not be 0
}

// adopt makes e the worker's side of v.
func (e *egress) adopt(v *view, slot int) {
	if e.view == nil || e.view.port != v.port {
		*e = egress{
			counters: v.port.txCounters(slot),
			batch:    vnet.NewBatch(batchFrames, batchScratch, batchPieces),
		}
	}
	was := e.view
	e.view = v
	switch {
	case len(v.queues) == 0:
		e.queue, e.tx = nil, nil
	case was == nil || len(was.queues) == 0 || was.queues[0] != v.queues[0]:
		e.queue = v.queues[slot%len(v.queues)]
		e.tx = e.queue.Transmitter()
		e.full, e.struck = false, false
		e.strikes = [numGSOKinds]uint8{}
	}
}

// room writes and empties e's batch if one more new frame might not fit, and returns the batch.
func (w *worker) room(e *egress, f *vnet.Frame) *vnet.Batch {
	if !e.batch.Room(vnet.MaxHeaders+vnet.JumboHBHLen, len(f.Body)+1) {
		w.flush(e)
	}
	return e.batch
}

// remade counts a frame that was completed or reformed into e's batch, or the drop if it was not.
func (w *worker) remade(e *egress, s *subject, d vnet.Drop) bool {
	if d != vnet.Keep {
		w.reject(e, s.frame, d)
		return false
	}
	e.bytes += s.len
	return true
}

// reject drops a frame that was offered to e. If the frame itself is wrong, its ingress counts the
// drop, as if it had never been offered.
func (w *worker) reject(e *egress, f *vnet.Frame, d vnet.Drop) {
	if d.Ingress() {
		e.tally.offered--
		w.tally.drop(f, d)
		return
	}
	e.tally.drops[d]++
}

// cut cuts a frame into e's batch, and writes the batch each time it is full.
func (w *worker) cut(e *egress, s *subject, d decision) {
	lim := &e.view.limits
	var fault vnet.Drop
	if d.outcome == resegment {
		fault = w.seg.Resegment(s.frame, &s.packet, d.max, lim.GSOMaxSegs, lim.IPv6Form)
	} else {
		fault = w.seg.Segment(s.frame, &s.packet)
	}
	if fault != vnet.Keep {
		w.reject(e, s.frame, fault)
		return
	}
	pieces := 0
	for more := true; more; {
		before := len(e.batch.Frames)
		more = w.seg.Fill(e.batch)
		pieces += len(e.batch.Frames) - before
		if more {
			w.flush(e)
		}
	}
	e.bytes += s.len
	e.countCut(d.outcome, pieces)
}

func (e *egress) countCut(o outcome, pieces int) {
	if o == resegment {
		e.tally.resegmented++
		e.tally.chunks += uint64(pieces)
	} else {
		e.tally.segmented++
		e.tally.segments += uint64(pieces)
	}
}

// flush writes e's batch and empties it.
func (w *worker) flush(e *egress) {
	w.write(e, e.batch.Frames, 0)
	e.batch.Reset()
	e.bytes = 0
}

// write writes frames to e. Each of them leaves, is cut smaller and leaves, or is counted as a
// drop. depth counts how often they were cut after a refusal.
func (w *worker) write(e *egress, frames []vnet.Frame, depth int) {
	for len(frames) > 0 {
		switch {
		case e.tx == nil:
			e.dropAll(frames, vnet.DropPortDown)
			return
		case depth > 0 && e.lossy:
			// Pieces of one super-packet: after one was lost the next will be too.
			e.dropAll(frames, vnet.DropFull)
			return
		}
		sent, r, err := e.tx.WriteBatch(frames)
		e.sent(frames[:sent])
		frames = frames[sent:]
		if len(frames) == 0 {
			return
		}
		switch r {
		case vnet.Full:
			if !e.full && !e.waited {
				e.waited = true
				e.tx.WaitRoom(fullWait)
				continue
			}
			e.full = true
			e.dropAll(frames, vnet.DropFull)
			return
		case vnet.Congested:
			// There is nothing to wait for: the descriptor has room, and does not know the queue
			// behind it. The rest of the flow is not tried, but another flow may be in another
			// class, which has room.
			e.lossy = true
			n := 1
			for n < len(frames) && sameFlow(&frames[0], &frames[n]) {
				n++
			}
			e.dropAll(frames[:n], vnet.DropFull)
			frames = frames[n:]
			continue
		case vnet.Down, vnet.Gone:
			e.view.port.lose(e.queue, r == vnet.Gone, err)
			e.dropAll(frames, vnet.DropPortDown)
			return
		}
		if depth == 0 {
			e.lossy = false
		}
		w.refused(e, &frames[0], r, err, depth)
		frames = frames[1:]
	}
}

// span is where a field lies in a header.
type span struct{ from, to int }

// The fields that distinguish flows, in an IP header without options and after it: version and
// traffic class, flow label, protocol, addresses, ports (RFC 791, 3.1; RFC 8200, 3).
var (
	ipv4Flow = [...]span{{0, 2}, {9, 10}, {12, vnet.IPv4Len + 4}}
	ipv6Flow = [...]span{{0, 4}, {6, 7}, {8, vnet.IPv6Len + 4}}
)

// sameFlow reports whether f and g certainly belong to one flow.
func sameFlow(f, g *vnet.Frame) bool {
	var l2 vnet.L2
	if f.Check(&l2) != vnet.Keep {
		return false
	}
	var fields []span
	switch l2.EtherType {
	case vnet.EtherTypeIPv4:
		fields = ipv4Flow[:]
	case vnet.EtherTypeIPv6:
		fields = ipv6Flow[:]
	default:
		return false
	}
	n := l2.Len + fields[len(fields)-1].to
	if len(f.Head) < n || len(g.Head) < n || !bytes.Equal(f.Head[:l2.Len], g.Head[:l2.Len]) {
		return false
	}
	a, b := f.Head[l2.Len:], g.Head[l2.Len:]
	for _, s := range fields {
		if !bytes.Equal(a[s.from:s.to], b[s.from:s.to]) {
			return false
		}
	}
	return true
}

// sent counts frames that were written.
func (e *egress) sent(frames []vnet.Frame) {
	if len(frames) == 0 {
		return
	}
	e.full = false
	e.tally.frames += uint64(len(frames))
	for i := range frames {
		n := frames[i].Len()
		e.tally.bytes += uint64(n)
		e.tally.maxFrame = max(e.tally.maxFrame, n)
		if e.struck && frames[i].Hdr.GSO != vnet.GSONone {
			e.strikes[kindOf(frames[i].Hdr.GSO)] = 0
		}
	}
}

func (e *egress) dropAll(frames []vnet.Frame, d vnet.Drop) {
	e.tally.drops[d] += uint64(len(frames))
}

// rescue is the scratch to cut a refused frame while other batches are in use.
type rescue struct {
	seg   offload.Segmenter
	batch *vnet.Batch
}

// rescueAt is the rescue for one depth. A depth's first use allocates.
func (w *worker) rescueAt(depth int) *rescue {
	for len(w.rescues) <= depth {
		w.rescues = append(w.rescues, &rescue{batch: vnet.NewBatch(batchFrames, batchScratch, batchPieces)})
	}
	w.rescues[depth].batch.Reset()
	return w.rescues[depth]
}

// refused handles one frame that the kernel did not take: it is cut smaller, or made plainer, and
// written again, or it is dropped. The recursion through write ends, since a frame above 64 KiB
// gets shorter each time and a segment is not cut.
func (w *worker) refused(e *egress, f *vnet.Frame, r vnet.Refusal, err error, depth int) {
	n := f.Len()
	gso := f.Hdr.GSO != vnet.GSONone
	var l2 vnet.L2
	var p vnet.Packet
	if gso && r != vnet.Failed {
		fault := f.Check(&l2)
		if fault == vnet.Keep {
			fault = vnet.Parse(f, &l2, &p)
		}
		if fault != vnet.Keep {
			w.reject(e, f, fault)
			return
		}
	}
	const whole = vnet.LegacyGSOMaxSize
	switch {
	case r == vnet.Failed:
		e.view.port.fail(e.queue, err)
		e.tally.drops[vnet.DropIOError]++
	case r == vnet.NoMemory && gso && n > whole:
		// Halves pass if there is memory in larger pieces. If they do not, or if a queueing
		// discipline has no room, 64 KiB show which it is.
		e.tally.retried++
		shorter := p.Payload + (n-p.Payload+1)/2 + int(f.Hdr.GSOSize)
		if depth > 0 {
			shorter = whole - 1
		}
		w.recut(e, f, &p, min(shorter, n-1), depth)
	case r == vnet.NoMemory:
		e.tally.drops[vnet.DropNoMemory]++
	case r == vnet.TooBig && gso && n > whole:
		learnt := max(n/2, whole-1)
		e.view.port.learnMaxWrite(e.queue, learnt)
		w.recut(e, f, &p, learnt, depth)
	case r == vnet.TooBig && gso:
		e.tally.drops[vnet.DropTooBig]++
	case r == vnet.TooBig:
		e.tally.drops[vnet.DropOverMTU]++
	case gso:
		if usual(f, &p) {
			w.strike(e, f.Hdr.GSO)
		}
		w.recut(e, f, &p, 0, depth)
	case f.Hdr.Flags&vnet.NeedsCsum != 0:
		w.recomplete(e, f, depth)
	default:
		e.tally.drops[vnet.DropRefused]++
	}
}

// usual reports whether f is a super-packet of the kind that every kernel makes and takes.
// virtio_net_hdr_to_skb also refuses some well-formed ones: more UDP segments than
// UDP_MAX_SEGMENTS, which was 64 until August 2024, and TCP without NeedsCsum with an in-band tag.
// Their sender must not cost others the GSO type.
func usual(f *vnet.Frame, p *vnet.Packet) bool {
	const maxUDPSegments = 64
	payload, size := f.Len()-p.Payload, int(f.Hdr.GSOSize)
	return f.Hdr.Flags&vnet.NeedsCsum != 0 && payload > size &&
		(p.Proto != vnet.ProtoUDP || payload <= maxUDPSegments*size)
}

// recut cuts a refused super-packet into chunks of at most max bytes, or into segments if a chunk
// has no room for two, and writes them.
func (w *worker) recut(e *egress, f *vnet.Frame, p *vnet.Packet, max, depth int) {
	rescue := w.rescueAt(depth)
	o := resegment
	var fault vnet.Drop
	if max < p.Payload+2*int(f.Hdr.GSOSize) {
		o = segment
		fault = rescue.seg.Segment(f, p)
	} else {
		fault = rescue.seg.Resegment(f, p, max, e.view.limits.GSOMaxSegs, e.view.limits.IPv6Form)
	}
	if fault != vnet.Keep {
		w.reject(e, f, fault)
		return
	}
	pieces := 0
	for more := true; more; {
		rescue.batch.Reset()
		more = rescue.seg.Fill(rescue.batch)
		pieces += len(rescue.batch.Frames)
		w.write(e, rescue.batch.Frames, depth+1)
	}
	e.countCut(o, pieces)
}

// recomplete writes a refused frame again with its checksum completed.
func (w *worker) recomplete(e *egress, f *vnet.Frame, depth int) {
	rescue := w.rescueAt(depth)
	var l2 vnet.L2
	fault := f.Check(&l2)
	if fault == vnet.Keep {
		fault = offload.Complete(rescue.batch, f, &l2)
	}
	if fault != vnet.Keep {
		w.reject(e, f, fault)
		return
	}
	e.tally.csumCompleted++
	w.write(e, rescue.batch.Frames, depth+1)
}

// strike counts a refusal of GSO type g, and latches the port off it after latchAfter refusals in a
// row.
func (w *worker) strike(e *egress, g vnet.GSO) {
	k := kindOf(g)
	e.strikes[k]++
	e.struck = true
	if e.strikes[k] == latchAfter {
		e.strikes[k] = 0
		e.view.port.latchOff(e.queue, g)
	}
}
