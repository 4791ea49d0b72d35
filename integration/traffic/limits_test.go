package traffic

import (
	"fmt"
	"testing"
	"time"

	"sluice/integration/netns"
	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// Lengths of the headers that super makes.
const (
	headers4 = vnet.EthLen + vnet.IPv4Len + 32
	headers6 = vnet.EthLen + vnet.IPv6Len + 32
)

// TestFramesKeepToTheLimits: one super-packet, or frame, to a port with the given
// keys on a netdev that takes BIG TCP.
func TestFramesKeepToTheLimits(t *testing.T) {
	b, x, y := pair(t, netns.Link{GSO: big}, netns.Link{GSO: big})
	from, to := tapInto(t, x.Namespace, "eth0"), tapInto(t, y.Namespace, "eth0")
	const needs, tcp4, tcp6 = vnet.NeedsCsum, vnet.GSOTCPv4, vnet.GSOTCPv6
	v4 := func(n int) vnettest.Spec { return super(false, n, 1448) }
	v6 := func(n int) vnettest.Spec { return super(true, n, 1428) }
	mixed := ",gso_max_size=200000,gso_ipv4_max_size=20000"
	just := func(size int) string { return fmt.Sprintf(",gso_max_size=%d", size) }
	for _, c := range []struct {
		keys   string
		spec   vnettest.Spec
		max    int // longest frame that arrives
		frames int
		flags  vnet.Flags // of them all
		gso    vnet.GSO   // of the first
	}{
		{"", v4(300_000), headers4 + 300_000, 1, needs, tcp4},
		{"", v6(60_000), headers6 + 60_000, 1, needs, tcp6},
		{"", super(false, 1000, 0), headers4 + 1000, 1, needs, 0},
		// 13 segments and headers are 18890 bytes.
		{",gso_max_size=20000", v4(40_000), headers4 + 13*1448, 3, needs, tcp4},
		{",gso_max_size=20000", v6(40_000), headers6 + 13*1428, 3, needs, tcp6},
		{mixed, v4(40_000), headers4 + 13*1448, 3, needs, tcp4},
		{mixed, v6(40_000), headers6 + 40_000, 1, needs, tcp6},
		// A super-packet is shorter than the limit: one of its very length is cut.
		{just(headers4 + 40_000), super(false, 40_000, 1000), headers4 + 39_000, 2, needs, tcp4},
		{just(headers4 + 40_001), super(false, 40_000, 1000), headers4 + 40_000, 1, needs, tcp4},
		// No two segments fit: they leave one by one, with full checksums.
		{",gso_max_size=1500", v4(10_000), headers4 + 1448, 7, 0, 0},
		{",gso_max_segs=16", v4(100_000), headers4 + 16*1448, 5, needs, tcp4},
		{",gso_max_segs=16", v4(16 * 1448), headers4 + 16*1448, 1, needs, tcp4},
		{",gso_max_segs=16", v6(40_000), headers6 + 16*1428, 2, needs, tcp6},
		{",oversize=segment,gso_max_size=65536", v4(100_000), headers4 + 1448, 70, 0, 0},
		{",oversize=segment,gso_max_size=65536", v4(60_000), headers4 + 60_000, 1, needs, tcp4},
		{",oversize=pass,gso_max_size=65536", v4(100_000), headers4 + 100_000, 1, needs, tcp4},
		{",offload=none", v4(10_000), headers4 + 1448, 7, 0, 0},
		{",offload=none", v6(10_000), headers6 + 1428, 8, 0, 0},
		{",offload=none", super(false, 1000, 0), headers4 + 1000, 1, 0, 0},
		{",offload=csum", v4(10_000), headers4 + 1448, 7, 0, 0},
		{",offload=csum", super(false, 1000, 0), headers4 + 1000, 1, needs, 0},
		{",offload=full", v4(60_000), headers4 + 60_000, 1, needs, tcp4},
	} {
		n, size := len(c.spec.Payload), c.spec.GSOSize
		name := fmt.Sprintf("v6=%v %d by %d%s", c.spec.V6, n, size, c.keys)
		t.Run(name, func(t *testing.T) {
			from.t, to.t = t, t
			run(t, b.sw, "a=packet:vA", "b=packet:vB"+c.keys)
			got := cross(from, to, c.spec)
			if longest(got) != c.max || len(got) != c.frames {
				t.Fatalf("arrived: %v, want %d frames of at most %d", lengths(got), c.frames, c.max)
			}
			for i := range got {
				if flags := got[i].Hdr.Flags & needs; flags != c.flags {
					t.Errorf("frame %d of %d: flags %#x, want %#x", i, len(got), flags, c.flags)
				}
			}
			if gso := got[0].Hdr.GSO; gso != c.gso {
				t.Errorf("GSO type %d, want %d", gso, c.gso)
			}
		})
	}
}

// TestOffloadFullOverridesTheNetdev: offload= says what the receiver takes, whatever
// the netdev's features say; the kernel does the rest.
func TestOffloadFullOverridesTheNetdev(t *testing.T) {
	b, x, y := pair(t, netns.Link{}, netns.Link{})
	b.sw.Offloads("vB", false, netns.TransmitChecksum...)
	b.built()
	for keys, segmented := range map[string]uint64{"": 1, ",offload=full": 0} {
		s := run(t, b.sw, "a=packet:vA", "b=packet:vB"+keys)
		from, to := tapInto(t, x.Namespace, "eth0"), tapInto(t, y.Namespace, "eth0")
		if got := cross(from, to, super(false, 10_000, 1448)); len(got) != 7 {
			t.Errorf("%q: arrived %v", keys, lengths(got))
		}
		if p := s.port("b"); p.TX.Segmented != segmented {
			t.Errorf("%q: segmented %d, want %d", keys, p.TX.Segmented, segmented)
		}
	}
}

// TestPassLeavesItToTheKernel: oversize=pass on an egress of 64 KiB shows what the
// kernel itself does, which is to cut to the sender's segments.
func TestPassLeavesItToTheKernel(t *testing.T) {
	b, x, y := pair(t, netns.Link{GSO: big}, netns.Link{GSO: 65536})
	s := run(t, b.sw, "a=packet:vA", "b=packet:vB,oversize=pass")
	from, to := tapInto(t, x.Namespace, "eth0"), tapInto(t, y.Namespace, "eth0")
	if got := cross(from, to, super(false, 100_000, 1448)); len(got) != 70 {
		t.Errorf("arrived: %v", lengths(got))
	}
	if p := s.port("b"); p.TX.MaxFrame != headers4+100_000 || p.TX.Segmented+p.TX.Resegmented != 0 {
		t.Errorf("%+v", p.TX)
	}
}

// TestSizesAreRaisedAndPutBack: what is above the netdev's sizes is set there, and
// taken back at the end if nobody else has changed it.
func TestSizesAreRaisedAndPutBack(t *testing.T) {
	if !since(6, 3) {
		t.Skip("sizes for IPv4 came with Linux 6.3")
	}
	type sizes struct{ gso, gso4, segs, gro, gro4 uint32 }
	of := func(ns *netns.Namespace, device string) sizes {
		a := link(t, ns, device)
		return sizes{a.GSOMaxSize, a.GSOIPv4MaxSize, a.GSOMaxSegs, a.GROMaxSize, a.GROIPv4MaxSize}
	}
	b := newBed(t)
	b.cabled("a", netns.Link{GSOSegs: 100})
	y := b.host("b")
	b.built()
	must(t, y.Namespace, "ip", "tuntap", "add", "dev", "t0", "mode", "tap", "vnet_hdr")
	y.SetLink("t0", netns.Link{})
	b.built()
	packet, tap := of(b.sw, "vA"), of(y.Namespace, "t0")
	raised := sizes{200_000, 150_000, 1000, packet.gro, packet.gro4}
	raisedTap := sizes{tap.gso, tap.gso4, tap.segs, 180_000, 170_000}

	for _, c := range []struct {
		name      string
		meanwhile func()
		after     sizes // of the packet port
	}{
		{"nobody else", func() {}, packet},
		{"somebody sets one of them",
			func() { b.sw.SetLink("vA", netns.Link{GSO: 120_000, GSOIPv4: 150_000}) },
			sizes{120_000, packet.gso4, packet.segs, packet.gro, packet.gro4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := run(t, b.sw,
				"a=packet:vA,gso_max_size=200000,gso_ipv4_max_size=150000,gso_max_segs=1000",
				"b=tap:t0,netns="+y.Name+",gso_max_size=180000,gso_ipv4_max_size=170000")
			if got := of(b.sw, "vA"); got != raised {
				t.Errorf("vA has %+v, want %+v", got, raised)
			}
			if got := of(y.Namespace, "t0"); got != raisedTap {
				t.Errorf("t0 has %+v, want %+v", got, raisedTap)
			}
			c.meanwhile()
			b.built()
			p := s.port("b")
			if p.Limits.GSOMaxSize != 180_000 || p.Limits.GSOIPv4MaxSize != 170_000 {
				t.Errorf("limits of the tap: %+v", p.Limits)
			}
			if got := of(b.sw, "vA"); got != c.after {
				t.Errorf("after the end vA has %+v, want %+v", got, c.after)
			}
			if got := of(y.Namespace, "t0"); got != tap {
				t.Errorf("after the end t0 has %+v, want %+v", got, tap)
			}
			if n := s.lines("level=WARN"); n != 0 {
				t.Errorf("warnings:\n%s", s.logged("level=WARN"))
			}
		})
	}
}

// TestLimitAboveTSOMaxSizeIsClamped, with one warning. A TAP's tso_max_size is
// 65536.
func TestLimitAboveTSOMaxSizeIsClamped(t *testing.T) {
	b := newBed(t)
	b.cabled("a", netns.Link{})
	b.built()
	// A tap as big as the switch wants it would hide whether it was put back.
	const before = 30_000
	tap := fmt.Sprintf("ip tuntap add dev t9 mode tap vnet_hdr; ip link set t9 gso_max_size %d; "+
		"ip link set t9 name t0; ip link set t0 up; ", before)
	shell(t, b.sw, tap)
	s := run(t, b.sw, "a=packet:vA", "b=packet:t0,gso_max_size=200000")
	shell(t, b.sw, "ip link del t0; "+tap)
	s.until("the new t0's limit to be raised", func() bool {
		return link(t, b.sw, "t0").GSOMaxSize == 65536
	})
	if n := s.lines("level=WARN", "port=b", "tso_max_size=65536", "gso_max_size=65536"); n != 1 {
		t.Errorf("%d warnings, want 1:\n%s", n, s.logged("port=b"))
	}
	if p := s.port("b"); p.Limits.GSOMaxSize != 65536 {
		t.Errorf("limits %+v", p.Limits)
	}
	if got := link(t, b.sw, "t0").GSOMaxSize; got != before {
		t.Errorf("after the end: gso_max_size %d, was %d", got, before)
	}
}

// must runs a command in a namespace.
func must(t testing.TB, ns *netns.Namespace, name string, args ...string) {
	t.Helper()
	if _, err := ns.Run(deadline(t, patience), name, args...); err != nil {
		t.Fatal(err)
	}
}

// TestLimitsAreFollowed: what changes while the switch runs counts soon after.
func TestLimitsAreFollowed(t *testing.T) {
	b, x, y := pair(t, netns.Link{GSO: big}, netns.Link{GSO: 65536})
	s := run(t, b.sw, "a=packet:vA", "b=packet:vB")
	from, to := tapInto(t, x.Namespace, "eth0"), tapInto(t, y.Namespace, "eth0")
	spec, plain := super(false, 200_000, 1448), super(false, 1000, 0)
	crosses := func(min, max int) func() bool {
		return func() bool {
			n := longest(cross(from, to, spec))
			return n >= min && n <= max
		}
	}
	chunks := func(limit int) func() bool { return crosses(limit*2/3, limit-1) }
	segments := crosses(headers4+1448, headers4+1448)
	set := func(link netns.Link) func() { return func() { b.sw.SetLink("vB", link) } }
	tso := append(netns.TCPSegmentation, netns.UDPSegmentation...)
	for _, c := range []struct {
		name string
		do   func()
		seen func() bool
	}{
		{"as it begins", func() {}, chunks(65_536)},
		{"gso_max_size raised", set(netns.Link{GSO: 150_000}), chunks(150_000)},
		{"gso_max_size lowered", set(netns.Link{GSO: 30_000}), chunks(30_000)},
		{"gso_max_segs lowered", set(netns.Link{GSOSegs: 4}), crosses(4*1448, 4*1448+headers4)},
		{"gso_max_segs raised", set(netns.Link{GSOSegs: 65535}), chunks(30_000)},
		{"tso off", func() { b.sw.Offloads("vB", false, tso...) }, func() bool {
			// The kernel would cut just so: only counters tell who did.
			was := s.ask().Port("b").TX.Segmented
			here := segments()
			p := s.ask().Port("b")
			return here && p.TX.Segmented > was && !p.Limits.TSO4
		}},
		{"tso on", func() { b.sw.Offloads("vB", true, tso...) }, chunks(30_000)},
		{"checksum off", func() {
			b.sw.Offloads("vB", false, netns.TransmitChecksum...)
		}, func() bool {
			return segments() && cross(from, to, plain)[0].Hdr.Flags&vnet.NeedsCsum == 0
		}},
		{"checksum on", func() {
			b.sw.Offloads("vB", true, netns.TransmitChecksum...)
			b.sw.Offloads("vB", true, tso...)
		}, chunks(30_000)},
		{"MTU lowered", set(netns.Link{MTU: 1400}), func() bool {
			for range 3 { // one is no reason to warn
				if _, ok := tryCross(from, to, spec); ok {
					return false
				}
			}
			return true
		}},
		{"MTU raised", set(netns.Link{MTU: 1500}), func() bool {
			frames, ok := tryCross(from, to, spec)
			return ok && longest(frames) >= 20_000
		}},
	} {
		began := time.Now()
		c.do()
		b.built()
		wait(t, c.name, c.seen)
		t.Logf("%s: followed after %v", c.name, time.Since(began).Round(time.Millisecond))
	}
	s.says(1, "port=b", "over_mtu") // which comes with the look after
	// One look a second may leave the first frames after a change to the kernel.
	p := s.port("b")
	if p.TX.CsumCompleted == 0 || p.Drops.Egress["over_mtu"] == 0 {
		t.Errorf("%+v, drops %v", p.TX, p.Drops)
	}
	if n, told := s.lines("port=b"), s.lines("port=b", "over_mtu"); n != 2 || told != 1 {
		t.Errorf("%d lines in the log, want that the port is up, and what is over its MTU:\n%s",
			n, s.logged("port=b"))
	}
}

// TestLimitsOfATapAreFollowed: those are its GRO sizes, which send no event.
func TestLimitsOfATapAreFollowed(t *testing.T) {
	b := newBed(t)
	x, y := b.cabled("a", netns.Link{GSO: big}), b.host("b")
	b.built()
	run(t, b.sw, "a=packet:vA", "b=tap:eth0,netns="+y.Name)
	from, to := tapInto(t, x.Namespace, "eth0"), tapInto(t, y.Namespace, "eth0")
	for _, gro := range []int{65_536, 150_000, 30_000} {
		y.SetLink("eth0", netns.Link{GRO: gro})
		b.built()
		wait(t, fmt.Sprintf("gro_max_size %d", gro), func() bool {
			n := longest(cross(from, to, super(false, 200_000, 1448)))
			return n < gro && n > gro/2
		})
	}
}

// TestMacvtapTakesWhatItsLowerTakes, also when that changes.
func TestMacvtapTakesWhatItsLowerTakes(t *testing.T) {
	b := newBed(t)
	x, y := b.cabled("a", netns.Link{GSO: big}), b.cabled("b", netns.Link{GSO: 150_000})
	b.built()
	s := run(t, b.sw, "a=packet:vA", "b=macvtap:m0,lower=vB,mtu=1500")
	from, to := tapInto(t, x.Namespace, "eth0"), tapInto(t, y.Namespace, "eth0")
	for _, gso := range []int{150_000, 30_000, 100_000} {
		b.sw.SetLink("vB", netns.Link{GSO: gso})
		b.built()
		wait(t, fmt.Sprintf("gso_max_size %d", gso), func() bool {
			n := longest(cross(from, to, super(false, 200_000, 1448)))
			return n < gso && n > gso/2
		})
	}
	if p := s.port("b"); p.Limits.GSOMaxSize != 100_000 {
		t.Errorf("limits %+v", p.Limits)
	}
	if _, err := b.sw.Link("m0"); err == nil {
		t.Error("the macvtap is still there")
	}
}

// TestMTUIsSetOnWhatSluiceMakes, and bounds the port.
func TestMTUIsSetOnWhatSluiceMakes(t *testing.T) {
	b := newBed(t)
	b.cabled("a", netns.Link{MTU: 9000})
	b.built()
	s := run(t, b.sw, "t=tap:t0,mtu=8000", "m=macvtap:m0,lower=vA,mtu=3000")
	for device, mtu := range map[string]int{"t0": 8000, "m0": 3000} {
		if got := link(t, b.sw, device).MTU; got != mtu {
			t.Errorf("%s has MTU %d, want %d", device, got, mtu)
		}
	}
	sum := s.stop()
	if a, m := sum.Port("t").Limits.MTU, sum.Port("m").Limits.MTU; a != 8000 || m != 3000 {
		t.Errorf("limits: MTU %d and %d, want 8000 and 3000", a, m)
	}
}

// TestQueuesShareThePort: two receive queues on every port, several streams.
func TestQueuesShareThePort(t *testing.T) {
	b := newBed(t)
	x, y := b.cabled("a", netns.Link{GSO: big}), b.host("b")
	b.built()
	s := run(t, b.sw, "a=packet:vA,queues=2", "b="+bigTap(y)+",queues=2")
	y.Address("eth0", y.addresses()...)
	b.built()
	l, err := y.Link("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if l.NumTxQueues < 2 {
		t.Errorf("%d queues", l.NumTxQueues)
	}
	errs := make(chan error)
	const streams = 6
	for i := range streams {
		address := []string{y.v4, y.v6}[i%2]
		go func() { errs <- b.swap(x, y, address, 8<<20) }()
	}
	for range streams {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	clean(t, x, y)
	delivered(t, s.stop())
}
