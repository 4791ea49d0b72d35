package dataplane

import (
	"fmt"
	"testing"
	"time"

	"sluice/vnet"
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

// newBench makes a bench that forwards frames to ports with the given limits.
func newBench(t testing.TB, frames []vnet.Frame, limits ...vnet.Limits) *bench {
	sw := New(Options{})
	t.Cleanup(sw.Close)
	var in *Port
	for i, lim := range append([]vnet.Limits{bigLimits()}, limits...) {
		p, err := sw.AddPort(PortConfig{Name: fmt.Sprint(i)})
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
	return &bench{sw: sw, worker: w, frames: frames}
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

// hotSteps are the ways of a frame that the steady state consists of.
func hotSteps() []struct {
	name   string
	frames []vnet.Frame
	limits []vnet.Limits
} {
	noCsum := limited(func(l *vnet.Limits) { l.Csum = false })
	plainForm := limited(func(l *vnet.Limits) { l.IPv6Form = vnet.FormPlain })
	big4 := frame(tcp4(500000), host1, host2)
	return []struct {
		name   string
		frames []vnet.Frame
		limits []vnet.Limits
	}{
		{"pass", repeat(batchFrames, frame(tcp4(60000), host1, host2)), []vnet.Limits{bigLimits()}},
		{"resegment", repeat(4, big4), []vnet.Limits{withSize(65536)}},
		{"segment", repeat(4, big4), []vnet.Limits{noCsum}},
		{"complete", repeat(batchFrames, frame(plain(tcp4(1400)), host1, host2)),
			[]vnet.Limits{noCsum}},
		{"reform", repeat(4, frame(tcp6(500000), host1, host2)), []vnet.Limits{plainForm}},
		{"flood", repeat(batchFrames, frame(tcp4(60000), host1, broadcast)),
			[]vnet.Limits{bigLimits(), withSize(20000), noCsum}},
		{"drop", repeat(batchFrames, small(host1, 0x0180c2000000)), []vnet.Limits{bigLimits()}},
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
			b := newBench(t, c.frames, c.limits...)
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
			bench := newBench(b, c.frames, c.limits...)
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
