package dataplane

import (
	"fmt"
	"testing"
	"time"

	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// idleQueue is a device that nothing comes from and that takes everything.
type idleQueue struct{ wake chan struct{} }

func (q idleQueue) ReadBatch(b *vnet.Batch, _ time.Duration) error {
	b.Reset()
	<-q.wake
	return nil
}

func (q idleQueue) Wake() { q.wake <- struct{}{} }

func (q idleQueue) Transmitter() Transmitter { return idleTransmitter{} }

type idleTransmitter struct{}

func (idleTransmitter) WriteBatch(frames []vnet.Frame) (int, vnet.Refusal, error) {
	return len(frames), vnet.Accepted, nil
}

func (idleTransmitter) WaitRoom(time.Duration) {}

// bench is a switch of idle ports, and a worker of the first that the test steps
// itself.
type bench struct {
	sw     *Switch
	worker *worker
	frames []vnet.Frame
}

// newBench makes a bench that forwards frames from a port to those of the step.
func newBench(t testing.TB, frames []vnet.Frame, limits ...vnet.Limits) *bench {
	return hotStep{frames: frames, limits: limits}.bench(t)
}

func (c hotStep) bench(t testing.TB) *bench {
	sw := New(Options{})
	t.Cleanup(sw.Close)
	var in *Port
	for i, lim := range append([]vnet.Limits{bigLimits()}, c.limits...) {
		vlan := c.out
		if i == 0 {
			vlan = c.in
		}
		p, err := sw.AddPort(PortConfig{Name: fmt.Sprint(i), VLAN: vlan})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Attach([]Queue{idleQueue{make(chan struct{}, 1)}}, lim, true); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			in = p
		}
	}
	sw.mu.Lock()
	defer sw.mu.Unlock()
	w := newWorker(sw, in, in.queues[0], new(rxCounters), sw.takeSlot())
	if c.known {
		sw.fdb.learn(0, host2, 1, 0)
	}
	return &bench{sw: sw, worker: w, frames: c.frames}
}

// step is one turn of the worker.
func (b *bench) step() {
	b.worker.rx.Reset()
	for i := range b.frames {
		*b.worker.rx.Next() = b.frames[i]
	}
	b.worker.batch()
}

// repeat is n times f.
func repeat(n int, f vnet.Frame) (frames []vnet.Frame) {
	for range n {
		frames = append(frames, f)
	}
	return frames
}

// hotStep is a way of a frame that the steady state consists of.
type hotStep struct {
	name    string
	frames  []vnet.Frame
	limits  []vnet.Limits // of the ports that the frames go to
	known   bool          // host2 has been heard on the first of them
	in, out VLAN          // of the port that they come from, and of those
}

func hotSteps() []hotStep {
	noCsum := limited(func(l *vnet.Limits) { l.Csum = false })
	plainForm := limited(func(l *vnet.Limits) { l.IPv6Form = vnet.FormPlain })
	big4 := frame(tcp4(500000), host1, host2)
	access, tag := VLAN{Mode: VLANAccess, Tag: 10}, func(s *vnettest.Spec) { s.Tags = []uint16{10} }
	passes, tagged := repeat(batchFrames, frame(tcp4(60000), host1, host2)),
		repeat(batchFrames, frame(with(tcp4(60000), tag), host1, host2))
	big := []vnet.Limits{bigLimits()}
	return []hotStep{
		{name: "pass", frames: passes, limits: big},
		{name: "known", frames: passes, limits: big, known: true},
		{name: "resegment", frames: repeat(4, big4), limits: []vnet.Limits{withSize(65536)}},
		{name: "segment", frames: repeat(4, big4), limits: []vnet.Limits{noCsum}},
		{name: "complete", frames: repeat(batchFrames, frame(plain(tcp4(1400)), host1, host2)),
			limits: []vnet.Limits{noCsum}},
		{name: "reform", frames: repeat(4, frame(tcp6(500000), host1, host2)), limits: []vnet.Limits{plainForm}},
		{name: "flood", frames: repeat(batchFrames, frame(tcp4(60000), host1, broadcast)),
			limits: []vnet.Limits{bigLimits(), withSize(20000), noCsum}},
		{name: "drop", frames: repeat(batchFrames, small(host1, 0x0180c2000000)), limits: big},
		{name: "tagged", frames: tagged, limits: big},
		{name: "access", frames: passes, limits: big, in: access, out: access},
		{name: "push", frames: passes, limits: big, in: access},
		{name: "pop", frames: tagged, limits: big, out: access},
		{name: "push_resegment", frames: repeat(4, big4), limits: []vnet.Limits{withSize(65536)}, in: access},
		{name: "pop_flood", frames: repeat(batchFrames, frame(with(tcp4(60000), tag), host1, broadcast)),
			limits: []vnet.Limits{bigLimits(), withSize(20000), noCsum}, out: access},
	}
}

// steadyRuns is enough that what other goroutines allocate meanwhile, the
// runtime's above all, is no whole allocation a batch.
const steadyRuns = 200

func TestSteadyStateAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, c := range hotSteps() {
		t.Run(c.name, func(t *testing.T) {
			b := c.bench(t)
			b.step() // learns, and makes its transmit halves
			if n := testing.AllocsPerRun(steadyRuns, b.step); n != 0 {
				t.Errorf("%v allocations a batch", n)
			}
			for _, p := range b.sw.Ports()[1:] {
				s := p.Stats()
				if s.EgressDrops != [vnet.NumDrops]uint64{} || c.name != "drop" && s.TxFrames == 0 {
					t.Errorf("port %s: %+v", p.Name(), s)
				}
			}
		})
	}
}

// A refused frame is cut again in memory that is made once.
func TestRescuesAllocateOnce(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	b := newBench(t, repeat(2, frame(tcp4(500000), host1, host2)), bigLimits())
	b.step()
	b.worker.egresses[1].tx = meanTransmitter{}
	b.step()
	if n := testing.AllocsPerRun(steadyRuns, b.step); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
	if s := b.sw.Ports()[1].Stats(); s.Retried == 0 || s.EgressDrops != [vnet.NumDrops]uint64{} {
		t.Errorf("%+v", s)
	}
}

// meanTransmitter has little memory.
type meanTransmitter struct{ idleTransmitter }

func (meanTransmitter) WriteBatch(frames []vnet.Frame) (int, vnet.Refusal, error) {
	for i := range frames {
		if frames[i].Len() > 100000 {
			return i, vnet.NoMemory, errFake
		}
	}
	return len(frames), vnet.Accepted, nil
}

// BenchmarkForward is what the switch itself costs: reading and writing are free.
func BenchmarkForward(b *testing.B) {
	for _, c := range hotSteps() {
		b.Run("step="+c.name, func(b *testing.B) {
			bench := c.bench(b)
			bytes := 0
			for i := range c.frames {
				bytes += c.frames[i].Len()
			}
			bench.step()
			b.SetBytes(int64(bytes))
			b.ReportAllocs()
			for b.Loop() {
				bench.step()
			}
			b.ReportMetric(float64(b.N*len(c.frames))/b.Elapsed().Seconds(), "frames/s")
		})
	}
}
