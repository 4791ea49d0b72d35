package vnet_test

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// verdict is what Check and Parse say of a frame with a GSO type.
func verdict(f *vnet.Frame) vnet.Drop {
	var l2 vnet.L2
	var p vnet.Packet
	if d := f.Check(&l2); d != vnet.Keep {
		return d
	}
	return vnet.Parse(f, &l2, &p)
}

// tunnelled calls do with each kind of tunnel, inner and outer family, with and without a
// checksum of the outer UDP header, TCP and UDP inside, with and without NEEDS_CSUM.
func tunnelled(do func(name string, e vnettest.Encap, f vnet.Frame)) {
	outers := []struct {
		name string
		v6   bool
		ext  []vnettest.Ext
	}{
		{"IPv4", false, nil},
		{"IPv6", true, nil},
		// ip6tnl puts its encapsulation limit there (RFC 2473, 4.1.1), SRv6 a routing header.
		{"IPv6 with options", true, []vnettest.Ext{vnettest.DestOpts, vnettest.Routing}},
	}
	inners := []struct {
		name string
		edit func(*vnettest.Spec)
	}{
		{"TCP", func(*vnettest.Spec) {}},
		{"TCP without NEEDS_CSUM", func(s *vnettest.Spec) { s.Csum = vnettest.Zero }},
		{"UDP", func(s *vnettest.Spec) { s.UDP = true }},
		{"tagged TCP", func(s *vnettest.Spec) { s.Tags = []uint16{1, 2} }},
		{"TCP with options in IP", func(s *vnettest.Spec) {
			s.IPOptions, s.Ext = make([]byte, 40), []vnettest.Ext{vnettest.HopByHop, vnettest.Routing}
		}},
	}
	for _, e := range vnettest.Encaps {
		for _, outer := range outers {
			for _, inner := range inners {
				for _, v6 := range []bool{false, true} {
					for _, outerCsum := range []bool{false, true} {
						name := fmt.Sprintf("%s in %s over %s, v6=%v, outer checksum %v",
							inner.name, e.Name, outer.name, v6, outerCsum)
						s := spec(func(s *vnettest.Spec) { s.V6 = v6 })
						inner.edit(&s)
						do(name, e, e.Wrap(s, outer.v6, outerCsum, outer.ext...))
					}
				}
			}
		}
	}
}

func TestTunnelsAreUnsupported(t *testing.T) {
	tunnelled(func(name string, e vnettest.Encap, f vnet.Frame) {
		if d := verdict(&f); d != vnet.DropUnsupportedGSO {
			t.Errorf("%s: %v", name, d)
		}
		if got := f.Tunnel(); got != e.Kind {
			t.Errorf("%s: kind %d, want %d", name, got, e.Kind)
		}
		scattered := vnettest.Scatter(f, vnet.MaxHeaders, 100)
		if d := verdict(&scattered); d != vnet.DropUnsupportedGSO {
			t.Errorf("%s, scattered: %v", name, d)
		}
	})
}

// TestTunnelsThatAreNone: a tunnel whose inner packet is not what the virtio-net header
// says is malformed.
func TestTunnelsThatAreNone(t *testing.T) {
	tunnelled(func(name string, e vnettest.Encap, whole vnet.Frame) {
		needs := whole.Hdr.Flags&vnet.NeedsCsum != 0
		for what, edit := range map[string]func(f *vnet.Frame){
			"another protocol inside": func(f *vnet.Frame) {
				if f.Hdr.GSO.Type() == vnet.GSOUDPL4 {
					f.Hdr.GSO, f.Hdr.CsumOffset = vnet.GSOTCPv4, vnet.TCPCsumOffset
				} else {
					f.Hdr.Flags, f.Hdr.CsumStart = vnet.NeedsCsum, f.Hdr.HdrLen-32
					f.Hdr.GSO, f.Hdr.CsumOffset = vnet.GSOUDPL4, vnet.UDPCsumOffset
				}
			},
			"the other family inside": func(f *vnet.Frame) {
				switch f.Hdr.GSO.Type() {
				case vnet.GSOTCPv4:
					f.Hdr.GSO = vnet.GSOTCPv6
				case vnet.GSOTCPv6:
					f.Hdr.GSO = vnet.GSOTCPv4
				case vnet.GSOUDPL4:
					f.Hdr.CsumStart -= 8
				}
			},
			"csum_start 2 too far": func(f *vnet.Frame) {
				f.Hdr.Flags, f.Hdr.CsumStart = vnet.NeedsCsum, f.Hdr.HdrLen-30
			},
			"zeros inside": func(f *vnet.Frame) {
				var l2 vnet.L2
				var p vnet.Packet
				f.Check(&l2)
				if d := vnet.ParseNetwork(f, &l2, &p); d != vnet.Keep {
					t.Fatal(d)
				}
				clear(f.Head[p.L4:])
			},
			"a protocol outside that carries no tunnel": func(f *vnet.Frame) {
				if f.Head[12] == 0x08 {
					f.Head[23] = 1
				} else {
					f.Head[20] = 59
				}
			},
			"ARP outside": func(f *vnet.Frame) { f.Head[12], f.Head[13] = 0x08, 0x06 },
			"the other version outside": func(f *vnet.Frame) {
				f.Head[14] ^= 0x20
			},
		} {
			f := whole.Clone()
			edit(&f)
			if d := verdict(&f); d != vnet.DropBadGSO {
				t.Errorf("%s, %s: %v", name, what, d)
			}
			if got := f.Tunnel(); got != vnet.NoTunnel {
				t.Errorf("%s, %s: kind %d", name, what, got)
			}
		}
		// Without csum_start the inner packet is where it looks like one.
		if !needs {
			f := whole.Clone()
			f.Head[int(f.Hdr.HdrLen)-32+12] = 0x40 // a data offset of 4
			if d := verdict(&f); d != vnet.DropBadGSO {
				t.Errorf("%s, data offset 4: %v", name, d)
			}
		}
	})
}

// TestTunnelBytes: super-packets of VXLAN netdevs as a packet socket gave them on 6.18, and
// the same with one bit wrong.
func TestTunnelBytes(t *testing.T) {
	for _, c := range []struct {
		name    string
		hdr     vnet.Header
		len     int
		headers string // without the last TCP option
	}{
		{"IPv4 in IPv4, no outer checksum",
			vnet.Header{Flags: 1, GSO: vnet.GSOTCPv4, HdrLen: 128, GSOSize: 1386, CsumStart: 84, CsumOffset: 16}, 13988,
			`9ebec4420032d60bd4d2a97f0800
			45003696acd30000401183810a0000010a000002
			b47312b5368200000800000000000700
			1283d43f1ecb22049b7a0bec0800
			45003664f86340004006f82b0a0100010a010002
			a0d2961ddb76948282925f67b01800464a5b00000101080ab9c6b000b11f91330101050a8292908d`},
		{"IPv6 in IPv4, outer checksum",
			vnet.Header{Flags: 1, GSO: vnet.GSOTCPv6, HdrLen: 148, GSOSize: 1366, CsumStart: 104, CsumOffset: 16}, 13808,
			`2e7f4912d85b8a1c6ef3f2c40800
			450035e2ce360000401162d20a0000010a000002
			801212b535ce49e20800000000000700
			42b4042cafb42a80c68c2da886dd
			60020ad235880640fd010000000000000000000000000001fd010000000000000000000000000002
			9a8e86cb0ccec9daedae6c96b01800462f9500000101080a2678fc7373b5de230101050aedae9d08`},
		{"IPv4 in IPv6, no outer checksum",
			vnet.Header{Flags: 1, GSO: vnet.GSOTCPv4, HdrLen: 148, GSOSize: 1366, CsumStart: 104, CsumOffset: 16}, 13808,
			`3ea1f7c1397d8273168361df86dd
			6000000035ba1140fd000000000000000000000000000001fd000000000000000000000000000002
			82f612b535ba00000800000000000700
			0e82e434c14fb2dc08e84cbe0800
			4500359ce4f7400040060c600a0100010a010002
			cb5a94a73dcebaea8e402182b0180046499300000101080ad326acfdb8abd1620101050a8e4051f4`},
		{"IPv6 in IPv6, outer checksum",
			vnet.Header{Flags: 1, GSO: vnet.GSOTCPv6, HdrLen: 168, GSOSize: 1346, CsumStart: 124, CsumOffset: 16}, 13628,
			`fa9209d681690e1b1573bee986dd
			6000000035061140fd000000000000000000000000000001fd000000000000000000000000000002
			ea3812b535062f1c0800000000000700
			4252dd3a848776af232070cd86dd
			6001176734c00640fd010000000000000000000000000001fd010000000000000000000000000002
			ce109d79daf6d2a866f2bf53b01800452ecd00000101080ac0e632074d23d6340101050a66f2ef11`},
	} {
		headers, err := hex.DecodeString(strings.Join(strings.Fields(c.headers), ""))
		if err != nil {
			t.Fatal(err)
		}
		f := vnet.Frame{Hdr: c.hdr, Head: append(headers, make([]byte, c.len-len(headers))...)}
		if d, k := verdict(&f), f.Tunnel(); d != vnet.DropUnsupportedGSO || k != vnet.TunnelUDP {
			t.Errorf("%s: %v, kind %d", c.name, d, k)
		}
		start := int(c.hdr.CsumStart)
		protocol := start - 34 // of the inner IPv6 header
		if c.hdr.GSO == vnet.GSOTCPv4 {
			protocol = start - 11
		}
		f.Head[protocol] ^= 1
		if d, k := verdict(&f), f.Tunnel(); d != vnet.DropBadGSO || k != vnet.NoTunnel {
			t.Errorf("%s, with another protocol inside: %v, kind %d", c.name, d, k)
		}
	}
}

// TestLongestTunnelHeader is Geneve's with 252 bytes of options, and two tags inside. A packet that
// begins later is not found.
func TestLongestTunnelHeader(t *testing.T) {
	e := vnettest.Encaps[1]
	e.Header = append(slices.Clone(e.Header[:16]), make([]byte, 252)...)
	tags := func(n int) vnettest.Spec {
		return spec(func(s *vnettest.Spec) { s.Tags = make([]uint16, n) })
	}
	for n, want := range map[int]vnet.Drop{2: vnet.DropUnsupportedGSO, 6: vnet.DropBadGSO} {
		f := e.Wrap(tags(n), false, false)
		if d := verdict(&f); d != want {
			t.Errorf("%d tags inside: %v, want %v", n, d, want)
		}
	}
}

// TestTagsAndLabelsOutside: a third VLAN tag and MPLS labels hide the IP header, but only from the
// switch.
func TestTagsAndLabelsOutside(t *testing.T) {
	for name, outside := range map[string][]byte{
		"third tag": {0x81, 0, 0, 3},
		"two more":  {0x81, 0, 0, 3, 0x81, 0, 0, 4},
	} {
		for _, v6 := range []bool{false, true} {
			f := vnettest.Super(spec(func(s *vnettest.Spec) { s.V6, s.Tags = v6, []uint16{1, 2} }))
			f.Head = slices.Insert(f.Head, 20, outside...)
			f.Hdr.CsumStart += uint16(len(outside))
			if d, k := verdict(&f), f.Tunnel(); d != vnet.DropUnsupportedGSO || k != vnet.TunnelTags {
				t.Errorf("%s, v6=%v: %v, kind %d", name, v6, d, k)
			}
		}
	}
	f := vnettest.Super(spec(nil))
	f.Head[12], f.Head[13] = 0x88, 0x47
	f.Head = slices.Insert(f.Head, 14, 0, 1, 1, 64) // label 16, the last one
	f.Hdr.CsumStart += 4
	if d, k := verdict(&f), f.Tunnel(); d != vnet.DropUnsupportedGSO || k != vnet.TunnelTags {
		t.Errorf("MPLS: %v, kind %d", d, k)
	}
}
