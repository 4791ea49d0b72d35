package probe

import (
	"encoding/binary"
	"testing"

	"sluice/vnet"
)

func TestByRelease(t *testing.T) {
	none := Ability{MaxWrite: 65535}
	hbh := Ability{IPv4: true, IPv6: vnet.FormHBH, MaxWrite: 524279}
	v4only := Ability{IPv4: true, MaxWrite: 524279}
	plain := Ability{IPv4: true, IPv6: vnet.FormPlain, MaxWrite: 524279}
	for _, c := range []struct {
		release     string
		tap, packet Ability
	}{
		{"5.15.0-91-generic", none, none},
		{"6.1.0-18-amd64", none, none},
		{"6.5.13", none, none},
		{"6.6.44", hbh, v4only},
		{"6.12.41+deb13-amd64", hbh, v4only},
		{"6.18.44", hbh, v4only},
		{"6.19-rc3", hbh, v4only},
		{"7.0.0", plain, plain},
		{"7.3.4", plain, plain},
		{"10.0", plain, plain},
		{"", none, none},
		{"unknown", none, none},
	} {
		tap, packet := byRelease(c.release)
		if tap != c.tap || packet != c.packet {
			t.Errorf("%q: tap %+v, packet %+v, want %+v, %+v", c.release, tap, packet, c.tap, c.packet)
		}
	}
}

func TestShapesAreWellFormed(t *testing.T) {
	dst := []byte{2, 0, 0, 0, 0, 1}
	for _, c := range []struct {
		name     string
		shape    shape
		received int // by a raw socket
		length   int // given by the IP header
		headers  int
	}{
		{"IPv4 small", shape{n: 200}, 186, 186, 54},
		{"IPv4 65535", shape{n: 65549}, 65535, 65535, 54},
		{"IPv4 big", shape{n: 70054}, 70040, 0, 54},
		{"IPv6 small", shape{v6: true, n: 200}, 146, 146, 74},
		{"IPv6 plain", shape{v6: true, form: vnet.FormPlain, n: 524279}, 524225, 0, 74},
		{"IPv6 hop-by-hop", shape{v6: true, form: vnet.FormHBH, n: 70082}, 70020, 0, 82},
	} {
		f := c.shape.build(dst)
		var l2 vnet.L2
		var p vnet.Packet
		if d := f.Check(&l2); d != vnet.Keep || f.Len() != c.shape.n || l2.Dst != 0x020000000001 {
			t.Errorf("%s: %v, %d bytes to %v", c.name, d, f.Len(), l2.Dst)
		}
		parse := vnet.Parse
		if f.Hdr.GSO == vnet.GSONone {
			parse = vnet.ParseNetwork
		}
		if d := parse(&f, &l2, &p); d != vnet.Keep || p.V6 != c.shape.v6 || p.Proto != vnet.ProtoTCP ||
			p.Jumbo != (c.shape.form == vnet.FormHBH) || p.L4 != c.headers-vnet.TCPLen {
			t.Errorf("%s: %v, %+v", c.name, d, p)
		}
		if big := c.shape.n > 1500; big != (f.Hdr.GSO != vnet.GSONone) || big && p.Payload != c.headers {
			t.Errorf("%s: header %+v, %+v", c.name, f.Hdr, p)
		}
		if got := c.shape.received(); got != c.received {
			t.Errorf("%s: a raw socket receives %d bytes, want %d", c.name, got, c.received)
		}
		ip := f.Head[vnet.EthLen:]
		length := binary.BigEndian.Uint16(ip[2:])
		if c.shape.v6 {
			length = binary.BigEndian.Uint16(ip[4:])
		}
		if int(length) != c.length {
			t.Errorf("%s: length field %d, want %d", c.name, length, c.length)
		}
		if p.Jumbo {
			got, want := binary.BigEndian.Uint32(ip[vnet.IPv6Len+4:]), len(ip)-vnet.IPv6Len
			if int(got) != want {
				t.Errorf("%s: jumbo length %d, want %d", c.name, got, want)
			}
		}
		if !c.shape.v6 {
			sum := 0
			for i := 0; i < vnet.IPv4Len; i += 2 {
				sum += int(binary.BigEndian.Uint16(ip[i:]))
			}
			for sum > 0xffff {
				sum = sum>>16 + sum&0xffff
			}
			if sum != 0xffff {
				t.Errorf("%s: header checksum leaves %04x, want ffff", c.name, sum)
			}
		}
	}
}
