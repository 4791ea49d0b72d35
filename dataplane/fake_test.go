package dataplane

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/dataplane/summary"
	"sluice/vnet"
)

// fakeQueue is a port's device in memory. What the test injects is what the switch
// reads, a batch at a time; what the switch writes is kept, unless the script
// refuses it.
type fakeQueue struct {
	t    testing.TB
	in   chan injected
	wake chan struct{}

	closed atomic.Bool // nobody may use the queue from now on
	sink   atomic.Bool // what is accepted is not kept

	mu     sync.Mutex
	script func(*vnet.Frame) vnet.Refusal // guarded by mu; nil accepts everything
	out    []vnet.Frame                   // guarded by mu; what was accepted, in copies
	writes int                            // guarded by mu; calls of WriteBatch
	waits  []time.Duration                // guarded by mu; calls of WaitRoom

	pending injected // of the batch being forwarded; used by the reading worker alone
}

// injected is one answer of ReadBatch. done is closed when the switch asks for the
// next one.
type injected struct {
	frames    []vnet.Frame
	discarded [vnet.NumDrops]int
	err       error
	done      chan struct{}
}

var errFake = errors.New("no such errno")

func newFakeQueue(t testing.TB) *fakeQueue {
	return &fakeQueue{t: t, in: make(chan injected), wake: make(chan struct{}, 1)}
}

func (q *fakeQueue) use(what string) {
	if q.closed.Load() {
		q.t.Errorf("%s of a queue after Detach has returned", what)
	}
}

func (q *fakeQueue) ReadBatch(b *vnet.Batch, wait time.Duration) error {
	q.use("ReadBatch")
	b.Reset()
	q.finish()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case q.pending = <-q.in:
	case <-q.wake:
		return nil
	case <-timer.C:
		return nil
	}
	for i := range q.pending.frames {
		*b.Next() = q.pending.frames[i]
	}
	b.Discarded = q.pending.discarded
	err := q.pending.err
	if err != nil && !errors.Is(err, vnet.ErrDown) {
		q.finish() // there is no next call
	}
	return err
}

// finish tells the test that its batch was forwarded.
func (q *fakeQueue) finish() {
	if q.pending.done != nil {
		close(q.pending.done)
	}
	q.pending = injected{}
}

func (q *fakeQueue) Wake() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *fakeQueue) Transmitter() Transmitter {
	q.use("Transmitter")
	return fakeTransmitter{q}
}

// fakeTransmitter is a worker's transmit half of q.
type fakeTransmitter struct{ q *fakeQueue }

func (x fakeTransmitter) WriteBatch(frames []vnet.Frame) (int, vnet.Refusal, error) {
	q := x.q
	q.use("WriteBatch")
	q.mu.Lock()
	defer q.mu.Unlock()
	q.writes++
	for i := range frames {
		if q.script != nil {
			if r := q.script(&frames[i]); r != vnet.Accepted {
				return i, r, errFake
			}
		}
		if !q.sink.Load() {
			q.out = append(q.out, frames[i].Clone())
		}
	}
	return len(frames), vnet.Accepted, nil
}

func (x fakeTransmitter) WaitRoom(d time.Duration) {
	x.q.use("WaitRoom")
	x.q.mu.Lock()
	defer x.q.mu.Unlock()
	x.q.waits = append(x.q.waits, d)
}

// refuse sets the script.
func (q *fakeQueue) refuse(script func(*vnet.Frame) vnet.Refusal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.script = script
}

// always is the script that answers r to everything.
func always(r vnet.Refusal) func(*vnet.Frame) vnet.Refusal {
	return func(*vnet.Frame) vnet.Refusal { return r }
}

// above is the script that answers r to frames longer than n.
func above(n int, r vnet.Refusal) func(*vnet.Frame) vnet.Refusal {
	return func(f *vnet.Frame) vnet.Refusal {
		if f.Len() > n {
			return r
		}
		return vnet.Accepted
	}
}

// super is the script that answers r to super-packets.
func super(r vnet.Refusal) func(*vnet.Frame) vnet.Refusal {
	return func(f *vnet.Frame) vnet.Refusal {
		if f.Hdr.GSO != vnet.GSONone {
			return r
		}
		return vnet.Accepted
	}
}

// taken returns what was written so far and forgets it.
func (q *fakeQueue) taken() []vnet.Frame {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := q.out
	q.out = nil
	return out
}

// waited returns the waits for room so far and forgets them.
func (q *fakeQueue) waited() []time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	waits := q.waits
	q.waits = nil
	return waits
}

// deadline bounds what a test waits for: no test fails for a slow machine.
const deadline = time.Minute

// post gives the switch one batch to read, and returns when it was forwarded.
func (q *fakeQueue) post(batch injected) {
	q.t.Helper()
	batch.done = make(chan struct{})
	timeout := time.After(deadline)
	select {
	case q.in <- batch:
	case <-timeout:
		q.t.Fatal("nobody reads the queue")
	}
	select {
	case <-batch.done:
	case <-timeout:
		q.t.Fatal("the batch is not forwarded")
	}
}

// inject is post of frames alone, as many batches as it takes.
func (q *fakeQueue) inject(frames ...vnet.Frame) {
	q.t.Helper()
	for len(frames) > 0 {
		n := min(len(frames), batchFrames)
		q.post(injected{frames: frames[:n]})
		frames = frames[n:]
	}
}

// lab is a switch with fake ports, torn down and checked at the test's end.
type lab struct {
	*Switch
	t     testing.TB
	ports []*Port // all that there ever were
}

func newLab(t testing.TB) *lab {
	l := &lab{Switch: New(Options{}), t: t}
	t.Cleanup(func() {
		l.Close()
		l.conserved()
	})
	return l
}

// port adds a port that is attached and up.
func (l *lab) port(name string, limits vnet.Limits) (*Port, *fakeQueue) {
	l.t.Helper()
	return l.portConfig(PortConfig{Name: name}, limits)
}

func (l *lab) portConfig(c PortConfig, limits vnet.Limits) (*Port, *fakeQueue) {
	l.t.Helper()
	p, err := l.AddPort(c)
	if err != nil {
		l.t.Fatal(err)
	}
	l.ports = append(l.ports, p)
	return p, l.attach(p, limits)
}

func (l *lab) attach(p *Port, limits vnet.Limits) *fakeQueue {
	l.t.Helper()
	q := newFakeQueue(l.t)
	if err := p.Attach([]Queue{q}, limits, true); err != nil {
		l.t.Fatal(err)
	}
	return q
}

// detach detaches p, after which nobody may use its queue q.
func (l *lab) detach(p *Port, q *fakeQueue) {
	p.Detach()
	q.closed.Store(true)
}

// conserved checks both conservation laws over all ports that there ever were. No
// batch may be in flight.
func (l *lab) conserved() {
	l.t.Helper()
	var s summary.Summary
	for _, p := range l.ports {
		s.Ports = append(s.Ports, summaryOf(p.Name(), p.Stats()))
	}
	if err := s.Conserved(); err != nil {
		l.t.Error(err)
	}
}

func summaryOf(name string, s Stats) summary.Port {
	return summary.Port{
		Name: name,
		RX: summary.RX{Frames: s.RxFrames, Bytes: s.RxBytes, Copies: s.RxCopies,
			MaxFrame: s.RxMaxFrame},
		TX: summary.TX{Offered: s.TxOffered, Frames: s.TxFrames, Bytes: s.TxBytes,
			MaxFrame: s.TxMaxFrame, Resegmented: s.Resegmented, Chunks: s.Chunks,
			Segmented: s.Segmented, Segments: s.Segments, Retried: s.Retried,
			CsumCompleted: s.CsumCompleted},
		Drops: summary.Drops{Ingress: byName(s.IngressDrops), Egress: byName(s.EgressDrops)},
	}
}

func byName(drops [vnet.NumDrops]uint64) map[string]uint64 {
	m := map[string]uint64{}
	for d, n := range drops {
		if n != 0 {
			m[vnet.Drop(d).String()] = n
		}
	}
	return m
}

// wantDrops fails t unless got holds exactly the given drops, as reason, count,
// reason, count...
func wantDrops(t *testing.T, side string, got [vnet.NumDrops]uint64, want ...any) {
	t.Helper()
	var w [vnet.NumDrops]uint64
	for i := 0; i < len(want); i += 2 {
		w[want[i].(vnet.Drop)] = uint64(want[i+1].(int))
	}
	if got != w {
		t.Errorf("%s drops %v, want %v", side, byName(got), byName(w))
	}
}

func wantIngress(t *testing.T, p *Port, want ...any) {
	t.Helper()
	wantDrops(t, p.Name()+" ingress", p.Stats().IngressDrops, want...)
}

func wantEgress(t *testing.T, p *Port, want ...any) {
	t.Helper()
	wantDrops(t, p.Name()+" egress", p.Stats().EgressDrops, want...)
}

// event returns what the switch has to tell, or fails t.
func (l *lab) event() Event {
	l.t.Helper()
	select {
	case e := <-l.Events():
		return e
	default:
		l.t.Fatal("the switch has nothing to tell")
		return Event{}
	}
}

func (l *lab) noEvent() {
	l.t.Helper()
	select {
	case e := <-l.Events():
		l.t.Errorf("the switch tells %+v", e)
	default:
	}
}
