package dataplane

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"sluice/offload"
	"sluice/vnet"
	"sluice/vnet/vnettest"
)

func vlans(vids ...uint16) (s VLANSet) {
	for _, v := range vids {
		s.Add(v)
	}
	return s
}

// vlanPorts are the ports of testdata/openvswitch.txt.
var vlanPorts = []struct {
	name string
	vlan VLAN
}{
	{"none", VLAN{}},
	{"none2", VLAN{}},
	{"access10", VLAN{Mode: VLANAccess, Tag: 10}},
	{"access10b", VLAN{Mode: VLANAccess, Tag: 10, Trunks: vlans(7)}}, // which are not used
	{"access20", VLAN{Mode: VLANAccess, Tag: 20}},
	{"access0", VLAN{Mode: VLANAccess}},
	{"trunk10,20", VLAN{Trunks: vlans(10, 20), Tag: 7}}, // which is not used
	{"trunk0,10", VLAN{Trunks: vlans(0, 10)}},
	{"untagged10", VLAN{Mode: VLANNativeUntagged, Tag: 10}},
	{"tagged10", VLAN{Mode: VLANNativeTagged, Tag: 10}},
	{"untagged10,20", VLAN{Mode: VLANNativeUntagged, Tag: 10, Trunks: vlans(20)}},
	{"tagged10,20", VLAN{Mode: VLANNativeTagged, Tag: 10, Trunks: vlans(0, 20)}},
	{"untagged0", VLAN{Mode: VLANNativeUntagged}},
	{"tagged0,10", VLAN{Mode: VLANNativeTagged, Trunks: vlans(10)}},
}

// oracle is a line of testdata/openvswitch.txt.
type oracle struct {
	in   string
	tags []byte            // of the frame that comes in
	out  map[string][]byte // the tags that it goes out with, by port
}

func oracles(t *testing.T) (all []oracle) {
	t.Helper()
	text, err := os.ReadFile("testdata/openvswitch.txt")
	if err != nil {
		t.Fatal(err)
	}
	unhex := func(s string) []byte {
		b, err := hex.DecodeString(strings.TrimPrefix(s, "-"))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		how, outs, _ := strings.Cut(line, ":")
		tags, in, _ := strings.Cut(how, " ")
		o := oracle{in: in, tags: unhex(tags), out: map[string][]byte{}}
		for _, out := range strings.Fields(outs) {
			port, tags, _ := strings.Cut(out, "=")
			o.out[port] = unhex(tags)
		}
		all = append(all, o)
	}
	if len(all) < 100 {
		t.Fatalf("only %d lines", len(all))
	}
	return all
}

// withTags is the untagged frame f with tags, as the kernel would hand it over: what the
// header says of offsets is moved.
func withTags(f vnet.Frame, tags []byte) vnet.Frame {
	b := f.AppendTo(nil)
	out := vnet.Frame{Hdr: f.Hdr}
	out.Head = append(append(append(out.Head, b[:12]...), tags...), b[12:]...)
	if f.Hdr.Flags&vnet.NeedsCsum != 0 {
		out.Hdr.CsumStart += uint16(len(tags))
	}
	if f.Hdr.HdrLen != 0 {
		out.Hdr.HdrLen += uint16(len(tags))
	}
	return out
}

// TestVLANsAsOpenvSwitch sends every frame of the oracle through every port of it, small
// and great, to egresses that take all and to those that do not.
func TestVLANsAsOpenvSwitch(t *testing.T) {
	big := 500000
	if raceEnabled { // its time goes by the byte
		big = 130000
	}
	frames := []struct {
		name string
		spec vnettest.Spec
	}{
		{"finished", with(plain(tcp4(10)), func(s *vnettest.Spec) { s.Csum = vnettest.Full })},
		{"unfinished", plain(tcp4(1400))},
		{"UDP over IPv6", with(plain(udp4(1400)), func(s *vnettest.Spec) { s.V6 = true })},
		{"super-packet", tcp4(60000)},
		{"BIG TCP", tcp4(big)},
		{"BIG TCP over IPv6", with(tcp6(big), func(s *vnettest.Spec) {
			s.TCPOptions, s.GSOSize = vnettest.Timestamps, 1428
		})},
	}
	for _, egress := range []struct {
		name   string
		limits vnet.Limits
	}{
		{"whole", bigLimits()},
		{"64 KiB", withSize(65536)},
		{"no offload", limited(func(l *vnet.Limits) { l.Csum = false })},
	} {
		for _, f := range frames {
			t.Run(egress.name+"/"+f.name, func(t *testing.T) { testOracle(t, egress.limits, f.spec) })
		}
	}
}

func testOracle(t *testing.T, limits vnet.Limits, spec vnettest.Spec) {
	l := newLab(t)
	ports, queues := map[string]*Port{}, map[string]*fakeQueue{}
	for _, p := range vlanPorts {
		ports[p.name], queues[p.name] = l.portConfig(PortConfig{Name: p.name, VLAN: p.vlan}, limits)
	}
	untagged := frame(spec, host1, broadcast)
	wants := map[string][]vnet.Frame{} // by tags
	for _, o := range oracles(t) {
		l.Flush(nil, -1)
		what := fmt.Sprintf("tags %x in through %s", o.tags, o.in)
		if spec.GSOSize > 0 && len(o.tags) > 2*vnet.VLANLen {
			continue // the headers of a super-packet begin behind two tags at the most
		}
		in := withTags(untagged, o.tags)
		// As a queue delivers it: the headers in one piece, the payload elsewhere.
		in = vnettest.Scatter(in, min(in.Len(), vnet.MaxHeaders))
		was := in.Clone()
		before := ports[o.in].Stats()
		queues[o.in].inject(in)
		if !bytes.Equal(in.AppendTo(nil), was.Head) || in.Hdr != was.Hdr {
			t.Errorf("%s: the received frame was written to", what)
		}
		for _, p := range vlanPorts {
			got := queues[p.name].taken()
			tags, goes := o.out[p.name]
			switch {
			case goes != (len(got) > 0):
				t.Errorf("%s: out through %s: %d frames, want some: %v", what, p.name, len(got), goes)
			case goes:
				want, known := wants[string(tags)]
				if !known {
					want = leaving(t, limits, withTags(untagged, tags))
					wants[string(tags)] = want
				}
				if !same(t, got, want...) {
					t.Errorf("%s, out through %s", what, p.name)
				}
			}
		}
		drops := ports[o.in].Stats().IngressDrops
		for d := range drops {
			drops[d] -= before.IngressDrops[d]
		}
		if len(o.out) == 0 {
			wantDrops(t, what, drops, vnet.DropVLAN, 1)
		} else {
			wantDrops(t, what, drops)
		}
	}
}

// leaving is what happens to f at an egress with these limits.
func leaving(t *testing.T, limits vnet.Limits, f vnet.Frame) []vnet.Frame {
	t.Helper()
	var l2 vnet.L2
	if d := f.Check(&l2); d != vnet.Keep {
		t.Fatalf("the wanted frame is no good: %v", d)
	}
	var p vnet.Packet
	out := vnet.NewBatch(1000, 1<<20, 10000)
	switch gso := f.Hdr.GSO; {
	case gso == vnet.GSONone && (limits.Csum || f.Hdr.Flags&vnet.NeedsCsum == 0),
		limits.Takes(gso) && f.Len() <= limits.MaxSuper(&l2, gso):
		*out.Next() = f
	case gso == vnet.GSONone:
		offload.Complete(out, &f, &l2)
	default:
		vnet.Parse(&f, &l2, &p)
		var seg offload.Segmenter
		if limits.Takes(gso) {
			seg.Resegment(&f, &p, limits.MaxSuper(&l2, gso), limits.GSOMaxSegs, limits.IPv6Form)
		} else {
			seg.Segment(&f, &p)
		}
		if seg.Fill(out) {
			t.Fatal("no room for the pieces")
		}
	}
	return out.Frames
}

// Known destinations get the same frames as unknown ones, and nobody else gets them.
func TestVLANUnicast(t *testing.T) {
	for _, o := range oracles(t) {
		if len(o.tags) > 2*vnet.VLANLen || o.in == "access10b" {
			continue
		}
		l := newLab(t)
		queues := map[string]*fakeQueue{}
		for _, p := range vlanPorts {
			_, queues[p.name] = l.portConfig(PortConfig{Name: p.name, VLAN: p.vlan}, withSize(65536))
		}
		tags, goes := o.out["access10b"]
		if goes {
			queues["access10b"].inject(small(host2, broadcast))
			for _, q := range queues {
				q.taken()
			}
		}
		untagged := frame(tcp4(70000), host1, host2)
		queues[o.in].inject(withTags(untagged, o.tags))
		for name, q := range queues {
			got := q.taken()
			switch {
			case goes && name == "access10b":
				if !same(t, got, leaving(t, withSize(65536), withTags(untagged, tags))...) {
					t.Errorf("tags %x in through %s", o.tags, o.in)
				}
			case goes && len(got) > 0:
				t.Errorf("tags %x in through %s: flooded to %s", o.tags, o.in, name)
			}
		}
	}
}

// The size of what leaves counts: a tag makes a frame too long, or is what made it so.
func TestTagsCountInTheLimits(t *testing.T) {
	longestUntagged := tcp4(65535 - tcp4Headers)
	tag := []byte{0x81, 0, 0, 10}
	for _, c := range []struct {
		name     string
		in, out  VLAN
		frame    vnet.Frame
		oversize Oversize
		limits   vnet.Limits
		chunks   int // 1: whole
	}{
		{"pushed, just fits", VLAN{Mode: VLANAccess, Tag: 10}, VLAN{},
			frame(tcp4(65531-tcp4Headers), host1, broadcast), 0, withSize(65536), 1},
		{"pushed, too long by one", VLAN{Mode: VLANAccess, Tag: 10}, VLAN{},
			frame(tcp4(65532-tcp4Headers), host1, broadcast), 0, withSize(65536), 2},
		{"popped, just fits", VLAN{}, VLAN{Mode: VLANAccess, Tag: 10},
			withTags(frame(longestUntagged, host1, broadcast), tag), 0, withSize(65536), 1},
		{"popped, too long by one", VLAN{}, VLAN{Mode: VLANAccess, Tag: 10},
			withTags(frame(tcp4(65536-tcp4Headers), host1, broadcast), tag), 0, withSize(65536), 2},
		{"pushed, longer than any frame may be", VLAN{Mode: VLANAccess, Tag: 10}, VLAN{},
			frame(tcp4(vnet.MaxFrame-tcp4Headers), host1, broadcast), 0, bigLimits(), 2},
		{"pushed, above the greatest write", VLAN{Mode: VLANAccess, Tag: 10}, VLAN{},
			frame(tcp4(99997-tcp4Headers), host1, broadcast), OversizePass,
			limited(func(l *vnet.Limits) { l.MaxWrite, l.GSOIPv4MaxSize = 100000, 65536 }), 2},
		{"pushed, IPv6 measured as IPv4", VLAN{Mode: VLANAccess, Tag: 10}, VLAN{},
			frame(tcp6(100000), host1, broadcast), 0,
			limited(func(l *vnet.Limits) { l.GSOIPv4MaxSize, l.TaggedIPv6AsIPv4 = 65536, true }), 2},
		{"popped, IPv6 no longer measured as IPv4", VLAN{}, VLAN{Mode: VLANAccess, Tag: 10},
			withTags(frame(tcp6(100000), host1, broadcast), tag), 0,
			limited(func(l *vnet.Limits) { l.GSOIPv4MaxSize, l.TaggedIPv6AsIPv4 = 65536, true }), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			_, qa := l.portConfig(PortConfig{Name: "a", VLAN: c.in}, bigLimits())
			_, qb := l.portConfig(PortConfig{Name: "b", VLAN: c.out, Oversize: c.oversize}, c.limits)
			qa.inject(c.frame)
			got := qb.taken()
			if len(got) != c.chunks {
				t.Errorf("%d frames, want %d", len(got), c.chunks)
			}
			want := c.frame.Clone()
			if c.in.Mode == VLANAccess {
				want = withTags(c.frame, tag)
			} else {
				want.Head = append(want.Head[:12:12], want.Head[16:]...)
				want.Hdr.CsumStart -= vnet.VLANLen
				want.Hdr.HdrLen -= vnet.VLANLen
			}
			if want.Len() <= vnet.MaxFrame { // otherwise there is nothing to compare with
				sameOnWire(t, got, want)
			}
		})
	}
}

// TestPushedAboveTheMTU: a tag is no part of the MTU.
func TestPushedAtTheMTU(t *testing.T) {
	l := newLab(t)
	_, qa := l.portConfig(PortConfig{Name: "a", VLAN: VLAN{Mode: VLANAccess, Tag: 10}}, bigLimits())
	b, qb := l.port("b", bigLimits())
	fits, long := frame(plain(tcp4(1460)), host1, broadcast), frame(plain(tcp4(1461)), host1, broadcast)
	qa.inject(fits, long)
	same(t, qb.taken(), withTags(fits, []byte{0x81, 0, 0, 10}))
	wantEgress(t, b, vnet.DropOverMTU, 1)
}

// DEI stays where a tag does.
func TestDEI(t *testing.T) {
	l := newLab(t)
	_, qa := l.port("a", bigLimits())
	_, qb := l.port("b", bigLimits())
	_, qn := l.portConfig(PortConfig{Name: "n", VLAN: VLAN{Mode: VLANNativeTagged, Tag: 10}}, bigLimits())
	f := frame(tcp4(5000), host1, broadcast)
	tagged, priority := withTags(f, []byte{0x81, 0, 0xb0, 10}), withTags(f, []byte{0x81, 0, 0xb0, 0})
	qa.inject(tagged, priority, withTags(f, []byte{0x81, 0, 0x10, 0}))
	same(t, qb.taken(), tagged, priority, f)
	same(t, qn.taken(), tagged)
	qn.inject(priority)
	same(t, qb.taken(), withTags(f, []byte{0x81, 0, 0xa0, 10})) // a tag that changes has none
}

// What is in front of the packet is no place for a checksum to start.
func TestRetagHostileOffsets(t *testing.T) {
	tag := []byte{0x81, 0, 0, 10}
	edit := func(f vnet.Frame, start, hdrLen int) vnet.Frame {
		f.Hdr.CsumStart, f.Hdr.HdrLen = uint16(start), uint16(hdrLen)
		return f
	}
	long := frame(plain(tcp4(66000)), host1, broadcast)
	f := frame(plain(tcp4(100)), host1, broadcast)
	lo := limited(func(l *vnet.Limits) { l.MTU = 1 << 17 })
	for _, c := range []struct {
		name    string
		in, out VLAN
		frame   vnet.Frame
		want    vnet.Header
		drop    vnet.Drop
	}{
		{name: "pop, the sum starts in the tag", out: VLAN{Mode: VLANAccess, Tag: 10},
			frame: edit(withTags(f, tag), 17, 58), drop: vnet.DropBadCsum},
		{name: "pop, it starts behind the tag", out: VLAN{Mode: VLANAccess, Tag: 10},
			frame: edit(withTags(f, tag), 18, 18), want: edit(f, 14, 14).Hdr},
		{name: "pop, hdr_len ends in the tag", out: VLAN{Mode: VLANAccess, Tag: 10},
			frame: edit(withTags(f, tag), 38, 17), want: edit(f, 34, 17).Hdr},
		{name: "push, hdr_len is not said", in: VLAN{Mode: VLANAccess, Tag: 10},
			frame: edit(f, 34, 0), want: edit(f, 38, 0).Hdr},
		{name: "push, hdr_len is the most", in: VLAN{Mode: VLANAccess, Tag: 10},
			frame: edit(f, 34, 65535), want: edit(f, 38, 65535).Hdr},
		{name: "push, the sum starts where none can", in: VLAN{Mode: VLANAccess, Tag: 10},
			frame: edit(long, 65532, 0), drop: vnet.DropBadCsum},
		{name: "push, it starts at the last place", in: VLAN{Mode: VLANAccess, Tag: 10},
			frame: edit(long, 65531, 0), want: edit(long, 65535, 0).Hdr},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			a, qa := l.portConfig(PortConfig{Name: "a", VLAN: c.in}, lo)
			_, qb := l.portConfig(PortConfig{Name: "b", VLAN: c.out}, lo)
			qa.inject(c.frame)
			got := qb.taken()
			if c.drop != vnet.Keep {
				wantIngress(t, a, c.drop, 1)
				same(t, got)
				return
			}
			if len(got) != 1 || got[0].Hdr != c.want {
				t.Fatalf("%d frames, %+v, want %+v", len(got), got, c.want)
			}
			tags := tag
			if c.in.Mode != VLANAccess {
				tags = nil
			}
			src := f
			if c.frame.Len() > 60000 {
				src = long
			}
			if !bytes.Equal(got[0].AppendTo(nil), withTags(src, tags).Head) {
				t.Error("its bytes differ")
			}
		})
	}
}

// A frame that ends within its tag is in no VLAN.
func TestCutOffTag(t *testing.T) {
	l := newLab(t)
	a, qa := l.port("a", bigLimits())
	_, qb := l.port("b", bigLimits())
	cut := func(n int) vnet.Frame {
		f := withTags(small(host1, broadcast), []byte{0x88, 0xa8, 0, 0})
		return vnet.Frame{Head: f.Head[:n]}
	}
	qa.inject(cut(14), cut(17))
	same(t, qb.taken())
	wantIngress(t, a, vnet.DropVLAN, 2)
	whole := cut(18)
	qa.inject(whole)
	same(t, qb.taken(), vnet.Frame{Head: append(whole.Head[:12:12], whole.Head[16:]...)})
}

// What the kernel refuses is cut and completed as if it had come in with its tag.
func TestRefusedAfterPush(t *testing.T) {
	l := newLab(t)
	_, qa := l.portConfig(PortConfig{Name: "a", VLAN: VLAN{Mode: VLANAccess, Tag: 10}}, bigLimits())
	_, qb := l.port("b", bigLimits())
	tag := []byte{0x81, 0, 0, 10}
	big := vnettest.Scatter(frame(tcp4(500000), host1, broadcast), 2000, 7, 100000)
	qb.refuse(above(100000, vnet.NoMemory))
	qa.inject(big)
	got := qb.taken()
	if n := longest(got); n > 100000 || n == 0 {
		t.Errorf("a frame of %d bytes", n)
	}
	sameOnWire(t, got, withTags(big, tag))

	six := frame(with(tcp6(5000), func(s *vnettest.Spec) {
		s.GSOSize, s.Csum, s.Ext = 1400, vnettest.Full, []vnettest.Ext{vnettest.HopByHop, vnettest.Routing, vnettest.DestOpts}
	}), host1, broadcast)
	qb.refuse(super(vnet.BadGSO))
	qa.inject(six)
	sameOnWire(t, qb.taken(), withTags(six, tag))

	unfinished := frame(plain(tcp4(1000)), host1, broadcast)
	qb.refuse(func(f *vnet.Frame) vnet.Refusal {
		if f.Hdr.Flags&vnet.NeedsCsum != 0 {
			return vnet.BadGSO
		}
		return vnet.Accepted
	})
	qa.inject(unfinished)
	sameOnWire(t, qb.taken(), withTags(unfinished, tag))
}

// TestRetaggedFramesOfFullBatches sends more edited frames, in more pieces, than fit into
// a batch at once: none is written over before it has left.
func TestRetaggedFramesOfFullBatches(t *testing.T) {
	l := newLab(t)
	_, qa := l.portConfig(PortConfig{Name: "a", VLAN: VLAN{Mode: VLANNativeTagged, Tag: 10}}, bigLimits())
	_, qb := l.port("b", bigLimits())
	_, qc := l.portConfig(PortConfig{Name: "c", VLAN: VLAN{Mode: VLANAccess, Tag: 10}}, bigLimits())
	_, qd := l.port("d", withSize(65536))
	var in, tagged, bare []vnet.Frame
	for i := range batchFrames {
		f := frame(with(tcp4(3000+i), func(s *vnettest.Spec) { s.Seq = uint32(i) }), host1, broadcast)
		tagged = append(tagged, withTags(f, []byte{0x81, 0, 0x60, 10}))
		bare = append(bare, f)
		f = vnettest.Scatter(withTags(f, []byte{0x81, 0, 0x60, 0}), 1500, 1, 2, 3, 4, 5, 6, 7, 8)
		in = append(in, f)
	}
	qa.inject(in...)
	same(t, qb.taken(), tagged...)
	same(t, qc.taken(), bare...)
	same(t, qd.taken(), tagged...)
}

// TestOneEditForAllEgresses: a tag is edited once, however many ports the frame goes to.
func TestOneEditForAllEgresses(t *testing.T) {
	l := newLab(t)
	_, qa := l.portConfig(PortConfig{Name: "a", VLAN: VLAN{Mode: VLANAccess, Tag: 10}}, bigLimits())
	heads := map[*byte]int{}
	for i := range 5 {
		_, q := l.port(fmt.Sprint(i), bigLimits())
		q.refuse(func(f *vnet.Frame) vnet.Refusal {
			heads[&f.Head[0]]++
			return vnet.Accepted
		})
	}
	qa.inject(small(host1, broadcast))
	for _, n := range heads {
		if n != 5 {
			t.Errorf("the frame was made %d times", len(heads))
		}
	}
}

// While frames are watched for a loop, what is for a known address of a VLAN is not.
func TestKnownInItsVLANIsNotWatched(t *testing.T) {
	l := newLab(t)
	_, qa := l.portConfig(PortConfig{Name: "a", VLAN: VLAN{Mode: VLANAccess, Tag: 10}}, bigLimits())
	_, qb := l.portConfig(PortConfig{Name: "b", VLAN: VLAN{Mode: VLANAccess, Tag: 10}}, bigLimits())
	hello(qb, host2, qa)
	l.fdb.loops.watch(0)
	f := small(host1, host2)
	qa.inject(repeat(3*loopRepeats, f)...)
	same(t, qb.taken(), repeat(3*loopRepeats, f)...)
}

func TestIsolatedPorts(t *testing.T) {
	l := newLab(t)
	a, qa := l.portConfig(PortConfig{Name: "a", Isolated: true}, bigLimits())
	b, qb := l.portConfig(PortConfig{Name: "b", Isolated: true}, bigLimits())
	up, qup := l.port("up", bigLimits())
	f := small(host1, broadcast)
	qa.inject(f)
	same(t, qb.taken())
	same(t, qup.taken(), f)
	wantIngress(t, a)
	g := small(host2, host1) // known, and out of reach
	qb.inject(g)
	same(t, qa.taken())
	same(t, qup.taken())
	wantIngress(t, b, vnet.DropIsolated, 1)

	down := []vnet.Frame{small(host3, host1), small(host3, host2), small(host3, broadcast)}
	qup.inject(down...)
	same(t, qa.taken(), down[0], down[2])
	same(t, qb.taken(), down[1], down[2])
	up.SetUp(false)
	qa.inject(f)
	wantIngress(t, a, vnet.DropIsolated, 1)

	if err := b.Configure(PortConfig{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	qa.inject(f)
	same(t, qb.taken(), f)
	qb.inject(g)
	same(t, qa.taken(), g)
}

func TestStormLimit(t *testing.T) {
	l := newLab(t)
	a, qa := l.portConfig(PortConfig{Name: "a", StormLimit: 3}, bigLimits())
	b, qb := l.port("b", bigLimits())
	hello(qb, host2, qa)
	unknown, known := small(host1, host3), small(host1, host2)
	group := small(host1, broadcast)
	qa.inject(group, unknown, group, known, unknown, group, known)
	same(t, qb.taken(), group, unknown, group, known, known)
	wantIngress(t, a, vnet.DropStorm, 2)
	l.advance(1)
	qa.inject(group, group)
	qa.inject(group, group)
	same(t, qb.taken(), group, group, group)
	wantIngress(t, a, vnet.DropStorm, 3)
	l.advance(9) // what was not used is not saved up
	qa.inject(group, group, group, group)
	same(t, qb.taken(), group, group, group)
	wantIngress(t, a, vnet.DropStorm, 4)

	if err := a.Configure(PortConfig{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	qa.inject(group, group, group, group)
	same(t, qb.taken(), group, group, group, group)
	if tx := b.Stats().TxFrames; tx != 15 {
		t.Errorf("%d frames left, want 15", tx)
	}
}

// Two queues of one port share its bucket, whatever they take the time to be.
func TestStormLimitIsThePorts(t *testing.T) {
	var s storm
	for i, c := range []struct {
		now  Tick
		want bool
	}{{5, true}, {5, true}, {5, false}, {6, true}, {5, true}, {6, false}, {5, false}, {7, true}} {
		if got := s.take(2, c.now); got != c.want {
			t.Errorf("frame %d at %d: %v", i, c.now, got)
		}
	}
}

func TestParseVLANModeIsTheInverseOfString(t *testing.T) {
	for m := VLANTrunk; m <= VLANNativeTagged; m++ {
		if got, ok := ParseVLANMode(m.String()); !ok || got != m {
			t.Errorf("%v reads as %v, %v", m, got, ok)
		}
	}
	if _, ok := ParseVLANMode("dot1q-tunnel"); ok {
		t.Error("an unknown mode was read")
	}
}

func TestVLANSet(t *testing.T) {
	s := vlans(0, 63, 64, 4095)
	for vid := range uint16(4096) {
		if want := vid == 0 || vid == 63 || vid == 64 || vid == 4095; s.Has(vid) != want {
			t.Errorf("VLAN %d: %v", vid, !want)
		}
	}
}
