package dataplane

import (
	"testing"
	"time"

	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// twoPorts is a lab with an ingress and an egress.
func twoPorts(t *testing.T, limits vnet.Limits) (l *lab, a, b *Port, qa, qb *fakeQueue) {
	l = newLab(t)
	a, qa = l.port("a", bigLimits())
	b, qb = l.port("b", limits)
	return l, a, b, qa, qb
}

// Halves first, where memory is in short pieces; what is left of them at 64 KiB.
func TestNoMemoryHalvesThenCutsTo64KiB(t *testing.T) {
	for _, c := range []struct {
		memory          int // for frames of so many bytes
		least           int // the longest frame has so many at least
		retried, frames uint64
	}{
		{300000, 250000, 1, 2},
		{100000, 64000, 3, 8}, // 510000, 2 of 255000; 4 of each
	} {
		for _, spec := range []vnettest.Spec{tcp4(510000), tcp6(510000)} {
			_, _, b, qa, qb := twoPorts(t, bigLimits())
			qb.refuse(above(c.memory, vnet.NoMemory))
			f := frame(spec, host1, host2)
			qa.inject(f)
			got := qb.taken()
			sameOnWire(t, got, f)
			if n := longest(got); n > c.memory || n < c.least {
				t.Errorf("the longest frame has %d bytes", n)
			}
			if s := b.Stats(); s.Retried != c.retried || s.Resegmented != c.retried ||
				s.Chunks != c.frames+c.retried-1 || s.TxFrames != c.frames || s.TxOffered != 1 {
				t.Errorf("%+v", s)
			}
			wantEgress(t, b)

			// It is no limit: what there is memory for next time leaves whole.
			qb.refuse(nil)
			qa.inject(f)
			same(t, qb.taken(), f)
		}
	}
}

func TestNoMemoryBelow64KiBIsADrop(t *testing.T) {
	_, a, b, qa, qb := twoPorts(t, bigLimits())
	qb.refuse(always(vnet.NoMemory))
	qa.inject(frame(tcp4(130000), host1, host2), frame(tcp4(60000), host1, host2),
		small(host1, host2))
	same(t, qb.taken())
	s := b.Stats()
	if s.Retried == 0 || s.TxFrames != 0 || s.TxOffered != 3 {
		t.Errorf("%+v", s)
	}
	if s.Chunks-s.Resegmented+3 != s.EgressDrops[vnet.DropNoMemory] {
		t.Errorf("%d chunks of %d super-packets, %v", s.Chunks, s.Resegmented,
			byName(s.EgressDrops))
	}
	wantIngress(t, a)
}

func TestNoMemoryKeepsOrderAndTheRest(t *testing.T) {
	_, _, b, qa, qb := twoPorts(t, bigLimits())
	qb.refuse(above(100000, vnet.NoMemory))
	var frames []vnet.Frame
	for i := range uint32(20) {
		spec := tcp4([]int{1000, 200000, 30000, 90000}[i%4])
		spec.Seq, spec.ID = i<<24, uint16(i<<10)
		frames = append(frames, frame(spec, host1, host2))
	}
	qa.inject(frames...)
	sameOnWire(t, qb.taken(), frames...)
	wantEgress(t, b)
}

// A chunk that leaves as one segment may not be retried for ever either.
func TestNoMemoryForGiantSegments(t *testing.T) {
	limits := limited(func(l *vnet.Limits) { l.MTU = vnet.MaxFrame })
	_, _, b, qa, qb := twoPorts(t, limits)
	b.sw.Ports()[0].SetLimits(limits)
	qb.refuse(above(65000, vnet.NoMemory))
	f := frame(with(tcp4(500000), func(s *vnettest.Spec) { s.GSOSize = 60000 }), host1, host2)
	qa.inject(f)
	sameOnWire(t, qb.taken(), f)
	wantEgress(t, b)
}

func TestTooBigTeachesTheGreatestWrite(t *testing.T) {
	l, _, b, qa, qb := twoPorts(t, bigLimits())
	qb.refuse(above(200000, vnet.TooBig))
	f := frame(tcp4(500000), host1, host2)
	qa.inject(f)
	sameOnWire(t, qb.taken(), f)
	wantEgress(t, b)

	learnt := b.Limits().MaxWrite
	if learnt > 200000 || learnt < 100000 {
		t.Errorf("learnt %d", learnt)
	}
	var last Event
	for len(l.Events()) > 0 {
		last = l.event()
	}
	if want := (Event{Port: b, Kind: EventLearnt, Queue: qb, Size: learnt}); last != want {
		t.Errorf("event %+v", last)
	}

	qb.refuse(func(f *vnet.Frame) vnet.Refusal {
		if f.Len() > learnt {
			t.Errorf("%d bytes tried after %d was learnt", f.Len(), learnt)
		}
		return vnet.Accepted
	})
	qa.inject(f)
	sameOnWire(t, qb.taken(), f)
	b.SetLimits(withSize(400000)) // what was learnt stays
	if n := b.Limits().MaxWrite; n != learnt {
		t.Errorf("the greatest write is %d, want %d", n, learnt)
	}

	l.detach(b, qb)
	qb = l.attach(b, bigLimits()) // another device
	qa.inject(f)
	same(t, qb.taken(), f)
}

func TestTooBigBelow64KiBIsADrop(t *testing.T) {
	_, _, b, qa, qb := twoPorts(t, bigLimits())
	qb.refuse(always(vnet.TooBig))
	qa.inject(frame(tcp4(60000), host1, host2), small(host1, host2))
	wantEgress(t, b, vnet.DropTooBig, 1, vnet.DropOverMTU, 1)
	if n := b.Limits().MaxWrite; n != vnet.MaxFrame {
		t.Errorf("learnt %d", n)
	}
}

func TestBadGSOLeavesAsSegmentsAndLatches(t *testing.T) {
	l, a, b, qa, qb := twoPorts(t, bigLimits())
	tried := 0
	qb.refuse(func(f *vnet.Frame) vnet.Refusal {
		if f.Hdr.GSO.Type() != vnet.GSOTCPv4 {
			return vnet.Accepted
		}
		tried++
		return vnet.BadGSO
	})
	f := frame(tcp4(60000), host1, host2)
	v6 := frame(tcp6(60000), host1, host2)
	cut := func(wantTried int) {
		t.Helper()
		tried = 0
		qa.inject(f)
		got := qb.taken()
		sameOnWire(t, got, f)
		if len(got) != 42 || tried != wantTried {
			t.Errorf("%d frames, want 42 segments; %d super-packets tried, want %d",
				len(got), tried, wantTried)
		}
	}
	cut(1)
	cut(1)
	l.noEvent()
	cut(1)
	latched := Event{Port: b, Kind: EventLatched, Queue: qb, GSO: vnet.GSOTCPv4}
	if e := l.event(); e != latched {
		t.Errorf("event %+v", e)
	}
	if lim := b.Limits(); lim.TSO4 || !lim.TSO6 || !lim.USO || !lim.Csum {
		t.Errorf("latched off: %+v", lim)
	}
	cut(0)
	qa.inject(v6)
	same(t, qb.taken(), v6)

	l.advance(59)
	cut(0)
	l.advance(60)
	if !b.Limits().TSO4 {
		t.Error("still latched after 60 s")
	}
	cut(1) // three in a row again
	cut(1)
	cut(1)
	cut(0)
	l.noEvent() // told once
	l.advance(120)
	qb.refuse(nil) // the kernel was replaced
	qa.inject(f)
	same(t, qb.taken(), f)
	if s := b.Stats(); s.TxOffered != 11 || s.Segmented != 9 || s.Segments != 9*42 ||
		s.Resegmented != 0 {
		t.Errorf("%+v", s)
	}
	wantIngress(t, a)
	wantEgress(t, b)
}

func TestSuccessBetweenRefusalsKeepsTheType(t *testing.T) {
	l, _, b, qa, qb := twoPorts(t, bigLimits())
	qb.refuse(func(f *vnet.Frame) vnet.Refusal {
		if f.Hdr.GSO == vnet.GSONone || f.Hdr.GSO.Type() == vnet.GSOTCPv4 && f.Len() < 50000 {
			return vnet.Accepted
		}
		return vnet.BadGSO
	})
	bad, good := frame(tcp4(60000), host1, host2), frame(tcp4(40000), host1, host2)
	for range 3 {
		qa.inject(bad, bad, good)
		qa.inject(bad, good, bad, good, bad, bad)
		qa.inject(good)
	}
	l.noEvent()
	if !b.Limits().TSO4 {
		t.Error("latched")
	}
	qb.taken()
	qb.refuse(func(f *vnet.Frame) vnet.Refusal {
		if f.Hdr.GSO.Type() == vnet.GSOTCPv4 {
			return vnet.BadGSO
		}
		return vnet.Accepted
	})
	other := frame(tcp6(60000), host1, host2)
	qa.inject(bad, bad, other, bad) // another type's success does not forgive
	if e := l.event(); e.GSO != vnet.GSOTCPv4 {
		t.Errorf("event %+v", e)
	}
	sameOnWire(t, qb.taken(), bad, bad, other, bad)
	if lim := b.Limits(); lim.TSO4 || !lim.TSO6 {
		t.Errorf("latched off: %+v", lim)
	}
}

// A frame that the switch need not look into may be malformed: the kernel says so
// with the same errno as for a type that it does not take.
func TestMalformedNeverLatches(t *testing.T) {
	for _, r := range []vnet.Refusal{vnet.BadGSO, vnet.NoMemory, vnet.TooBig} {
		t.Run(r.String(), func(t *testing.T) {
			l, a, b, qa, qb := twoPorts(t, bigLimits())
			qb.refuse(super(r))
			f := frame(tcp4(100000), host1, host2)
			f.Hdr.CsumStart++
			for range 5 {
				qa.inject(f, f, small(host1, host2))
			}
			if n := len(qb.taken()); n != 5 {
				t.Errorf("%d frames, want the 5 good ones", n)
			}
			wantIngress(t, a, vnet.DropBadGSO, 10)
			wantEgress(t, b)
			if s := b.Stats(); s.TxOffered != 5 || s.Segmented+s.Resegmented+s.Retried != 0 {
				t.Errorf("%+v", s)
			}
			if lim := b.Limits(); lim != bigLimits() {
				t.Errorf("limits %+v", lim)
			}
			l.noEvent()
		})
	}
}

// What is well-formed and still nothing that every kernel takes is cut, but one
// sender of it does not cost the others the type.
func TestUnusualSuperPacketsNeverLatch(t *testing.T) {
	for _, c := range []struct {
		name string
		spec vnettest.Spec
	}{
		{"more UDP segments than UDP_MAX_SEGMENTS", with(udp4(6500),
			func(s *vnettest.Spec) { s.GSOSize = 50 })},
		{"TCP without NeedsCsum", with(tcp4(60000), func(s *vnettest.Spec) {
			s.Csum, s.Tags = vnettest.Full, []uint16{1}
		})},
		{"one segment", tcp4(1000)},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, a, b, qa, qb := twoPorts(t, bigLimits())
			qb.refuse(super(vnet.BadGSO))
			f := frame(c.spec, host1, host2)
			for range 5 {
				qa.inject(f)
				sameOnWire(t, qb.taken(), f)
			}
			l.noEvent()
			if lim := b.Limits(); lim != bigLimits() {
				t.Errorf("limits %+v", lim)
			}
			wantIngress(t, a)
			wantEgress(t, b)
		})
	}
}

func TestPlainFramesThatAreRefused(t *testing.T) {
	_, _, b, qa, qb := twoPorts(t, bigLimits())
	qb.refuse(func(f *vnet.Frame) vnet.Refusal {
		if f.Hdr.Flags&vnet.NeedsCsum != 0 {
			return vnet.BadGSO
		}
		return vnet.Accepted
	})
	f := frame(plain(tcp4(1000)), host1, host2)
	qa.inject(f)
	sameOnWire(t, qb.taken(), f) // with its checksum completed
	if n := b.Stats().CsumCompleted; n != 1 {
		t.Errorf("%d checksums completed, want 1", n)
	}
	wantEgress(t, b)

	qb.refuse(always(vnet.BadGSO))
	qa.inject(f, small(host1, host2), frame(tcp4(10*mss), host1, host2))
	wantEgress(t, b, vnet.DropRefused, 12)
}

func TestFullGetsOneShortWaitABatch(t *testing.T) {
	l := newLab(t)
	_, qa := l.port("a", bigLimits())
	b, qb := l.port("b", bigLimits())
	_, qc := l.port("c", bigLimits())
	var batch []vnet.Frame
	for range batchFrames {
		batch = append(batch, frame(tcp4(60000), host1, broadcast)) // many flushes
	}
	wantWaits := func(n int) {
		t.Helper()
		waits := qb.waited()
		if len(waits) != n {
			t.Errorf("%d waits, want %d", len(waits), n)
		}
		for _, d := range waits {
			if d > 200*time.Microsecond {
				t.Errorf("a wait of %v", d)
			}
		}
	}

	qb.refuse(always(vnet.Full))
	qa.inject(batch...)
	wantWaits(1)
	qa.inject(batch...)
	qa.inject(batch...)
	wantWaits(0) // as long as it stays full
	same(t, qb.taken())
	wantEgress(t, b, vnet.DropFull, 3*batchFrames)
	same(t, qc.taken(), append(append(append([]vnet.Frame{}, batch...), batch...), batch...)...)
	if waits := qc.waited(); len(waits) != 0 {
		t.Errorf("the other port waited %v", waits)
	}

	qb.refuse(nil)
	qa.inject(batch...)
	wantWaits(0)
	same(t, qb.taken(), batch...)

	// Room comes back at once: nothing is lost.
	refusals := 0
	qb.refuse(func(*vnet.Frame) vnet.Refusal {
		if refusals++; refusals == 10 {
			return vnet.Full
		}
		return vnet.Accepted
	})
	qa.inject(batch...)
	wantWaits(1)
	same(t, qb.taken(), batch...)

	// It takes one frame now and then: one wait a batch all the same.
	n := 0
	qb.refuse(func(*vnet.Frame) vnet.Refusal {
		if n++; n%4 == 0 {
			return vnet.Accepted
		}
		return vnet.Full
	})
	qa.inject(batch...)
	if got := len(qb.waited()); got > 1 {
		t.Errorf("%d waits in one batch", got)
	}
	for _, f := range qb.taken() {
		same(t, []vnet.Frame{f}, batch[0])
	}
}

// What is cut while the port is full is dropped piece by piece, and counted so.
func TestFullWhileCutting(t *testing.T) {
	_, _, b, qa, qb := twoPorts(t, withSize(65536))
	n := 0
	qb.refuse(func(*vnet.Frame) vnet.Refusal {
		if n++; n > 3 {
			return vnet.Full
		}
		return vnet.Accepted
	})
	qa.inject(frame(tcp4(400000), host1, host2))
	if got := len(qb.taken()); got != 3 {
		t.Errorf("%d chunks left, want 3", got)
	}
	wantEgress(t, b, vnet.DropFull, 4)
}

// A queueing discipline that has no room for one flow may have some for another. There
// is no wait for it, and one attempt for all that a flow has in a row.
func TestCongestionIsOneFlowsLoss(t *testing.T) {
	_, _, b, qa, qb := twoPorts(t, bigLimits())
	bulk := func(seq uint32) vnet.Frame {
		return frame(with(plain(tcp4(1000)), func(s *vnettest.Spec) { s.Seq = seq }), host1, host2)
	}
	urgent := frame(with(plain(tcp4(1000)), func(s *vnettest.Spec) { s.TOS = 0xb8 }), host1, host2)
	tried := 0
	qb.refuse(func(f *vnet.Frame) vnet.Refusal {
		if f.Head[vnet.EthLen+1] != 0 {
			return vnet.Accepted
		}
		tried++
		return vnet.Congested
	})
	for range 2 {
		tried = 0
		qa.inject(bulk(1), bulk(2), bulk(3), urgent, bulk(4), bulk(5), urgent, urgent)
		same(t, qb.taken(), urgent, urgent, urgent)
		if tried != 2 {
			t.Errorf("%d attempts for 5 frames in 2 rows", tried)
		}
	}
	wantEgress(t, b, vnet.DropFull, 10)
	if waits := qb.waited(); len(waits) != 0 {
		t.Errorf("it waited %v", waits)
	}
}

// What is too long for the memory, or for the queueing discipline, is tried shorter
// until it is known which; then the rest of it is lost, unseen by the kernel.
func TestCongestedSuperPacketIsGivenUpAtOneChunk(t *testing.T) {
	for _, spec := range []vnettest.Spec{tcp4(380000), tcp6(380000)} {
		_, a, b, qa, qb := twoPorts(t, bigLimits())
		var tried []int
		qb.refuse(func(f *vnet.Frame) vnet.Refusal {
			switch {
			case f.Hdr.GSO == vnet.GSONone:
				return vnet.Accepted
			case f.Len() > vnet.LegacyGSOMaxSize:
				tried = append(tried, f.Len())
				return vnet.NoMemory
			}
			tried = append(tried, f.Len())
			return vnet.Congested
		})
		f, other := frame(spec, host1, host2), small(host1, host2)
		qa.inject(f, other, f, other)
		same(t, qb.taken(), other, other)
		if len(tried) != 6 || tried[0] != f.Len() || tried[3] != f.Len() ||
			tried[2] > 65535 || tried[5] > 65535 {
			t.Errorf("tried %v, want whole, half and chunk, of each", tried)
		}
		// 3 chunks of the first half and the second half of each, which is not cut.
		wantEgress(t, b, vnet.DropFull, 8)
		wantIngress(t, a)
	}
}

// Where there is room for chunks nothing is lost.
func TestQueueingDisciplineWithRoomForChunks(t *testing.T) {
	_, _, b, qa, qb := twoPorts(t, bigLimits())
	qb.refuse(above(vnet.LegacyGSOMaxSize, vnet.NoMemory))
	f := frame(tcp4(380000), host1, host2)
	qa.inject(f, f)
	sameOnWire(t, qb.taken(), f, f)
	wantEgress(t, b)
}

func TestSameFlow(t *testing.T) {
	v4, v6 := plain(udp4(100)), with(plain(udp4(100)), func(s *vnettest.Spec) { s.V6 = true })
	at := func(n int) func(*vnet.Frame) { return func(f *vnet.Frame) { f.Head[n] ^= 1 } }
	const ip = vnet.EthLen
	for _, c := range []struct {
		name string
		spec vnettest.Spec
		edit func(*vnet.Frame)
		want bool
	}{
		{"IPv4", v4, func(*vnet.Frame) {}, true},
		{"IPv4 ID", v4, at(ip + 5), true},
		{"IPv4 checksum", v4, at(ip + 11), true},
		{"UDP checksum", v4, at(ip + vnet.IPv4Len + 6), true},
		{"a group's address", v4, at(5), false},
		{"IPv4 DSCP", v4, at(ip + 1), false},
		{"IPv4 protocol", v4, at(ip + 9), false},
		{"IPv4 source", v4, at(ip + 15), false},
		{"IPv4 destination", v4, at(ip + 19), false},
		{"IPv4 source port", v4, at(ip + vnet.IPv4Len + 1), false},
		{"IPv4 destination port", v4, at(ip + vnet.IPv4Len + 3), false},
		{"IPv6", v6, func(*vnet.Frame) {}, true},
		{"IPv6 length", v6, at(ip + 5), true},
		{"IPv6 flow label", v6, at(ip + 3), false},
		{"IPv6 protocol", v6, at(ip + 6), false},
		{"IPv6 source", v6, at(ip + 8), false},
		{"IPv6 destination", v6, at(ip + 39), false},
		{"IPv6 destination port", v6, at(ip + vnet.IPv6Len + 3), false},
		{"priority of a tag", with(v4, func(s *vnettest.Spec) { s.Tags = []uint16{5} }),
			func(f *vnet.Frame) { f.Head[14] ^= 0x20 }, false},
		{"a tag alike", with(v4, func(s *vnettest.Spec) { s.Tags = []uint16{5} }),
			func(*vnet.Frame) {}, true},
		{"shorter than its ports", v4, func(f *vnet.Frame) { f.Head = f.Head[:ip+23] }, false},
		{"not IP", v4, func(f *vnet.Frame) {}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, g := frame(c.spec, host1, host2), frame(c.spec, host1, host2)
			if c.name == "not IP" {
				f.Head[12], g.Head[12] = 0x88, 0x88
			}
			c.edit(&g)
			if got := sameFlow(&f, &g); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
			if got := sameFlow(&g, &f); got != c.want {
				t.Errorf("the other way: %v, want %v", got, c.want)
			}
		})
	}
}

func TestWritesToADeviceThatIsDownOrGone(t *testing.T) {
	for _, c := range []struct {
		refusal vnet.Refusal
		want    EventKind
		err     error
	}{{vnet.Down, EventDown, nil}, {vnet.Gone, EventGone, errFake}} {
		t.Run(c.refusal.String(), func(t *testing.T) {
			l, _, b, qa, qb := twoPorts(t, bigLimits())
			qb.refuse(always(c.refusal))
			qa.inject(small(host1, host2), frame(tcp4(60000), host1, host2))
			qa.inject(small(host1, host2))
			wantEgress(t, b, vnet.DropPortDown, 3)
			want := Event{Port: b, Kind: c.want, Queue: qb, Err: c.err}
			if e := l.event(); e != want {
				t.Errorf("event %+v", e)
			}
			l.noEvent()
			if n := len(qb.waited()); n != 0 {
				t.Errorf("%d waits", n)
			}
		})
	}
}

func TestAnUnknownErrorIsToldOnce(t *testing.T) {
	l, _, b, qa, qb := twoPorts(t, bigLimits())
	qb.refuse(super(vnet.Failed))
	big, other := frame(tcp4(60000), host1, host2), small(host1, host2)
	for range 100 { // more than there is room for events
		qa.inject(big, other)
	}
	wantEgress(t, b, vnet.DropIOError, 100)
	if n := len(qb.taken()); n != 100 {
		t.Errorf("%d frames behind the failed ones, want 100", n)
	}
	if e, want := l.event(), (Event{Port: b, Kind: EventFailed, Queue: qb, Err: errFake}); e != want {
		t.Errorf("event %+v", e)
	}
	l.noEvent()
}
