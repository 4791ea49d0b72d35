package dataplane

import (
	"encoding/binary"
	"testing"

	"sluice/vnet"
)

// nth is a flooded frame of host1 that differs from those with another n.
func nth(n int) vnet.Frame {
	f := small(host1, broadcast)
	binary.BigEndian.PutUint32(f.Head[len(f.Head)-4:], uint32(n))
	return f
}

func TestLoopsKnowWhatComesBack(t *testing.T) {
	const p, q PortID = 3, 65535
	type look struct {
		frame vnet.Frame
		port  PortID
		now   Tick
		want  bool
	}
	split := nth(1)
	split.Body = [][]byte{split.Head[20:30], split.Head[30:]}
	split.Head = split.Head[:20]
	long := func(more int) vnet.Frame { // than what is hashed
		return vnet.Frame{Head: append(nth(1).Head, make([]byte, loopHashed+more)...)}
	}
	var again []look
	for range 1 + loopRepeats {
		again = append(again, look{nth(1), p, 7, false})
	}
	for _, c := range []struct {
		name  string
		looks []look
	}{
		{"another port", []look{{nth(1), p, 7, false}, {nth(1), q, 7, true}, {nth(1), p, 7, false}}},
		{"the same port, too often", append(again, look{nth(1), p, 7, true}, look{nth(1), q, 7, true})},
		{"other frames", []look{{nth(1), p, 7, false}, {nth(2), q, 7, false}, {long(0), q, 7, false}, {long(1), p, 7, false}}},
		{"other pieces", []look{{nth(1), p, 7, false}, {split, q, 7, true}}},
		{"in the next second", []look{{nth(1), p, 7, false}, {nth(1), q, 8, true}}},
		{"later", []look{{nth(1), p, 7, false}, {nth(1), q, 9, false}, {nth(1), p, 9, true}}},
		{"a worker of a tick before", []look{{nth(1), p, 7, false}, {nth(1), q, 6, true}}},
		{"as ticks wrap", []look{{nth(1), p, 4095, false}, {nth(1), q, 4096, true}}},
	} {
		loops := &newFDB(0).loops
		for i, l := range c.looks {
			if got := loops.returned(&l.frame, l.port, l.now); got != l.want {
				t.Errorf("%s: look %d: %v", c.name, i, got)
			}
		}
	}
}

// Frames that share a bucket may make each other forgotten, and yet none of them
// circulates for ever.
func TestLoopsEndAStorm(t *testing.T) {
	loops := &newFDB(0).loops
	var alive []vnet.Frame
	for i := range loopBuckets * loopWays {
		alive = append(alive, nth(i))
	}
	rounds := 0
	for ; len(alive) > 0 && rounds < 1000; rounds++ {
		left := alive[:0]
		for i := range alive {
			if !loops.returned(&alive[i], 1, 0) {
				left = append(left, alive[i])
			}
		}
		alive = left
	}
	t.Logf("%d rounds", rounds)
	if len(alive) > 0 {
		t.Errorf("%d frames still circulate after %d rounds", len(alive), rounds)
	}
}

// wired carries what the switch sends out of two ports into the other of them, as a
// bridge behind both does, until nothing is left. It returns how many frames that were.
func (l *lab) wired(a, b *fakeQueue) int {
	l.t.Helper()
	const most = 10000
	total := 0
	for {
		fromA, fromB := a.taken(), b.taken()
		if len(fromA)+len(fromB) == 0 {
			return total
		}
		if total += len(fromA) + len(fromB); total > most {
			l.t.Fatalf("%d frames, and the loop goes on", total)
		}
		b.inject(fromA...)
		a.inject(fromB...)
	}
}

func TestLoopIsBroken(t *testing.T) {
	l := newLab(t)
	a, qa := l.port("a", bigLimits())
	b, qb := l.port("b", bigLimits())
	c, qc := l.port("c", bigLimits())
	_, qd := l.port("d", bigLimits())
	hello(qd, host2, qa, qb, qc)

	qc.inject(nth(0)) // circulates until the loop is noticed
	if n := l.wired(qa, qb); n < loopMoves || n > 2*loopMoves {
		t.Errorf("the first frame made %d rounds, want some more than %d", n, loopMoves)
	}
	qd.taken()
	qc.taken()
	late := small(host2, host1) // who was heard on a and b last
	qd.inject(late)
	same(t, qc.taken(), late)
	l.wired(qa, qb)
	l.advance(loopMemory)
	qc.inject(nth(1))
	if n := l.wired(qa, qb); n != 2 {
		t.Errorf("%d frames came back of one that was sent out of two ports", n)
	}
	qd.taken()
	qc.taken()

	// Neither host was learnt behind the loop.
	for _, to := range []struct {
		from, at *fakeQueue
		f        vnet.Frame
	}{{qd, qc, small(host2, host1)}, {qc, qd, small(host1, host2)}} {
		to.from.inject(to.f)
		same(t, to.at.taken(), to.f)
	}
	if out := append(qa.taken(), qb.taken()...); len(out) > 0 {
		t.Errorf("%d frames between the hosts went into the loop", len(out))
	}

	// A host behind the loop is heard on both ports at once.
	f := small(host3, broadcast)
	qa.inject(f)
	qb.inject(f)
	if n := l.wired(qa, qb); n < 1 || n > 2+loopRepeats {
		t.Errorf("a frame from behind the loop made %d rounds", n)
	}
	for _, p := range []*Port{a, b} {
		if n := p.Stats().IngressDrops[vnet.DropLoop]; n == 0 {
			t.Errorf("port %s dropped nothing for the loop", p.Name())
		}
	}
	wantIngress(t, c)
}

// An unknown destination is flooded, and circulates just so.
func TestLoopOfUnknownUnicastIsBroken(t *testing.T) {
	l := newLab(t)
	_, qa := l.port("a", bigLimits())
	_, qb := l.port("b", bigLimits())
	_, qc := l.port("c", bigLimits())
	for range 2 {
		qc.inject(small(host1, host3))
		l.wired(qa, qb)
	}
}

// Without a loop nothing is dropped for one: neither what a host that moves says again,
// nor, when the last loop was a while ago, what two ports say alike.
func TestNoLoopNoDrops(t *testing.T) {
	l := newLab(t)
	a, qa := l.port("a", bigLimits())
	b, qb := l.port("b", bigLimits())
	_, qc := l.port("c", bigLimits())
	same1 := small(host1, broadcast)
	both := func() {
		qa.inject(same1)
		qb.inject(same1)
	}
	for range loopMoves/2 - 1 {
		both()
	}
	wantIngress(t, a)
	wantIngress(t, b)
	l.advance(1) // moves count by the second
	for range loopMoves/2 - 1 {
		both()
	}
	wantIngress(t, a)
	wantIngress(t, b)

	l.advance(2)
	for range loopMoves {
		both()
	}
	drops := b.Stats().IngressDrops[vnet.DropLoop]
	if drops == 0 {
		t.Error("nothing was dropped when the address moved as often as in a loop")
	}
	l.advance(2 + loopHold)
	qc.taken()
	both()
	same(t, qc.taken(), same1, same1)
	wantIngress(t, b, vnet.DropLoop, int(drops))
}

// Frames that are new and frames that are stopped: watching allocates for neither.
func TestWatchingAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	frames := []vnet.Frame{small(host2, broadcast)}
	for i := range batchFrames - 1 {
		frames = append(frames, nth(i))
	}
	b := newBench(t, frames, bigLimits())
	b.sw.fdb.loops.watch(0)
	steps := 0
	step := func() {
		steps++
		for _, f := range frames[1:] {
			binary.BigEndian.PutUint32(f.Head[len(f.Head)-8:], uint32(steps))
		}
		b.step()
	}
	step()
	if n := testing.AllocsPerRun(steadyRuns, step); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
	drops := b.worker.counters.drops[vnet.DropLoop].Load()
	if drops == 0 || drops > uint64(steps) {
		t.Errorf("%d drops for a loop, of %d frames that are the same", drops, steps)
	}
}
