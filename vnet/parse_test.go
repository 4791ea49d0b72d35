package vnet_test

import (
	"testing"

	"sluice/vnet"
	"sluice/vnet/vnettest"
)

func spec(edit func(*vnettest.Spec)) vnettest.Spec {
	s := vnettest.Spec{Payload: vnettest.Pattern(3000), GSOSize: 1000, TCPOptions: vnettest.Timestamps}
	if edit != nil {
		edit(&s)
	}
	return s
}

// TestCheckReadsL2 holds the Ethernet header and tags against the bytes.
func TestCheckReadsL2(t *testing.T) {
	macs := []byte{0xff, 0xee, 0xdd, 0xcc, 0xbb, 0xaa, 0x02, 1, 2, 3, 4, 5}
	const dst, src = 0xffeeddccbbaa, 0x020102030405
	for name, c := range map[string]struct {
		rest []byte
		want vnet.L2
	}{
		"untagged": {[]byte{0x08, 0x00, 9, 9, 9, 9}, vnet.L2{EtherType: 0x0800, Len: 14}},
		"C-tag": {[]byte{0x81, 0x00, 0x20, 0x64, 0x86, 0xdd},
			vnet.L2{EtherType: 0x86dd, TCI: 0x2064, Tags: 1, Len: 18}},
		"S-tag and C-tag": {[]byte{0x88, 0xa8, 0xe0, 0x01, 0x81, 0x00, 0, 2, 0x08, 0x00},
			vnet.L2{EtherType: 0x0800, TCI: 0xe001, Tags: 2, Len: 22}},
		"three tags": {[]byte{0x81, 0, 0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3, 8, 0},
			vnet.L2{EtherType: 0x8100, TCI: 1, Tags: 2, Len: 22}},
		"cut off in the tag": {[]byte{0x81, 0, 0, 1}, vnet.L2{EtherType: 0x8100, Len: 14}},
		"cut off in the second": {[]byte{0x81, 0, 0, 1, 0x81, 0, 0},
			vnet.L2{EtherType: 0x8100, TCI: 1, Tags: 1, Len: 18}},
	} {
		f := vnet.Frame{Head: append(append([]byte{}, macs...), c.rest...)}
		c.want.Dst, c.want.Src = dst, src
		l2 := vnet.L2{TCI: 0xffff, Tags: 9} // stale
		if d := f.Check(&l2); d != vnet.Keep {
			t.Errorf("%s: %v", name, d)
		}
		if l2 != c.want {
			t.Errorf("%s: %+v, want %+v", name, l2, c.want)
		}
		if vid := l2.VID(); vid != c.want.TCI&0xfff {
			t.Errorf("%s: VID %d", name, vid)
		}
	}
}

func TestMAC(t *testing.T) {
	for mac, c := range map[vnet.MAC]struct{ group, reserved bool }{
		0xffffffffffff: {true, false},
		0x01005e000001: {true, false},
		0x0180c2000000: {true, true},
		0x0180c200000f: {true, true},
		0x0180c2000010: {true, false},
		0x020000000001: {false, false},
		0:              {false, false},
	} {
		if mac.Group() != c.group || mac.Reserved() != c.reserved {
			t.Errorf("%v: group %v, reserved %v", mac, mac.Group(), mac.Reserved())
		}
	}
	if s := vnet.MAC(0x02005e10000f).String(); s != "02:00:5e:10:00:0f" {
		t.Error(s)
	}
}

// TestCheckHoldsTypeAgainstEtherType, behind any tags.
func TestCheckHoldsTypeAgainstEtherType(t *testing.T) {
	for _, c := range []struct {
		v6   bool
		gso  vnet.GSO
		want vnet.Drop
	}{
		{false, vnet.GSOTCPv4, vnet.Keep},
		{false, vnet.GSOTCPv6, vnet.DropBadGSO},
		{true, vnet.GSOTCPv4, vnet.DropBadGSO},
		{true, vnet.GSOTCPv6 | vnet.GSOECN, vnet.Keep},
	} {
		for _, tags := range [][]uint16{nil, {1}, {1, 2}} {
			f := vnettest.Super(spec(func(s *vnettest.Spec) { s.V6, s.Tags = c.v6, tags }))
			f.Hdr.GSO = c.gso
			var l2 vnet.L2
			if d := f.Check(&l2); d != c.want {
				t.Errorf("v6=%v gso_type=%#x, %d tags: %v, want %v", c.v6, c.gso, len(tags), d, c.want)
			}
		}
	}
	arp := vnet.Frame{Head: make([]byte, 3000)}
	arp.Head[12], arp.Head[13] = 0x08, 0x06
	arp.Hdr = vnet.Header{Flags: 1, GSO: vnet.GSOUDPL4, GSOSize: 100, CsumStart: 34, CsumOffset: 6}
	if d := arp.Check(new(vnet.L2)); d != vnet.DropBadGSO {
		t.Errorf("USO over ARP: %v", d)
	}
}

// TestFieldP17RuntFrames: a header and 0 to 13 bytes.
func TestFieldP17RuntFrames(t *testing.T) {
	for n := range vnet.EthLen {
		f := vnet.Frame{Head: make([]byte, n)}
		if d := f.Check(new(vnet.L2)); d != vnet.DropRunt {
			t.Errorf("%d bytes: %v", n, d)
		}
	}
	f := vnet.Frame{Head: make([]byte, 13), Body: [][]byte{make([]byte, 100)}}
	if d := f.Check(new(vnet.L2)); d != vnet.DropRunt {
		t.Errorf("a head of 13 bytes: %v", d)
	}
}

// TestFieldP20UDPWithoutChecksum: nothing is to be done, so nothing is wrong.
func TestFieldP20UDPWithoutChecksum(t *testing.T) {
	f := vnettest.Super(vnettest.Spec{UDP: true, Csum: vnettest.Zero, Payload: vnettest.Pattern(100)})
	if d := f.Check(new(vnet.L2)); d != vnet.Keep {
		t.Errorf("%v", d)
	}
}

func TestParse(t *testing.T) {
	const tcp32 = 32
	for name, c := range map[string]struct {
		spec vnettest.Spec
		want vnet.Packet
	}{
		"IPv4": {spec(nil), vnet.Packet{L3: 14, L4: 34, Payload: 34 + tcp32, Proto: 6}},
		"IPv4, two tags": {spec(func(s *vnettest.Spec) { s.Tags = []uint16{1, 2} }),
			vnet.Packet{L3: 22, L4: 42, Payload: 42 + tcp32, Proto: 6}},
		"IHL 6": {spec(func(s *vnettest.Spec) { s.IPOptions = make([]byte, 4) }),
			vnet.Packet{L3: 14, L4: 38, Payload: 38 + tcp32, Proto: 6}},
		"IHL 15": {spec(func(s *vnettest.Spec) { s.IPOptions = make([]byte, 40) }),
			vnet.Packet{L3: 14, L4: 74, Payload: 74 + tcp32, Proto: 6}},
		"no csum": {spec(func(s *vnettest.Spec) { s.Csum = vnettest.Zero }),
			vnet.Packet{L3: 14, L4: 34, Payload: 34 + tcp32, Proto: 6}},
		"UDP": {spec(func(s *vnettest.Spec) { s.UDP = true }),
			vnet.Packet{L3: 14, L4: 34, Payload: 42, Proto: 17}},
		"IPv6": {spec(func(s *vnettest.Spec) { s.V6 = true }),
			vnet.Packet{L3: 14, L4: 54, Payload: 54 + tcp32, V6: true, Proto: 6}},
		"IPv6 with every extension header": {spec(func(s *vnettest.Spec) {
			s.V6 = true
			s.Ext = []vnettest.Ext{vnettest.HopByHop, vnettest.DestOpts, vnettest.Routing, vnettest.DestOpts}
		}), vnet.Packet{L3: 14, L4: 54 + 8 + 8 + 16 + 8, Payload: 94 + tcp32, V6: true, Proto: 6}},
		"jumbo": {spec(func(s *vnettest.Spec) {
			s.V6, s.Form, s.Payload = true, vnet.FormHBH, vnettest.Pattern(200000)
		}), vnet.Packet{L3: 14, L4: 62, Payload: 62 + tcp32, V6: true, Jumbo: true, Proto: 6}},
		"jumbo in more than itself": {spec(func(s *vnettest.Spec) {
			s.V6 = true
			s.Ext = []vnettest.Ext{{Proto: 0, Data: []byte{0xc2, 4, 0, 3, 0, 0, 1, 6, 0, 0, 0, 0, 0, 0}}}
		}), vnet.Packet{L3: 14, L4: 70, Payload: 70 + tcp32, V6: true, Proto: 6}},
	} {
		f := vnettest.Super(c.spec)
		var l2 vnet.L2
		p := vnet.Packet{Jumbo: true, V6: true} // stale
		if d := f.Check(&l2); d != vnet.Keep {
			t.Fatalf("%s: Check: %v", name, d)
		}
		if d := vnet.Parse(&f, &l2, &p); d != vnet.Keep || p != c.want {
			t.Errorf("%s: %v, %+v, want %+v", name, d, p, c.want)
		}
	}
}

// TestParseReasons: what segmentation would choke on is dropped by name.
func TestParseReasons(t *testing.T) {
	v4, v6 := spec(nil), spec(func(s *vnettest.Spec) { s.V6 = true })
	udp := spec(func(s *vnettest.Spec) { s.UDP = true })
	ext := func(proto uint8, units int) vnettest.Spec {
		s := v6
		s.Ext = []vnettest.Ext{{Proto: proto, Data: make([]byte, 8*units-2)}}
		return s
	}
	two := v6
	two.Ext = []vnettest.Ext{vnettest.DestOpts, vnettest.HopByHop}
	long := v6
	long.Ext = []vnettest.Ext{{Proto: vnet.ProtoDestOpts, Data: make([]byte, 958)}} // TCP ends at 1046
	just := v6
	just.Ext = []vnettest.Ext{{Proto: vnet.ProtoDestOpts, Data: make([]byte, 934)}} // at 1022
	for name, c := range map[string]struct {
		spec vnettest.Spec
		edit func(*vnet.Frame)
		want vnet.Drop
	}{
		"IP version 6 in IPv4":       {v4, func(f *vnet.Frame) { f.Head[14] = 0x65 }, vnet.DropBadGSO},
		"IP version 4 in IPv6":       {v6, func(f *vnet.Frame) { f.Head[14] = 0x40 }, vnet.DropBadGSO},
		"IHL 4":                      {v4, func(f *vnet.Frame) { f.Head[14] = 0x44 }, vnet.DropBadGSO},
		"IHL that csum_start denies": {v4, func(f *vnet.Frame) { f.Head[14] = 0x46 }, vnet.DropBadGSO},
		"P24: first fragment":        {udp, func(f *vnet.Frame) { f.Head[20] |= 0x20 }, vnet.DropBadGSO},
		"P24: second fragment":       {udp, func(f *vnet.Frame) { f.Head[21] = 1 }, vnet.DropBadGSO},
		"P24: IPv6 fragment":         {ext(vnet.ProtoFragment, 1), nil, vnet.DropBadGSO},
		"UDP under a TCP type":       {v4, func(f *vnet.Frame) { f.Head[23] = 17 }, vnet.DropBadGSO},
		"UDP, and csum_start far behind": {v4, func(f *vnet.Frame) {
			f.Head[23] = 17
			f.Hdr.CsumStart += 50
		}, vnet.DropBadGSO},
		"TCP under a UDP type":       {udp, func(f *vnet.Frame) { f.Head[23] = 6 }, vnet.DropBadGSO},
		"data offset 4":              {v4, func(f *vnet.Frame) { f.Head[46] = 0x40 }, vnet.DropBadGSO},
		"data offset behind the end": {v4, func(f *vnet.Frame) { f.Head = f.Head[:34+31] }, vnet.DropBadGSO},
		"TCP header and no payload":  {v4, func(f *vnet.Frame) { f.Head = f.Head[:34+32] }, vnet.Keep},
		"csum_start 4 too far":       {v4, func(f *vnet.Frame) { f.Hdr.CsumStart += 4 }, vnet.DropBadGSO},
		"no csum, csum_start stray": {v4, func(f *vnet.Frame) {
			f.Hdr.Flags, f.Hdr.CsumStart = 0, 999
		}, vnet.Keep},
		"hop-by-hop not first":      {two, nil, vnet.DropBadGSO},
		"an unknown next header":    {ext(59, 1), nil, vnet.DropBadGSO},
		"extension header cut off":  {ext(60, 2), func(f *vnet.Frame) { f.Head[55] = 255 }, vnet.DropBadGSO},
		"headers to byte 1022":      {just, nil, vnet.Keep},
		"headers beyond MaxHeaders": {long, nil, vnet.DropHeadersTooLong},
		"head of MaxHeaders is over": {long, func(f *vnet.Frame) {
			*f = vnettest.Scatter(*f, 1024)
		}, vnet.DropHeadersTooLong},
		"extension header beyond the head": {ext(60, 2), func(f *vnet.Frame) {
			*f = vnettest.Scatter(*f, 1024)
			f.Hdr.Flags, f.Head[55] = 0, 255
		}, vnet.DropHeadersTooLong},
	} {
		f := vnettest.Super(c.spec)
		if c.edit != nil {
			c.edit(&f)
		}
		var l2 vnet.L2
		var p vnet.Packet
		if d := f.Check(&l2); d != vnet.Keep {
			t.Fatalf("%s: Check: %v", name, d)
		}
		if d := vnet.Parse(&f, &l2, &p); d != c.want {
			t.Errorf("%s: %v, want %v", name, d, c.want)
		}
	}
}

// TestParseEveryCut: wherever the frame ends, there is an answer.
func TestParseEveryCut(t *testing.T) {
	s := spec(func(s *vnettest.Spec) {
		s.V6, s.Tags, s.Csum = true, []uint16{1, 2}, vnettest.Zero
		s.Ext = []vnettest.Ext{vnettest.HopByHop, vnettest.Routing}
	})
	whole := vnettest.Super(s)
	for n := range int(whole.Hdr.HdrLen) {
		f := vnet.Frame{Hdr: whole.Hdr, Head: whole.Head[:n:n]}
		var l2 vnet.L2
		var p vnet.Packet
		d := f.Check(&l2)
		if d == vnet.Keep {
			d = vnet.Parse(&f, &l2, &p)
		}
		if d == vnet.Keep {
			t.Errorf("%d bytes were accepted", n)
		}
	}
}

// FuzzCheck: what Check and Parse accept lies inside the frame.
func FuzzCheck(f *testing.F) {
	for _, s := range []vnettest.Spec{
		spec(nil),
		spec(func(s *vnettest.Spec) { s.UDP, s.Tags = true, []uint16{1} }),
		spec(func(s *vnettest.Spec) {
			s.V6, s.Tags = true, []uint16{1, 2}
			s.Ext = []vnettest.Ext{vnettest.HopByHop, vnettest.Routing}
		}),
	} {
		s.Payload = s.Payload[:1100]
		fr := vnettest.Super(s)
		data := make([]byte, vnet.HeaderLen)
		fr.Hdr.Encode(data)
		f.Add(fr.AppendTo(data), fr.Len())
		f.Add(fr.AppendTo(data), vnet.MaxHeaders)
	}
	tunnelled(func(_ string, _ vnettest.Encap, fr vnet.Frame) {
		data := make([]byte, vnet.HeaderLen)
		fr.Hdr.Encode(data)
		f.Add(fr.AppendTo(data), vnet.MaxHeaders)
	})
	f.Fuzz(func(t *testing.T, data []byte, head int) {
		if len(data) < vnet.HeaderLen {
			return
		}
		var f vnet.Frame
		f.Hdr.Decode(data)
		data = data[vnet.HeaderLen:]
		// As Frame promises: at least MaxHeaders bytes in the head if there are.
		head = min(max(head, vnet.MaxHeaders), len(data))
		f.Head = data[:head:head]
		if head < len(data) {
			f.Body = [][]byte{data[head:]}
		}
		n := f.Len()
		var l2 vnet.L2
		var p vnet.Packet
		d := f.Check(&l2)
		if d == vnet.Keep && f.Hdr.GSO != vnet.GSONone {
			d = vnet.Parse(&f, &l2, &p)
		}
		if kind := f.Tunnel(); f.Hdr.Check(n) == vnet.Keep && d == vnet.DropUnsupportedGSO != (kind != vnet.NoTunnel) {
			t.Fatalf("%v, and in a tunnel of kind %d: %+v", d, kind, f.Hdr)
		}
		if f.Check(&l2) != vnet.Keep {
			return
		}
		if n < vnet.EthLen || l2.Len > len(f.Head) || l2.Len != vnet.EthLen+l2.Tags*vnet.VLANLen {
			t.Fatalf("%d bytes accepted: %+v", n, l2)
		}
		if f.Hdr.Flags&vnet.NeedsCsum != 0 && int(f.Hdr.CsumStart)+int(f.Hdr.CsumOffset)+2 > n {
			t.Fatalf("%d bytes accepted with %+v", n, f.Hdr)
		}
		if f.Hdr.GSO == vnet.GSONone || vnet.Parse(&f, &l2, &p) != vnet.Keep {
			return
		}
		if p.L3 != l2.Len || p.L4 < p.L3+vnet.IPv4Len || p.Payload < p.L4+vnet.UDPLen ||
			p.Payload > len(f.Head) || p.Payload > vnet.MaxHeaders {
			t.Fatalf("head of %d bytes accepted: %+v", len(f.Head), p)
		}
		if f.Hdr.GSOSize == 0 || f.Hdr.GSOSize > vnet.MaxGSOSize {
			t.Fatalf("accepted: %+v", f.Hdr)
		}
	})
}
