package dataplane

import (
	"bytes"
	"testing"

	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// bigLimits are those of an egress that takes everything.
func bigLimits() vnet.Limits {
	return vnet.Limits{
		GSOMaxSize:     vnet.MaxGSOMaxSize,
		GSOIPv4MaxSize: vnet.MaxGSOMaxSize,
		GSOMaxSegs:     vnet.MaxSegments,
		MTU:            1500,
		MaxWrite:       vnet.MaxFrame,
		Csum:           true, TSO4: true, TSO6: true, USO: true,
		IPv6Form: vnet.FormHBH,
	}
}

// withSize is bigLimits with gso_max_size and gso_ipv4_max_size n.
func withSize(n int) vnet.Limits {
	l := bigLimits()
	l.GSOMaxSize, l.GSOIPv4MaxSize = n, n
	return l
}

// limited is bigLimits after edit.
func limited(edit func(*vnet.Limits)) vnet.Limits {
	l := bigLimits()
	edit(&l)
	return l
}

// Lengths of the headers of vnettest's frames without options.
const (
	tcp4Headers = vnet.EthLen + vnet.IPv4Len + vnet.TCPLen
	tcp6Headers = vnet.EthLen + vnet.IPv6Len + vnet.TCPLen
	udp4Headers = vnet.EthLen + vnet.IPv4Len + vnet.UDPLen
)

// mss is the gso_size of the frames below, where the case does not ask for another: it
// fills an MTU of 1500 over IPv6.
const mss = 1440

func tcp4(payload int) vnettest.Spec {
	return vnettest.Spec{Payload: vnettest.Pattern(payload), GSOSize: mss, TCPFlags: vnettest.ACK}
}

func tcp6(payload int) vnettest.Spec {
	return vnettest.Spec{V6: true, Payload: vnettest.Pattern(payload), GSOSize: mss,
		TCPFlags: vnettest.ACK, Form: vnet.FormHBH}
}

func udp4(payload int) vnettest.Spec {
	return vnettest.Spec{UDP: true, Payload: vnettest.Pattern(payload), GSOSize: mss}
}

// with is s after edit.
func with(s vnettest.Spec, edit func(*vnettest.Spec)) vnettest.Spec {
	edit(&s)
	return s
}

func plain(s vnettest.Spec) vnettest.Spec {
	s.GSOSize = 0
	return s
}

func TestDecide(t *testing.T) {
	passes := decision{}
	resegments := func(max int) decision { return decision{outcome: resegment, max: max} }
	segments := decision{outcome: segment}
	tagged := func(s *vnettest.Spec) { s.Tags = []uint16{5} }
	inForm := func(f vnet.Form) func(*vnettest.Spec) {
		return func(s *vnettest.Spec) { s.Form = f }
	}
	gsoSize := func(n int) func(*vnettest.Spec) { return func(s *vnettest.Spec) { s.GSOSize = n } }
	options := func(s *vnettest.Spec) { s.TCPOptions = vnettest.Timestamps }
	mtu := func(n int) vnet.Limits { return limited(func(l *vnet.Limits) { l.MTU = n }) }
	ipv6Form := func(f vnet.Form) vnet.Limits {
		return limited(func(l *vnet.Limits) { l.IPv6Form = f })
	}

	noCsum := limited(func(l *vnet.Limits) { l.Csum = false })
	taggedAsIPv4 := limited(func(l *vnet.Limits) {
		l.GSOIPv4MaxSize, l.TaggedIPv6AsIPv4 = 65536, true
	})
	segs16 := limited(func(l *vnet.Limits) { l.GSOMaxSegs = 16 })
	maxWrite := limited(func(l *vnet.Limits) { l.MaxWrite = 100000 })
	// What Check accepts and Parse does not: a TCP header of 16 bytes, and a tunnel's headers
	// in front of what the checksum covers.
	malformed := func(f *vnet.Frame) { f.Head[f.Hdr.CsumStart+12] = 4 << 4 }
	tunnelled := func(e vnettest.Encap) func(*vnet.Frame) {
		return func(f *vnet.Frame) { *f = e.Wrap(tcp4(60000), false, false) }
	}
	protocol := func(at int, v uint8) func(*vnet.Frame) {
		return func(f *vnet.Frame) { f.Head[at] = v }
	}
	sctp := func(f *vnet.Frame) { f.Hdr.CsumOffset = vnet.SCTPCsumOffset }

	type row struct {
		name     string
		spec     vnettest.Spec
		edit     func(*vnet.Frame)
		limits   vnet.Limits
		oversize Oversize
		want     decision
		parsed   bool // protocol headers are read
	}
	rows := []row{
		// Frames without a GSO type.
		{name: "plain that fills the MTU", spec: plain(tcp4(1460)),
			limits: bigLimits(), want: passes},
		{name: "plain one byte above the MTU", spec: plain(tcp4(1461)),
			limits: bigLimits(), want: dropped(vnet.DropOverMTU)},

		{name: "tags are not part of the MTU",
			spec:   with(plain(tcp4(1460)), func(s *vnettest.Spec) { s.Tags = []uint16{1, 2} }),
			limits: bigLimits(), want: passes},
		{name: "plain, checksum completed", spec: plain(tcp4(1460)),
			limits: noCsum, want: decision{outcome: complete}},
		{name: "plain above the MTU is not completed", spec: plain(tcp4(1461)),
			limits: noCsum, want: dropped(vnet.DropOverMTU)},

		{name: "plain with a finished checksum",
			spec:   with(plain(tcp4(100)), func(s *vnettest.Spec) { s.Csum = vnettest.Full }),
			limits: noCsum, want: passes},

		{name: "UDP without a checksum stays so",
			spec:   with(plain(udp4(100)), func(s *vnettest.Spec) { s.Csum = vnettest.Zero }),
			limits: noCsum, want: passes},
		{name: "what may be SCTP is completed everywhere", spec: plain(tcp4(100)), edit: sctp,
			limits: bigLimits(), want: decision{outcome: complete}},

		// Sizes.
		{name: "400000 to 524280", spec: tcp4(400000), limits: bigLimits(), want: passes},
		{name: "longest for 524280", spec: tcp4(vnet.MaxFrame - tcp4Headers),
			limits: bigLimits(), want: passes},
		{name: "longest for 65536", spec: tcp4(65535 - tcp4Headers),
			limits: withSize(65536), want: passes},
		{name: "as long as gso_max_size 65536", spec: tcp4(65536 - tcp4Headers),
			limits: withSize(65536), want: resegments(65535), parsed: true},
		{name: "longest for 65535", spec: tcp4(65534 - tcp4Headers),
			limits: withSize(65535), want: passes},
		{name: "as long as gso_max_size 65535", spec: tcp4(65535 - tcp4Headers),
			limits: withSize(65535), want: resegments(65534), parsed: true},
		{name: "400000 to 65536", spec: tcp4(400000),
			limits: withSize(65536), want: resegments(65535), parsed: true},
		{name: "400000 to 131072", spec: tcp4(400000),
			limits: withSize(131072), want: resegments(131071), parsed: true},
		{name: "400000 to 1500", spec: tcp4(400000),
			limits: withSize(1500), want: segments, parsed: true},
		{name: "two segments just fit", spec: tcp4(400000),
			limits: withSize(tcp4Headers + 2*mss + 1),
			want:   resegments(tcp4Headers + 2*mss), parsed: true},
		{name: "two segments just do not fit", spec: tcp4(400000),
			limits: withSize(tcp4Headers + 2*mss), want: segments, parsed: true},
		{name: "greatest write below gso_max_size", spec: tcp4(400000),
			limits: maxWrite, want: resegments(100000), parsed: true},
		{name: "IPv4 has its own size", spec: tcp4(400000),
			limits: limited(func(l *vnet.Limits) { l.GSOIPv4MaxSize = 65536 }),
			want:   resegments(65535), parsed: true},
		{name: "IPv4 size is not IPv6's", spec: tcp6(60000),
			limits: limited(func(l *vnet.Limits) { l.GSOIPv4MaxSize = 1500 }), want: passes},
		{name: "tagged IPv6 measured as IPv4", spec: with(tcp6(400000), tagged),
			limits: taggedAsIPv4, want: resegments(65535), parsed: true},
		{name: "untagged IPv6 where tagged is measured as IPv4", spec: tcp6(400000),
			limits: taggedAsIPv4, want: passes, parsed: true},
		{name: "longest UDP", spec: udp4(65535 - udp4Headers), limits: bigLimits(), want: passes},
		{name: "UDP is below 64 KiB everywhere", spec: udp4(65507),
			limits: bigLimits(), want: resegments(65535), parsed: true},

		// Segment counts.
		{name: "16 segments of 16", spec: tcp4(16 * mss),
			limits: segs16, want: passes, parsed: true},
		{name: "17 segments of 16", spec: tcp4(16*mss + 1),
			limits: segs16, want: resegments(vnet.MaxFrame), parsed: true},
		{name: "few segments are not counted", spec: tcp4(15 * mss), limits: segs16, want: passes},
		{name: "400000 bytes of 16 segments", spec: tcp4(400000),
			limits: segs16, want: resegments(vnet.MaxFrame), parsed: true},
		{name: "more segments than any kernel takes", spec: with(tcp4(100000), gsoSize(1)),
			limits: bigLimits(), want: resegments(vnet.MaxFrame), parsed: true},
		{name: "more segments than may be made", spec: with(tcp4(100000), gsoSize(1)),
			limits: bigLimits(), oversize: OversizeSegment,
			want: dropped(vnet.DropTooManySegments), parsed: true},

		// What may be one segment.
		{name: "a GSO type on what is one segment", spec: tcp4(mss),
			limits: bigLimits(), want: resegments(vnet.MaxFrame), parsed: true},
		{name: "a GSO type on what is one segment, options", spec: with(tcp4(mss), options),
			limits: bigLimits(), want: resegments(vnet.MaxFrame), parsed: true},
		{name: "a GSO type on nothing", spec: tcp6(0),
			limits: bigLimits(), want: resegments(vnet.MaxFrame), parsed: true},
		{name: "one byte more than one segment", spec: with(tcp4(mss+1), options),
			limits: bigLimits(), want: passes, parsed: true},
		{name: "more than one segment whatever the headers are", spec: with(tcp4(mss+60), options),
			limits: bigLimits(), want: passes},

		// MTUs.
		{name: "MTU 9000", spec: tcp4(60000), limits: mtu(9000), want: passes},
		{name: "MTU 1460, full segments", spec: tcp4(60000),
			limits: mtu(1460), want: dropped(vnet.DropOverMTU), parsed: true},
		{name: "MTU 1460, segments that fit", spec: with(tcp4(60000), gsoSize(1420)),
			limits: mtu(1460), want: passes},

		{name: "MTU 1460, segments one byte too long",
			spec: with(tcp4(60000), gsoSize(1421)), limits: mtu(1460),
			want: dropped(vnet.DropOverMTU), parsed: true},

		{name: "MTU 1460, options count",
			spec: with(tcp4(60000), func(s *vnettest.Spec) {
				s.GSOSize, s.TCPOptions = 1420, vnettest.Timestamps
			}),
			limits: mtu(1460), want: dropped(vnet.DropOverMTU), parsed: true},
		{name: "MTU 1460, shorter than one segment", spec: tcp4(1000),
			limits: mtu(1460), want: resegments(vnet.MaxFrame), parsed: true},
		{name: "jumbo segments", spec: with(tcp4(60000), gsoSize(8960)),
			limits: bigLimits(), want: dropped(vnet.DropOverMTU), parsed: true},
		{name: "MTU 1460, options that fit",
			spec: with(tcp4(60000), func(s *vnettest.Spec) {
				s.GSOSize, s.TCPOptions = 1408, vnettest.Timestamps
			}),
			limits: mtu(1460), want: passes},
		{name: "MTU 1460, IPv6 segments that fit", spec: with(tcp6(60000), gsoSize(1400)),
			limits: mtu(1460), want: passes},
		{name: "MTU 1460, IPv6 segments one byte too long", spec: with(tcp6(60000), gsoSize(1401)),
			limits: mtu(1460), want: dropped(vnet.DropOverMTU), parsed: true},
		{name: "MTU 1460, tags are not part of a segment",
			spec:   with(tcp4(60000), func(s *vnettest.Spec) { s.GSOSize, s.Tags = 1420, []uint16{1, 2} }),
			limits: mtu(1460), want: passes},
		{name: "MTU 1460, UDP segments that fit", spec: with(udp4(60000), gsoSize(1432)),
			limits: mtu(1460), want: passes},
		{name: "MTU 1460, UDP segments one byte too long", spec: with(udp4(60000), gsoSize(1433)),
			limits: mtu(1460), want: dropped(vnet.DropOverMTU), parsed: true},
		{name: "MTU 1460, without NeedsCsum, too long",
			spec:   with(tcp4(60000), func(s *vnettest.Spec) { s.GSOSize, s.Csum = 1421, vnettest.Full }),
			limits: mtu(1460), want: dropped(vnet.DropOverMTU), parsed: true},
		{name: "segments that no header makes fit", spec: with(tcp4(60000), gsoSize(1480)),
			limits: bigLimits(), want: dropped(vnet.DropOverMTU), parsed: true},
		{name: "a jumbo option is not part of a segment", spec: with(tcp6(100000), gsoSize(1440)),
			limits: bigLimits(), want: passes, parsed: true},
		{name: "IPv6 segments one byte too long", spec: with(tcp6(100000), gsoSize(1441)),
			limits: bigLimits(), want: dropped(vnet.DropOverMTU), parsed: true},

		// Abilities.
		{name: "no checksums, TCP", spec: tcp4(60000),
			limits: noCsum, want: segments, parsed: true},
		{name: "no TSO4, IPv4", spec: tcp4(60000),
			limits: limited(func(l *vnet.Limits) { l.TSO4 = false }), want: segments, parsed: true},
		{name: "no TSO4, IPv6", spec: tcp6(60000),
			limits: limited(func(l *vnet.Limits) { l.TSO4 = false }), want: passes},
		{name: "no TSO6, IPv6", spec: tcp6(60000),
			limits: limited(func(l *vnet.Limits) { l.TSO6 = false }), want: segments, parsed: true},
		{name: "no TSO6, IPv4", spec: tcp4(60000),
			limits: limited(func(l *vnet.Limits) { l.TSO6 = false }), want: passes},
		{name: "no USO", spec: udp4(60000),
			limits: limited(func(l *vnet.Limits) { l.USO = false }), want: segments, parsed: true},
		{name: "no USO, TCP", spec: tcp4(60000),
			limits: limited(func(l *vnet.Limits) { l.USO = false }), want: passes},
		{name: "with the ECN bit",
			spec:   with(tcp4(60000), func(s *vnettest.Spec) { s.TCPFlags |= vnettest.CWR }),
			limits: bigLimits(),
			want:   passes},

		// Policies.
		{name: "oversize=segment, too long", spec: tcp4(400000),
			limits: withSize(65536), oversize: OversizeSegment, want: segments, parsed: true},
		{name: "oversize=segment, short enough", spec: tcp4(60000),
			limits: withSize(65536), oversize: OversizeSegment, want: passes},
		{name: "oversize=pass, too long", spec: tcp4(400000),
			limits: withSize(65536), oversize: OversizePass, want: passes},
		{name: "oversize=pass, longer than a write", spec: tcp4(400000),
			limits: maxWrite, oversize: OversizePass, want: resegments(100000), parsed: true},
		{name: "oversize=pass, without the ability", spec: tcp4(60000),
			limits: noCsum, oversize: OversizePass, want: segments, parsed: true},

		// BIG TCP forms.
		{name: "HBH to HBH", spec: tcp6(400000), limits: bigLimits(), want: passes, parsed: true},
		{name: "plain to plain", spec: with(tcp6(400000), inForm(vnet.FormPlain)),
			limits: ipv6Form(vnet.FormPlain), want: passes, parsed: true},
		{name: "HBH to plain", spec: tcp6(400000),
			limits: ipv6Form(vnet.FormPlain), want: decision{outcome: reform}, parsed: true},
		{name: "plain to HBH", spec: with(tcp6(400000), inForm(vnet.FormPlain)),
			limits: bigLimits(), want: decision{outcome: reform}, parsed: true},
		{name: "HBH to none", spec: tcp6(400000),
			limits: ipv6Form(vnet.FormNone), want: resegments(65535), parsed: true},
		{name: "plain to none", spec: with(tcp6(400000), inForm(vnet.FormPlain)),
			limits: ipv6Form(vnet.FormNone), want: resegments(65535), parsed: true},

		{name: "plain to HBH, the option just fits",
			spec:   with(tcp6(vnet.MaxFrame-tcp6Headers-vnet.JumboHBHLen), inForm(vnet.FormPlain)),
			limits: bigLimits(), want: decision{outcome: reform}, parsed: true},

		{name: "plain to HBH, the option does not fit",
			spec: with(tcp6(vnet.MaxFrame-tcp6Headers-vnet.JumboHBHLen+1),
				inForm(vnet.FormPlain)),
			limits: bigLimits(), want: resegments(vnet.MaxFrame), parsed: true},
		{name: "plain to HBH, behind another hop-by-hop header",
			spec: with(tcp6(400000), func(s *vnettest.Spec) {
				s.Form, s.Ext = vnet.FormPlain, []vnettest.Ext{vnettest.HopByHop}
				s.GSOSize = 1400
			}),
			limits: bigLimits(), want: resegments(vnet.MaxFrame), parsed: true},
		{name: "longest IPv6 whose length has 16 bits", spec: tcp6(65535 - vnet.TCPLen),
			limits: bigLimits(), want: passes},
		{name: "shortest IPv6 that has a form", spec: tcp6(65536 - vnet.TCPLen),
			limits: bigLimits(), want: passes, parsed: true},

		// Malformed frames are found out only where they have to be looked into.
		{name: "malformed, short enough", spec: tcp4(60000), edit: malformed,
			limits: bigLimits(), want: passes},
		{name: "neither TCP nor UDP", spec: tcp4(60000), edit: protocol(vnet.EthLen+9, 253),
			limits: bigLimits(), want: dropped(vnet.DropBadGSO), parsed: true},
		{name: "neither TCP nor UDP, IPv6", spec: tcp6(60000), edit: protocol(vnet.EthLen+6, 253),
			limits: bigLimits(), want: dropped(vnet.DropBadGSO), parsed: true},
		{name: "neither TCP nor UDP behind a jumbo option", spec: tcp6(400000),
			edit:   protocol(vnet.EthLen+vnet.IPv6Len, 253),
			limits: bigLimits(), want: dropped(vnet.DropBadGSO), parsed: true},
		{name: "an IPv6 fragment",
			spec: with(tcp6(60000), func(s *vnettest.Spec) {
				s.Ext = []vnettest.Ext{{Proto: vnet.ProtoFragment, Data: make([]byte, 6)}}
			}),
			limits: bigLimits(), want: dropped(vnet.DropBadGSO), parsed: true},
		{name: "UDP with a GSO type of TCP", spec: tcp4(60000),
			edit:   protocol(vnet.EthLen+9, vnet.ProtoUDP),
			limits: bigLimits(), want: dropped(vnet.DropBadGSO), parsed: true},
		{name: "TCP with a GSO type of UDP", spec: udp4(60000),
			edit:   protocol(vnet.EthLen+9, vnet.ProtoTCP),
			limits: bigLimits(), want: dropped(vnet.DropBadGSO), parsed: true},
		{name: "neither TCP nor UDP, without NeedsCsum",
			spec:   with(tcp4(60000), func(s *vnettest.Spec) { s.Csum = vnettest.Full }),
			edit:   protocol(vnet.EthLen+9, 253),
			limits: bigLimits(), want: dropped(vnet.DropBadGSO), parsed: true},
		{name: "IPv4 options might be a tunnel",
			spec:   with(tcp4(60000), func(s *vnettest.Spec) { s.IPOptions = make([]byte, 20) }),
			limits: bigLimits(), want: passes, parsed: true},
		{name: "malformed, too long", spec: tcp4(400000), edit: malformed,
			limits: withSize(65536), want: dropped(vnet.DropBadGSO), parsed: true},
		{name: "malformed, without the ability", spec: tcp4(60000), edit: malformed,
			limits: noCsum, want: dropped(vnet.DropBadGSO), parsed: true},
		{name: "malformed, lower MTU", spec: tcp4(60000), edit: malformed,
			limits: mtu(1460), want: dropped(vnet.DropBadGSO), parsed: true},
		{name: "malformed, many segments", spec: tcp4(60000), edit: malformed,
			limits: segs16, want: dropped(vnet.DropBadGSO), parsed: true},
		{name: "malformed, IPv6 with a form", spec: tcp6(400000), edit: malformed,
			limits: bigLimits(), want: dropped(vnet.DropBadGSO), parsed: true},
		{name: "headers without end, too long",
			spec: with(tcp6(60000), func(s *vnettest.Spec) {
				s.Ext = []vnettest.Ext{{Proto: vnet.ProtoDestOpts, Data: make([]byte, 1022)}}
			}),
			limits: withSize(50000), want: dropped(vnet.DropHeadersTooLong), parsed: true},
	}
	for _, e := range vnettest.Encaps {
		rows = append(rows, row{name: "in a tunnel: " + e.Name, spec: tcp4(0), edit: tunnelled(e),
			limits: bigLimits(), want: dropped(vnet.DropUnsupportedGSO), parsed: true})
	}
	for _, c := range rows {
		t.Run(c.name, func(t *testing.T) {
			f := vnettest.Super(c.spec)
			if c.edit != nil {
				c.edit(&f)
			}
			was := f.Clone()
			s := subject{frame: &f, len: f.Len()}
			if d := f.Check(&s.l2); d != vnet.Keep {
				t.Fatalf("the frame is no good: %v", d)
			}
			limits := c.limits
			got := decide(&s, &limits, c.oversize)
			if got != c.want {
				t.Errorf("got  %v\nwant %v", got, c.want)
			}
			if s.parsed != c.parsed {
				t.Errorf("protocol headers read: %v, want %v", s.parsed, c.parsed)
			}
			if again := decide(&s, &limits, c.oversize); again != got {
				t.Errorf("asked again, it says %v", again)
			}
			if f.Hdr != was.Hdr || !bytes.Equal(f.AppendTo(nil), was.Head) || limits != c.limits {
				t.Error("deciding changed the frame or the limits")
			}
		})
	}
}

func TestParseOversizeIsTheInverseOfString(t *testing.T) {
	for _, o := range []Oversize{OversizeResegment, OversizeSegment, OversizePass} {
		if got, ok := ParseOversize(o.String()); !ok || got != o {
			t.Errorf("%v reads as %v, %v", o, got, ok)
		}
	}
	if _, ok := ParseOversize("whole"); ok {
		t.Error("an unknown policy was read")
	}
}
