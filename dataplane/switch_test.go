package dataplane

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"sluice/offload"
	"sluice/vnet"
	"sluice/vnet/vnettest"
)

const (
	broadcast vnet.MAC = 0xffffffffffff
	host1     vnet.MAC = 0x02005e100101
	host2     vnet.MAC = 0x02005e100102
	host3     vnet.MAC = 0x02005e100103
)

// frame is s from src to dst.
func frame(s vnettest.Spec, src, dst vnet.MAC) vnet.Frame {
	f := vnettest.Super(s)
	putMAC(f.Head, dst)
	putMAC(f.Head[6:], src)
	return f
}

func putMAC(b []byte, m vnet.MAC) {
	binary.BigEndian.PutUint16(b, uint16(m>>32))
	binary.BigEndian.PutUint32(b[2:], uint32(m))
}

// small is a frame that every egress takes.
func small(src, dst vnet.MAC) vnet.Frame {
	return frame(with(plain(tcp4(10)), func(s *vnettest.Spec) { s.Csum = vnettest.Full }), src, dst)
}

// hello lets the switch learn that src is behind q. The frame is flooded, to queues
// whose output is then forgotten.
func hello(q *fakeQueue, src vnet.MAC, others ...*fakeQueue) {
	q.t.Helper()
	q.inject(small(src, broadcast))
	for _, o := range others {
		o.taken()
	}
}

// same fails t unless got are the frames of want, headers and bytes, and reports it.
func same(t *testing.T, got []vnet.Frame, want ...vnet.Frame) bool {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d frames, want %d", len(got), len(want))
		return false
	}
	ok := true
	for i := range got {
		if got[i].Hdr != want[i].Hdr {
			t.Errorf("frame %d: header %+v, want %+v", i, got[i].Hdr, want[i].Hdr)
			ok = false
		}
		if !bytes.Equal(got[i].AppendTo(nil), want[i].AppendTo(nil)) {
			t.Errorf("frame %d: its bytes differ", i)
			ok = false
		}
	}
	return ok
}

// wire is what frames are once the last receiver of a super-packet has cut it and
// every checksum is finished.
func wire(t *testing.T, frames ...vnet.Frame) [][]byte {
	t.Helper()
	var seg offload.Segmenter
	var out [][]byte
	for i := range frames {
		f := &frames[i]
		var l2 vnet.L2
		var p vnet.Packet
		if d := f.Check(&l2); d != vnet.Keep {
			t.Fatalf("frame %d would be dropped: %v", i, d)
		}
		b := vnet.NewBatch(batchFrames, batchScratch, batchPieces)
		switch {
		case f.Hdr.GSO != vnet.GSONone:
			if d := vnet.Parse(f, &l2, &p); d != vnet.Keep {
				t.Fatalf("frame %d would be dropped: %v", i, d)
			}
			if d := seg.Segment(f, &p); d != vnet.Keep {
				t.Fatalf("frame %d would be dropped: %v", i, d)
			}
			for more := true; more; {
				b.Reset()
				more = seg.Fill(b)
				for j := range b.Frames {
					out = append(out, b.Frames[j].AppendTo(nil))
				}
			}
			continue
		case f.Hdr.Flags&vnet.NeedsCsum != 0:
			if d := offload.Complete(b, f, &l2); d != vnet.Keep {
				t.Fatalf("frame %d would be dropped: %v", i, d)
			}
			f = &b.Frames[0]
		}
		out = append(out, f.AppendTo(nil))
	}
	return out
}

// sameOnWire fails t unless got is, once on the wire, what want is, in order.
func sameOnWire(t *testing.T, got []vnet.Frame, want ...vnet.Frame) {
	t.Helper()
	g, w := wire(t, got...), wire(t, want...)
	if len(g) != len(w) {
		t.Errorf("%d packets on the wire, want %d", len(g), len(w))
		return
	}
	for i := range g {
		if !bytes.Equal(g[i], w[i]) {
			t.Errorf("packet %d on the wire differs\ngot  %x\nwant %x", i, g[i][:64], w[i][:64])
			return
		}
	}
}

// longest is the length of the longest of frames.
func longest(frames []vnet.Frame) int {
	n := 0
	for i := range frames {
		n = max(n, frames[i].Len())
	}
	return n
}

func TestUnknownFloodsAndKnownDoesNot(t *testing.T) {
	l := newLab(t)
	a, qa := l.port("a", bigLimits())
	b, qb := l.port("b", bigLimits())
	_, qc := l.port("c", bigLimits())

	unknown := frame(tcp4(60000), host1, host2)
	qa.inject(unknown)
	same(t, qa.taken())
	same(t, qb.taken(), unknown)
	same(t, qc.taken(), unknown)

	answer := frame(tcp4(3000), host2, host1) // host1 has just been learnt
	qb.inject(answer)
	same(t, qa.taken(), answer)
	same(t, qc.taken())

	known := frame(tcp6(60000), host1, host2)
	qa.inject(known)
	same(t, qb.taken(), known)
	same(t, qc.taken())

	group := small(host1, broadcast)
	qa.inject(group, small(host1, 0x01005e000001))
	if n, m := len(qb.taken()), len(qc.taken()); n != 2 || m != 2 {
		t.Errorf("broadcast and multicast: %d and %d frames, want 2 each", n, m)
	}
	rx := a.Stats()
	if rx.RxFrames != 4 || rx.RxCopies != 3 || rx.RxMaxFrame != known.Len() ||
		rx.RxBytes != uint64(unknown.Len()+known.Len()+2*group.Len()) {
		t.Errorf("a: %+v", rx)
	}
	if tx := b.Stats(); tx.TxOffered != 4 || tx.TxFrames != 4 || tx.TxMaxFrame != known.Len() ||
		tx.TxBytes != rx.RxBytes {
		t.Errorf("b: %+v", tx)
	}
}

func TestHostMoves(t *testing.T) {
	l := newLab(t)
	_, qa := l.port("a", bigLimits())
	_, qb := l.port("b", bigLimits())
	_, qc := l.port("c", bigLimits())
	hello(qb, host2, qa, qc)
	hello(qc, host2, qa, qb)
	f := small(host1, host2)
	qa.inject(f)
	same(t, qb.taken())
	same(t, qc.taken(), f)
}

// TestFlappingAddressIsTold, once, beside some of its moves, and what flaps is forwarded
// as before.
func TestFlappingAddressIsTold(t *testing.T) {
	l := newLab(t)
	a, qa := l.port("a", bigLimits())
	b, qb := l.port("b", bigLimits())
	_, qc := l.port("c", bigLimits())
	tagged := frame(with(plain(tcp4(10)), func(s *vnettest.Spec) {
		s.Csum, s.Tags = vnettest.Full, []uint16{0x6064}
	}), host1, broadcast)
	for range 10 {
		qa.inject(tagged)
		qb.inject(tagged)
	}
	want := Event{
		Port: b, Kind: EventFlaps, Queue: qb, MAC: host1, VID: 0x64, Other: a,
	}
	moved := want
	moved.Kind = EventMoved
	back := Event{Port: a, Kind: EventMoved, Queue: qa, MAC: host1, VID: 0x64, Other: b}
	// It goes on moving, and movesTold moves are told of.
	for _, want := range []Event{moved, back, moved, back, moved, want, back, moved, back} {
		if e := l.event(); e != want {
			t.Errorf("%+v, want %+v", e, want)
		}
	}
	l.noEvent()
	if n := len(qc.taken()); n != 20 {
		t.Errorf("%d frames arrived, want 20", n)
	}
}

func TestHostIsForgottenAfterSilence(t *testing.T) {
	l := newLab(t)
	_, qa := l.port("a", bigLimits())
	_, qb := l.port("b", bigLimits())
	_, qc := l.port("c", bigLimits())
	hello(qb, host2, qa, qc)
	f := small(host1, host2)
	l.advance(300)
	qa.inject(f)
	same(t, qc.taken())
	l.advance(301)
	qa.inject(f)
	same(t, qc.taken(), f)
}

// What a port had received before it went down goes on, but its sender may be behind
// another port by now: it is not looked for where it was.
func TestNothingIsLearntBehindAPortThatIsDown(t *testing.T) {
	l := newLab(t)
	_, qa := l.port("a", bigLimits())
	b, qb := l.port("b", bigLimits())
	_, qc := l.port("c", bigLimits())
	hello(qb, host2, qa, qc)
	b.SetUp(false)
	late, f := small(host2, broadcast), small(host1, host2)
	qb.inject(late)
	same(t, qa.taken(), late)
	same(t, qc.taken(), late)
	qa.inject(f)
	same(t, qc.taken(), f)
	wantEgress(t, b)

	hello(qc, host2, qa) // it has moved
	qb.inject(late)
	same(t, qc.taken(), late)
	qa.inject(f)
	same(t, qc.taken(), f)

	b.SetUp(true)
	hello(qb, host2, qa, qc) // and back
	qa.inject(f)
	same(t, qb.taken(), f)
	same(t, qc.taken())
}

// A batch that is under way as the port goes down leaves no address behind.
func TestDownWaitsForTheBatchUnderWay(t *testing.T) {
	l := duringABatch(t, func(b *Port) { b.SetUp(false) }, func(b *Port) bool { return !b.Up() })
	if n := l.fdb.Len(); n != 0 {
		t.Errorf("%d addresses behind a port that is down", n)
	}
}

// duringABatch changes a port in the midst of a batch from it. The batch goes on when
// the change is seen, and learns one more address.
func duringABatch(t *testing.T, change func(*Port), seen func(*Port) bool) *lab {
	t.Helper()
	l := newLab(t)
	_, qa := l.port("a", bigLimits())
	b, qb := l.port("b", bigLimits())
	writing, write := make(chan struct{}), make(chan struct{})
	var once sync.Once
	qa.refuse(func(*vnet.Frame) vnet.Refusal {
		once.Do(func() { close(writing); <-write })
		return vnet.Accepted
	})
	big := frame(tcp4(300000), host2, broadcast)
	var wg sync.WaitGroup
	wg.Go(func() { qb.inject(big, big, small(host3, broadcast)) }) // it writes after the second
	<-writing
	wg.Go(func() { change(b) })
	for !seen(b) {
		runtime.Gosched()
	}
	close(write)
	wg.Wait()
	return l
}

func TestVLANsLearnApart(t *testing.T) {
	l := newLab(t)
	_, qa := l.port("a", bigLimits())
	_, qb := l.port("b", bigLimits())
	_, qc := l.port("c", bigLimits())
	in := func(vid uint16, src, dst vnet.MAC) vnet.Frame {
		return frame(with(tcp4(5000), func(s *vnettest.Spec) { s.Tags = []uint16{0xa000 | vid} }),
			src, dst)
	}
	qb.inject(in(10, host2, broadcast))
	qc.inject(in(20, host2, broadcast))
	qa.taken()
	qb.taken()
	qc.taken()
	f10, f20, f30 := in(10, host1, host2), in(20, host1, host2), in(30, host1, host2)
	qa.inject(f10, f20, f30)
	same(t, qb.taken(), f10, f30)
	same(t, qc.taken(), f20, f30)
}

func TestFramesThatAreNotForwarded(t *testing.T) {
	l := newLab(t)
	a, qa := l.port("a", bigLimits())
	_, qb := l.port("b", bigLimits())
	hello(qa, host1, qb)
	runt := vnet.Frame{Head: make([]byte, vnet.EthLen-1)}
	badCsum := small(host1, host2)
	badCsum.Hdr = vnet.Header{Flags: vnet.NeedsCsum, CsumStart: uint16(badCsum.Len() - 1)}
	badGSO := frame(tcp4(5000), host1, host2)
	badGSO.Hdr.GSOSize = 0
	ufo := frame(udp4(5000), host1, host2)
	ufo.Hdr.GSO = vnet.GSOUDP
	for _, c := range []struct {
		frame vnet.Frame
		want  vnet.Drop
	}{
		{runt, vnet.DropRunt},
		{vnet.Frame{}, vnet.DropRunt},
		{vnet.Frame{Head: make([]byte, vnet.MaxFrame+1)}, vnet.DropTooLong},
		{badCsum, vnet.DropBadCsum},
		{badGSO, vnet.DropBadGSO},
		{ufo, vnet.DropUnsupportedGSO},
		{small(broadcast, host2), vnet.DropBadSource},
		{small(0x01005e000001, host2), vnet.DropBadSource},
		{small(0, host2), vnet.DropBadSource},
		{small(host1, 0x0180c2000000), vnet.DropReservedMulticast},
		{small(host1, 0x0180c200000f), vnet.DropReservedMulticast},
		{small(host2, host1), vnet.DropSamePort},
	} {
		before := a.Stats().IngressDrops
		qa.inject(c.frame)
		before[c.want]++
		if got := a.Stats().IngressDrops; got != before {
			t.Errorf("%v: drops are %v, want %v", c.want, byName(got), byName(before))
		}
	}
	same(t, qb.taken())

	f := small(host1, 0x0180c2000010) // the next address is an ordinary group
	qa.inject(f)
	same(t, qb.taken(), f)
}

// TestReservedGroups: what comes in at a port that forwards them is flooded, whatever the
// ports are that it leaves by; PAUSE never is, and other ports go on dropping all.
func TestReservedGroups(t *testing.T) {
	l := newLab(t)
	a, qa := l.portConfig(PortConfig{Name: "a", ForwardReserved: true}, bigLimits())
	b, qb := l.port("b", bigLimits())
	_, qc := l.port("c", bigLimits())
	for group := vnet.MAC(0x0180c2000000); group.Reserved(); group++ {
		f := small(host1, group)
		qb.inject(f)
		same(t, qa.taken())
		qa.inject(f)
		for _, q := range []*fakeQueue{qb, qc} {
			if group == vnet.PauseMAC {
				same(t, q.taken())
			} else {
				same(t, q.taken(), f)
			}
		}
	}
	wantIngress(t, a, vnet.DropReservedMulticast, 1)
	wantIngress(t, b, vnet.DropReservedMulticast, 16)
}

func TestBadSourcesAreNotLearnt(t *testing.T) {
	l := newLab(t)
	_, qa := l.port("a", bigLimits())
	l.port("b", bigLimits())
	qa.inject(small(broadcast, host2), small(0, host2), small(host3, 0x0180c2000000))
	if n := l.fdb.Len(); n != 0 {
		t.Errorf("%d addresses learnt", n)
	}
}

func TestWhatTheQueueDiscardedIsCounted(t *testing.T) {
	l := newLab(t)
	a, qa := l.port("a", bigLimits())
	_, qb := l.port("b", bigLimits())
	f := small(host1, host2)
	batch := injected{frames: []vnet.Frame{f}}
	batch.discarded[vnet.DropTruncated] = 3
	batch.discarded[vnet.DropBadHeader] = 2
	qa.post(batch)
	same(t, qb.taken(), f)
	wantIngress(t, a, vnet.DropTruncated, 3, vnet.DropBadHeader, 2)
	if n := a.Stats().RxFrames; n != 6 {
		t.Errorf("%d frames came in, want 6", n)
	}
}

func TestNoOtherPortUp(t *testing.T) {
	l := newLab(t)
	a, qa := l.port("a", bigLimits())
	qa.inject(small(host1, host2))
	b, qb := l.port("b", bigLimits())
	b.SetUp(false)
	qa.inject(small(host1, host2), small(host1, broadcast))
	wantIngress(t, a, vnet.DropNoEgress, 3)
	same(t, qb.taken())
}

// One egress takes everything, the other 64 KiB: each gets its own best form of
// the same frame, flooded or not.
func TestOneEgressWholeAnotherCut(t *testing.T) {
	for _, c := range []struct {
		name string
		spec vnettest.Spec
	}{
		{"IPv4", tcp4(400000)},
		{"IPv6", tcp6(400000)},
		{"tagged", with(tcp4(400000), func(s *vnettest.Spec) { s.Tags = []uint16{7, 8} })},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			_, qa := l.port("a", bigLimits())
			b, qb := l.port("b", bigLimits())
			p64, qc := l.port("c", withSize(65536))
			none, qd := l.port("d", vnet.Limits{MTU: 1500, MaxWrite: vnet.MaxFrame})
			f := frame(c.spec, host1, broadcast)
			qa.inject(f)

			same(t, qb.taken(), f)
			chunks := qc.taken()
			sameOnWire(t, chunks, f)
			segments := qd.taken()
			sameOnWire(t, segments, f)

			segsPerChunk := (65535 - headersOf(t, f)) / mss
			if want := (400000 + segsPerChunk*mss - 1) / (segsPerChunk * mss); len(chunks) != want {
				t.Errorf("%d chunks, want the fewest, %d", len(chunks), want)
			}
			if n := longest(chunks); n > 65535 {
				t.Errorf("a chunk of %d bytes", n)
			}
			for i := range segments {
				if h := segments[i].Hdr; h.GSO != vnet.GSONone || h.Flags&vnet.NeedsCsum != 0 {
					t.Fatalf("segment %d has the header %+v", i, h)
				}
			}
			if s := b.Stats(); s.Resegmented+s.Chunks+s.Segmented+s.Segments != 0 {
				t.Errorf("b: %+v", s)
			}
			if s := p64.Stats(); s.TxOffered != 1 || s.Resegmented != 1 ||
				s.Chunks != uint64(len(chunks)) || s.Segmented != 0 {
				t.Errorf("c: %+v", s)
			}
			if s := none.Stats(); s.TxOffered != 1 || s.Segmented != 1 || s.Segments != 278 ||
				s.Resegmented != 0 {
				t.Errorf("d: %+v", s)
			}
		})
	}
}

// headersOf is the length of f's headers in a chunk: without a jumbo option.
func headersOf(t *testing.T, f vnet.Frame) int {
	t.Helper()
	var l2 vnet.L2
	var p vnet.Packet
	if d := f.Check(&l2); d != vnet.Keep {
		t.Fatal(d)
	}
	if d := vnet.Parse(&f, &l2, &p); d != vnet.Keep {
		t.Fatal(d)
	}
	if p.Jumbo {
		return p.Payload - vnet.JumboHBHLen
	}
	return p.Payload
}

func TestUnicastIsCutForItsEgressAlone(t *testing.T) {
	l := newLab(t)
	_, qa := l.port("a", bigLimits())
	_, qb := l.port("b", bigLimits())
	_, qc := l.port("c", withSize(65536))
	hello(qb, host2, qa, qc)
	hello(qc, host3, qa, qb)
	toB, toC := frame(tcp4(400000), host1, host2), frame(tcp4(400000), host1, host3)
	qa.inject(toB, toC, toB)
	same(t, qb.taken(), toB, toB)
	chunks := qc.taken()
	sameOnWire(t, chunks, toC)
	if n := longest(chunks); n > 65535 || n < 60000 {
		t.Errorf("the longest chunk has %d bytes", n)
	}
}

func TestChecksumIsCompletedAndFormChanged(t *testing.T) {
	l := newLab(t)
	_, qa := l.port("a", bigLimits())
	b, qb := l.port("b", limited(func(l *vnet.Limits) { l.Csum = false }))
	c, qc := l.port("c", limited(func(l *vnet.Limits) { l.IPv6Form = vnet.FormPlain }))

	partial := frame(plain(tcp6(1000)), host1, broadcast)
	full := frame(with(plain(tcp6(1000)), func(s *vnettest.Spec) { s.Csum = vnettest.Full }),
		host1, broadcast)
	qa.inject(partial)
	full.Hdr.HdrLen = 0
	got := qb.taken()
	for i := range got {
		got[i].Hdr.HdrLen = 0 // a hint without meaning
	}
	same(t, got, full)
	same(t, qc.taken(), partial)
	if n := b.Stats().CsumCompleted; n != 1 {
		t.Errorf("%d checksums completed, want 1", n)
	}

	hbh := frame(tcp6(400000), host1, broadcast)
	want := frame(with(tcp6(400000), func(s *vnettest.Spec) { s.Form = vnet.FormPlain }),
		host1, broadcast)
	qa.inject(hbh)
	same(t, qc.taken(), want)
	if s := c.Stats(); s.Resegmented != 0 || s.TxOffered != 2 {
		t.Errorf("c: %+v", s)
	}
}

// Frames of every outcome, in batches above the egress's bounds of 64 frames, 512
// KiB and its header memory, come out in order.
func TestOrderIsKept(t *testing.T) {
	l := newLab(t)
	_, qa := l.port("a", bigLimits())
	_, qb := l.port("b", withSize(65536))
	_, qc := l.port("c", limited(func(l *vnet.Limits) { l.Csum = false }))
	rng := rand.New(rand.NewPCG(7, 7))
	var frames []vnet.Frame
	for i := range 200 {
		spec := []vnettest.Spec{tcp4(30000), tcp6(150000), plain(tcp4(1000)), udp4(20000),
			tcp4(200000)}[rng.IntN(5)]
		spec.ID, spec.Seq, spec.FlowLabel = uint16(i*500), uint32(i)<<20, uint32(i)
		frames = append(frames, frame(spec, host1, broadcast))
	}
	qa.inject(frames...)
	sameOnWire(t, qb.taken(), frames...)
	sameOnWire(t, qc.taken(), frames...)
}

func TestScatteredFramesAreCutAlike(t *testing.T) {
	l := newLab(t)
	_, qa := l.port("a", bigLimits())
	_, qb := l.port("b", withSize(65536))
	_, qc := l.port("c", limited(func(l *vnet.Limits) { l.Csum = false }))
	f := frame(tcp6(200000), host1, broadcast)
	qa.inject(vnettest.Scatter(f, vnet.MaxHeaders, 1, 4095, 7, 65537, 33333))
	sameOnWire(t, qb.taken(), f)
	sameOnWire(t, qc.taken(), f)
}

func TestPolicies(t *testing.T) {
	l := newLab(t)
	_, qa := l.port("a", bigLimits())
	b, qb := l.portConfig(PortConfig{Name: "b", Oversize: OversizeSegment}, withSize(65536))
	_, qc := l.portConfig(PortConfig{Name: "c", Oversize: OversizePass}, withSize(65536))
	f := frame(tcp4(400000), host1, broadcast)
	qa.inject(f)
	segments := qb.taken()
	sameOnWire(t, segments, f)
	if n := longest(segments); n != tcp4Headers+mss {
		t.Errorf("the longest segment has %d bytes", n)
	}
	if s := b.Stats(); s.Segmented != 1 || s.Segments != 278 {
		t.Errorf("b: %+v", s)
	}
	same(t, qc.taken(), f)
}

// A frame that is malformed behind its Ethernet header passes where it need not be
// looked into, and is its ingress's drop where it must be.
func TestMalformedIsTheIngressesDrop(t *testing.T) {
	l := newLab(t)
	a, qa := l.port("a", bigLimits())
	_, qb := l.port("b", bigLimits())
	c, qc := l.port("c", withSize(65536))
	f := frame(tcp4(400000), host1, broadcast)
	f.Head[vnet.EthLen] = 0x44 // IHL 4
	qa.inject(f)
	same(t, qb.taken(), f)
	same(t, qc.taken())
	wantIngress(t, a, vnet.DropBadGSO, 1)
	wantEgress(t, c)
	if n := c.Stats().TxOffered; n != 0 {
		t.Errorf("%d frames offered to c, want 0", n)
	}
}

func TestLimitsCountFromTheNextBatchOn(t *testing.T) {
	l := newLab(t)
	_, qa := l.port("a", bigLimits())
	b, qb := l.port("b", bigLimits())
	f := frame(tcp4(400000), host1, host2)
	qa.inject(f)
	same(t, qb.taken(), f)
	b.SetLimits(withSize(131072))
	qa.inject(f)
	got := qb.taken()
	sameOnWire(t, got, f)
	if n := longest(got); n > 131071 || len(got) != 4 {
		t.Errorf("%d chunks, the longest of %d bytes", len(got), n)
	}
	b.SetLimits(bigLimits())
	qa.inject(f)
	same(t, qb.taken(), f)
}

func TestPortDownIsSentNothing(t *testing.T) {
	l := newLab(t)
	a, qa := l.port("a", bigLimits())
	b, qb := l.port("b", bigLimits())
	_, qc := l.port("c", bigLimits())
	hello(qb, host2, qa, qc)
	b.SetUp(false)
	if b.Up() {
		t.Error("b is up")
	}
	f := small(host1, host2)
	qa.inject(f) // its address was forgotten
	same(t, qb.taken())
	same(t, qc.taken(), f)

	l.fdb.learn(0, host2, b.id, 0) // as a batch that is under way just then finds it
	qa.inject(f, frame(tcp4(400000), host1, host2))
	same(t, qb.taken())
	same(t, qc.taken())
	wantEgress(t, b, vnet.DropPortDown, 2)

	b.SetUp(true)
	qa.inject(f)
	same(t, qb.taken(), f)
	wantIngress(t, a)
}

func TestDetachedPortKeepsItsIdentityAndCounters(t *testing.T) {
	l := newLab(t)
	_, qa := l.port("a", bigLimits())
	b, qb := l.port("b", bigLimits())
	f := small(host1, host2)
	hello(qb, host2, qa)
	qa.inject(f)
	same(t, qb.taken(), f)
	l.detach(b, qb)
	b.Detach() // does nothing
	if b.Up() {
		t.Error("a port without queues is up")
	}
	qa.inject(f)
	qb2 := l.attach(b, withSize(65536))
	big := frame(tcp4(400000), host1, host2)
	qa.inject(big)
	sameOnWire(t, qb2.taken(), big)
	if s := b.Stats(); s.RxFrames != 1 || s.TxOffered != 2 || s.Resegmented != 1 {
		t.Errorf("b: %+v", s)
	}
	if err := b.Attach([]Queue{newFakeQueue(t)}, bigLimits(), true); err == nil {
		t.Error("attached twice")
	}
	if err := b.Attach(nil, bigLimits(), true); err == nil {
		t.Error("attached nothing")
	}
}

func TestRemovedPortsIDIsUsedAgain(t *testing.T) {
	l := newLab(t)
	_, qa := l.port("a", bigLimits())
	b, qb := l.port("b", bigLimits())
	_, qc := l.port("c", bigLimits())
	hello(qb, host2, qa, qc)
	b.Remove()
	qb.closed.Store(true)
	b.Remove() // does nothing
	if b.Up() || b.Limits() != (vnet.Limits{}) {
		t.Error("a removed port is up, or takes something")
	}
	if err := b.Attach([]Queue{newFakeQueue(t)}, bigLimits(), true); err == nil {
		t.Error("a removed port was attached")
	}
	d, qd := l.port("d", withSize(65536))
	if d.id != b.id {
		t.Errorf("the new port has ID %d, want %d", d.id, b.id)
	}
	f := frame(tcp4(400000), host1, host2) // host2 was behind the old port
	qa.inject(f)
	same(t, qc.taken(), f)
	sameOnWire(t, qd.taken(), f)
	if b.Up() || b.Limits() != (vnet.Limits{}) {
		t.Error("the removed port has the new one's state")
	}
	if s := d.Stats(); s.RxFrames != 0 || s.TxOffered != 1 {
		t.Errorf("the new port has the old one's counters: %+v", s)
	}
	if names := portNames(l.Ports()); !slices.Equal(names, []string{"a", "d", "c"}) {
		t.Errorf("ports %v", names)
	}
	if _, err := l.AddPort(PortConfig{Name: "c"}); err == nil {
		t.Error("two ports of one name")
	}
}

func portNames(ports []*Port) (names []string) {
	for _, p := range ports {
		names = append(names, p.Name())
	}
	return names
}

// What a port's MTU is says nothing of the frames that come from it: a user may have set
// it below that of the sender behind it.
func TestSegmentsAboveTheMTUOfTheirIngress(t *testing.T) {
	const headers, timestamps = vnet.IPv4Len + vnet.TCPLen, 12
	l := newLab(t)
	_, qa := l.port("a", limited(func(l *vnet.Limits) { l.MTU = 1400 }))
	b, qb := l.port("b", limited(func(l *vnet.Limits) { l.MTU = 1450 }))
	spec := func(segment int) vnettest.Spec {
		return with(tcp4(60000), func(s *vnettest.Spec) {
			s.GSOSize, s.TCPOptions = segment-headers-timestamps, vnettest.Timestamps
		})
	}
	fits := frame(spec(1450), host1, host2)
	qa.inject(fits)
	same(t, qb.taken(), fits)
	for _, segment := range []int{1451, 1462, 1474, 1475} {
		qa.inject(frame(spec(segment), host1, host2))
	}
	same(t, qb.taken())
	wantEgress(t, b, vnet.DropOverMTU, 4)
}

func TestReadErrors(t *testing.T) {
	l := newLab(t)
	a, qa := l.port("a", bigLimits())
	_, qb := l.port("b", bigLimits())
	f := small(host1, host2)

	down := fmt.Errorf("read tap0: %w", vnet.ErrDown)
	qa.post(injected{err: down})
	qa.post(injected{err: down, frames: []vnet.Frame{f}})
	same(t, qb.taken(), f)
	if e, want := l.event(), (Event{Port: a, Kind: EventDown, Queue: qa}); e != want {
		t.Errorf("event %+v", e)
	}
	l.noEvent()

	qa.inject(f) // it has come back
	same(t, qb.taken(), f)

	gone := fmt.Errorf("read tap0: %w", vnet.ErrGone)
	qa.post(injected{err: gone, frames: []vnet.Frame{f}}) // the worker has ended
	l.detach(a, qa)
	same(t, qb.taken(), f)
	toldGone := Event{Port: a, Kind: EventGone, Queue: qa, Err: gone}
	if e := l.event(); e != toldGone {
		t.Errorf("event %+v", e)
	}
	l.noEvent()
	qa = l.attach(a, bigLimits())
	qa.inject(f)
	same(t, qb.taken(), f)
	qa.post(injected{err: gone})
	toldGone.Queue = qa // it is news again, and of another queue
	if e := l.event(); e != toldGone {
		t.Errorf("event %+v", e)
	}
}

// A port may have several queues: each has its worker, and they count together.
func TestSeveralQueues(t *testing.T) {
	l := newLab(t)
	a, err := l.AddPort(PortConfig{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	l.ports = append(l.ports, a)
	q0, q1 := newFakeQueue(t), newFakeQueue(t)
	if err := a.Attach([]Queue{q0, q1}, bigLimits(), true); err != nil {
		t.Fatal(err)
	}
	b, qb := l.port("b", bigLimits())
	big, f := frame(tcp4(60000), host1, host2), small(host1, host2)
	q0.inject(big)
	q1.inject(f)
	same(t, qb.taken(), big, f)
	if s := a.Stats(); s.RxFrames != 2 || s.RxMaxFrame != big.Len() {
		t.Errorf("a: %+v", s)
	}
	if s := b.Stats(); s.TxFrames != 2 || s.TxMaxFrame != big.Len() {
		t.Errorf("b: %+v", s)
	}
	back := small(host2, host1)
	qb.inject(back)
	same(t, append(q0.taken(), q1.taken()...), back) // once, through either
	a.Detach()
	q0.closed.Store(true)
	q1.closed.Store(true)
	qb.inject(back)
}

// A batch of an egress is written when it is full and at the end, not frame by
// frame.
func TestFramesAreWrittenInBatches(t *testing.T) {
	_, _, _, qa, qb := twoPorts(t, bigLimits())
	writes := func(frames []vnet.Frame) int {
		qb.mu.Lock()
		before := qb.writes
		qb.mu.Unlock()
		qa.inject(frames...)
		qb.mu.Lock()
		defer qb.mu.Unlock()
		return qb.writes - before
	}
	if n := writes(repeat(batchFrames, small(host1, host2))); n != 1 {
		t.Errorf("%d writes of 64 small frames, want 1", n)
	}
	// 9 frames of 60054 bytes are the first to reach 512 KiB.
	if n := writes(repeat(batchFrames, frame(tcp4(60000), host1, host2))); n != 8 {
		t.Errorf("%d writes of 64 frames of 60054 bytes, want 8", n)
	}
}

// Between a port's removal and the end of its forwarding entries, what is for them
// is flooded.
func TestAddressBehindNoPortIsFlooded(t *testing.T) {
	l := newLab(t)
	a, qa := l.port("a", bigLimits())
	_, qb := l.port("b", bigLimits())
	p, q := l.port("c", bigLimits())
	p.Remove()
	q.closed.Store(true)
	l.fdb.learn(0, host2, p.id, 0)
	l.fdb.learn(0, host3, p.id+100, 0)
	f, g := small(host1, host2), small(host1, host3)
	qa.inject(f, g)
	same(t, qb.taken(), f, g)
	wantIngress(t, a)
}

func TestWorkerSlotsAreUsedAgain(t *testing.T) {
	l := newLab(t)
	l.port("a", bigLimits())
	p, q := l.port("b", bigLimits())
	for range 5 {
		l.detach(p, q)
		q = l.attach(p, bigLimits())
	}
	if n := len(l.slots); n != 2 {
		t.Errorf("%d slots for 2 workers", n)
	}
}

// traffic lets q carry batches of frames until stop is closed, or until gone is,
// which says that nobody reads q any more.
func traffic(q *fakeQueue, stop, gone <-chan struct{}, frames ...vnet.Frame) (sent int) {
	for {
		batch := injected{frames: frames, done: make(chan struct{})}
		select {
		case <-stop:
			return sent
		case <-gone:
			return sent
		case q.in <- batch:
			sent += len(frames)
		}
		select {
		case <-batch.done:
		case <-gone:
			return sent
		}
		// A sender and a worker on its own thread wake each other, and would keep the
		// processor from goroutines that wait for it, for seconds.
		runtime.Gosched()
	}
}

// Two ports carry traffic both ways while a third comes and goes, in every way
// that there is. Nothing of theirs is lost, and nobody touches a queue that was
// taken away.
func TestPortsComeAndGoUnderTraffic(t *testing.T) {
	l := newLab(t)
	_, qa := l.port("a", bigLimits())
	_, qb := l.port("b", withSize(65536))
	hello(qa, host1, qb)
	hello(qb, host2, qa)

	const rounds = 20
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var sentA, sentB int
	toB, toA := frame(tcp4(70000), host1, host2), frame(tcp6(20000), host2, host1)
	wg.Go(func() { sentA = traffic(qa, stop, nil, toB, small(host1, broadcast), toB) })
	wg.Go(func() { sentB = traffic(qb, stop, nil, toA, small(host2, host3), toA) })
	for i := range rounds {
		name := fmt.Sprintf("c%d", i%2)
		p, q := l.port(name, withSize(65536<<(i%4)))
		q.inject(small(host3, broadcast))
		p.SetUp(i%3 != 0)
		p.SetLimits(withSize(1500 << (i % 9)))
		if i%2 == 0 {
			l.detach(p, q)
			q = l.attach(p, bigLimits())
			q.inject(small(host3, host1))
		}
		p.Remove()
		q.closed.Store(true)
	}
	close(stop)
	wg.Wait()

	bulkA, bulkB := 0, 0 // wire packets between the two
	for _, f := range qb.taken() {
		if isFrom(f, host1) && f.Hdr.GSO != vnet.GSONone {
			bulkA += len(wire(t, f))
		}
	}
	for _, f := range qa.taken() {
		if isFrom(f, host2) && f.Hdr.GSO != vnet.GSONone {
			bulkB++
		}
	}
	if want := sentA / 3 * 2 * 49; bulkA != want {
		t.Errorf("%d packets from a to b, want %d", bulkA, want)
	}
	if want := sentB / 3 * 2; bulkB != want {
		t.Errorf("%d super-packets from b to a, want %d", bulkB, want)
	}
}

func isFrom(f vnet.Frame, src vnet.MAC) bool {
	var l2 vnet.L2
	return f.Check(&l2) == vnet.Keep && l2.Src == src
}

// When several goroutines change the switch, each Detach still waits for the
// workers that another is stopping.
func TestConcurrentDetaches(t *testing.T) {
	l := newLab(t)
	_, qa := l.port("a", bigLimits())
	qa.sink.Store(true)
	hello(qa, host1)
	stop := make(chan struct{})
	var bystander sync.WaitGroup
	bystander.Go(func() { traffic(qa, stop, nil, frame(tcp4(60000), host1, broadcast)) })
	for range 50 {
		var changes, feeders sync.WaitGroup
		for i := range 3 {
			p, q := l.port(fmt.Sprintf("p%d", i), withSize(20000))
			q.sink.Store(true)
			gone := make(chan struct{})
			end := sync.OnceFunc(func() { close(gone) })
			f := frame(tcp4(60000), host2+vnet.MAC(i), broadcast)
			feeders.Go(func() { traffic(q, nil, gone, f) })
			for _, change := range []func(){p.Detach, p.Remove} {
				changes.Go(func() {
					change()
					q.closed.Store(true)
					end()
				})
			}
		}
		changes.Wait()
		feeders.Wait()
	}
	close(stop)
	bystander.Wait()
}

// At the end no port goes before another: what was read is written.
func TestHaltLosesNothing(t *testing.T) {
	for range 20 {
		l := newLab(t)
		a, qa := l.port("a", bigLimits())
		b, qb := l.port("b", bigLimits())
		hello(qa, host1, qb)
		hello(qb, host2, qa)
		gone := make(chan struct{})
		var senders sync.WaitGroup
		senders.Go(func() { traffic(qa, nil, gone, small(host1, host2), small(host1, broadcast)) })
		senders.Go(func() { traffic(qb, nil, gone, small(host2, host1), small(host2, broadcast)) })
		for a.Stats().TxFrames < 5 || b.Stats().TxFrames < 5 {
			runtime.Gosched()
		}
		l.Halt()
		read := a.Stats().RxFrames
		close(gone)
		senders.Wait()
		for _, p := range []*Port{a, b} {
			wantIngress(t, p)
			wantEgress(t, p)
			if !p.Up() {
				t.Errorf("port %s is down", p.Name())
			}
		}
		l.conserved()
		if n := a.Stats().RxFrames; n != read {
			t.Errorf("%d frames were read afterwards", n-read)
		}
	}
}

// Random headers in front of random and half-right bytes: no worker stops, and a
// good frame still passes.
func TestHostileFramesStopNobody(t *testing.T) {
	l := newLab(t)
	_, qa := l.port("a", bigLimits())
	_, qb := l.port("b", withSize(65536))
	_, qc := l.port("c", limited(func(l *vnet.Limits) { l.Csum, l.MTU = false, 1400 }))
	_, qd := l.port("d", limited(func(l *vnet.Limits) { l.IPv6Form = vnet.FormPlain }))
	_, qe := l.port("e", bigLimits())
	rng := rand.New(rand.NewPCG(3, 14))
	verdicts := []vnet.Refusal{vnet.Accepted, vnet.Accepted, vnet.NoMemory, vnet.TooBig,
		vnet.BadGSO, vnet.Full, vnet.Congested}
	refusals := rand.New(rand.NewPCG(15, 9)) // guarded by qe.mu
	qe.refuse(func(*vnet.Frame) vnet.Refusal { return verdicts[refusals.IntN(len(verdicts))] })

	bases := []vnet.Frame{
		frame(tcp4(3000), host1, broadcast), frame(tcp6(3000), host1, broadcast),
		frame(udp4(3000), host1, broadcast), frame(plain(udp4(1000)), host1, broadcast),
		frame(tcp6(70000), host1, broadcast), frame(tcp4(200000), host1, host2),
		frame(with(tcp6(9000), func(s *vnettest.Spec) {
			s.Ext = []vnettest.Ext{vnettest.HopByHop, vnettest.Routing}
		}), host1, broadcast),
	}
	rounds := 300
	if testing.Short() {
		rounds = 60
	}
	for range rounds {
		var frames []vnet.Frame
		for range batchFrames {
			f := bases[rng.IntN(len(bases))].Clone()
			switch rng.IntN(4) {
			case 0: // bytes in the headers
				for range 1 + rng.IntN(4) {
					f.Head[12+rng.IntN(80)] = byte(rng.Uint32())
				}
			case 1: // fields of the virtio-net header
				f.Hdr.CsumStart = uint16(rng.IntN(200))
				f.Hdr.GSOSize = uint16(rng.Uint32() >> rng.IntN(16))
			case 2: // all of it
				var raw [vnet.HeaderLen]byte
				for i := range raw {
					raw[i] = byte(rng.Uint32())
				}
				f.Hdr.Decode(raw[:])
			case 3: // the end
				f.Head = f.Head[:rng.IntN(min(len(f.Head), 200))]
			}
			frames = append(frames, f)
		}
		qa.inject(frames...)
		for _, q := range []*fakeQueue{qb, qc, qd, qe} {
			q.taken()
		}
		l.conserved()
	}
	good := frame(tcp4(60000), host1, broadcast)
	qa.inject(good)
	same(t, qb.taken(), good)
}

// TestTunnelsAreCountedByKind, whether the EtherType or only the packet tells of them.
func TestTunnelsAreCountedByKind(t *testing.T) {
	l := newLab(t)
	a, qa := l.port("a", bigLimits())
	_, qb := l.port("b", bigLimits())
	hello(qa, host1, qb)
	var want [vnet.NumTunnels]uint64
	for _, e := range vnettest.Encaps {
		for _, v6 := range []bool{false, true} {
			qa.inject(e.Wrap(tcp4(5000), v6, false))
			want[e.Kind]++
		}
	}
	ufo := frame(udp4(5000), host1, host2)
	ufo.Hdr.GSO = vnet.GSOUDP
	qa.inject(ufo)
	want[vnet.NoTunnel]++
	if got := a.Stats().Tunnels; got != want {
		t.Errorf("super-packets by tunnel: %v, want %v", got, want)
	}
	if got, all := a.Stats().IngressDrops[vnet.DropUnsupportedGSO], uint64(2*len(vnettest.Encaps)+1); got != all {
		t.Errorf("%d super-packets are unsupported, want %d", got, all)
	}
	same(t, qb.taken())
}
