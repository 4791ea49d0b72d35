package offload

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// seeds are what senders leave in the checksum field of a frame that needs its
// checksum, beside the pseudo-header sum of the real length.
var seeds = []struct {
	name string
	// of is the field, where right is the sum of the real length.
	of func(right uint16, length int) uint16
}{
	{"zero", func(uint16, int) uint16 { return 0 }},
	{"all ones", func(uint16, int) uint16 { return 0xffff }},
	{"without the length", func(right uint16, length int) uint16 { return vnettest.Reseed(right, length, 0) }},
	{"the length of a segment", func(right uint16, length int) uint16 {
		return vnettest.Reseed(right, length, 1020)
	}},
	{"the length of the whole frame", func(right uint16, length int) uint16 {
		return vnettest.Reseed(right, length, length+34)
	}},
}

// TestSeedIsSet: what the checksum field holds is of no account in a frame that is
// cut, or that is one segment with a GSO type.
func TestSeedIsSet(t *testing.T) {
	udp := vnettest.Spec{UDP: true, Payload: vnettest.Pattern(9001), GSOSize: 1000}
	one := vnettest.Spec{UDP: true, Payload: vnettest.Pattern(900), GSOSize: 1000}
	for _, c := range []struct {
		name string
		spec vnettest.Spec
	}{
		{"TCP", tcp(9001, 1000)},
		{"BIG TCP", tcp(200001, 1000)},
		{"one TCP segment", tcp(900, 1000)},
		{"UDP", udp},
		{"one UDP segment", one},
	} {
		for _, v6 := range []bool{false, true} {
			s := c.spec
			s.V6 = v6
			at := csumAt(s)
			for _, seed := range seeds {
				t.Run(fmt.Sprintf("%s/v6=%v/%s", c.name, v6, seed.name), func(t *testing.T) {
					f := vnettest.Super(s)
					field := f.Head[at:][:2]
					right := binary.BigEndian.Uint16(field)
					binary.BigEndian.PutUint16(field, seed.of(right, f.Len()-int(f.Hdr.CsumStart)))
					sameWire(t, segment(t, &f, 100), vnettest.Segments(s), at)
					form := vnet.FormNone
					if v6 {
						form = vnet.FormPlain
					}
					sameFrames(t, resegment(t, &f, 70000, 30, form, 100), vnettest.Chunks(s, 30, form))
				})
			}
		}
	}
}

// TestUDPLengthIsOfNoAccount: a segment gets its own, and a checksum that fits it.
func TestUDPLengthIsOfNoAccount(t *testing.T) {
	s := vnettest.Spec{UDP: true, Payload: vnettest.Pattern(9000), GSOSize: 1000}
	f := vnettest.Super(s)
	binary.BigEndian.PutUint16(f.Head[csumAt(s)-vnet.UDPCsumOffset+udpLength:], 0x4321)
	sameBytes(t, segment(t, &f, 100), vnettest.Segments(s))
	sameFrames(t, resegment(t, &f, 4000, 3, vnet.FormNone, 100), vnettest.Chunks(s, 3, vnet.FormNone))
}

// TestSeedOfOnePaddedSegment: the length that counts is what the headers say, unless
// that cannot be.
func TestSeedOfOnePaddedSegment(t *testing.T) {
	for _, udp := range []bool{false, true} {
		for _, v6 := range []bool{false, true} {
			s := vnettest.Spec{V6: v6, UDP: udp, Payload: vnettest.Pattern(3), GSOSize: 1000}
			at := csumAt(s)
			want := append(vnettest.Segments(s)[0], 0, 0, 0, 0)
			f := vnettest.Super(s)
			binary.BigEndian.PutUint16(f.Head[at:], 0)
			f.Head = append(f.Head, 0, 0, 0, 0)
			sameWire(t, segment(t, &f, 1), [][]byte{want}, at)
			one := resegment(t, &f, 65535, 10, vnet.FormNone, 1)[0]
			if got, right := one.Head[at:at+2], vnettest.Super(s).Head[at:at+2]; !bytes.Equal(got, right) {
				t.Errorf("udp=%v v6=%v: seed %x, want %x", udp, v6, got, right)
			}

			// Lengths that cannot be, in all three places.
			for _, n := range []uint16{0, 7, 0xffff} {
				f := vnettest.Super(s)
				l4 := int(f.Hdr.CsumStart)
				right := bytes.Clone(f.Head[at : at+2])
				binary.BigEndian.PutUint16(f.Head[at:], 0)
				length := vnet.EthLen + ipv4TotalLen
				switch {
				case udp:
					length = l4 + udpLength
				case v6:
					length = vnet.EthLen + ipv6PayloadLen
				}
				binary.BigEndian.PutUint16(f.Head[length:], n)
				one := resegment(t, &f, 65535, 10, vnet.FormNone, 1)[0]
				if got := one.Head[at : at+2]; !bytes.Equal(got, right) {
					t.Errorf("udp=%v v6=%v, length %d: seed %x, want %x", udp, v6, n, got, right)
				}
			}
		}
	}
}

// TestSeedOfFinalAddresses: the pseudo-header has the final destination of a packet
// that is source-routed, and a mobile node's home address.
func TestSeedOfFinalAddresses(t *testing.T) {
	dst4, dst6 := make([]byte, 4), make([]byte, 16) // see below
	src6 := make([]byte, 16)
	mid4, mid6 := vnettest.Pattern(4), vnettest.Pattern(16)
	routing := func(kind, left byte, rest ...[]byte) []vnettest.Ext {
		data := append([]byte{kind, left}, 0, 0, 0, 0)
		return []vnettest.Ext{{Proto: vnet.ProtoRouting, Data: append(data, slices.Concat(rest...)...)}}
	}
	options := func(b ...byte) []vnettest.Ext {
		return []vnettest.Ext{vnettest.HopByHop, {Proto: vnet.ProtoDestOpts, Data: b}}
	}
	plain := vnettest.Super(tcp(1, 0))
	copy(dst4, plain.Head[vnet.EthLen+ipv4Addrs+4:])
	plain = vnettest.Super(with(tcp(1, 0), func(s *vnettest.Spec) { s.V6 = true }))
	copy(src6, plain.Head[vnet.EthLen+ipv6Addrs:])
	copy(dst6, plain.Head[vnet.EthLen+ipv6Addrs+16:])

	for _, c := range []struct {
		name    string
		ext     []vnettest.Ext
		options []byte // IPv4
		src     bool   // the IP header's source is another
		dst     bool   // the IP header's destination is another
		kept    bool   // the field counts, as the pseudo-header is not known
	}{
		{name: "routing type 0", ext: routing(0, 2, mid6, dst6), dst: true},
		{name: "routing type 2", ext: routing(2, 1, dst6), dst: true},
		{name: "segment routing", ext: routing(4, 1, dst6, mid6), dst: true},
		{name: "segment routing with a TLV", ext: routing(4, 1, dst6, mid6, make([]byte, 8)), dst: true},
		{name: "two routing headers", ext: append(routing(0, 0, mid6), routing(4, 1, dst6)...), dst: true},
		{name: "a route at its end", ext: routing(0, 0, mid6, mid6)},
		{name: "segment routing at its end", ext: routing(4, 0, mid6, mid6)},
		{name: "an unknown route at its end", ext: routing(253, 0, mid6)},
		{name: "an unknown route", ext: routing(253, 1, mid6), dst: true, kept: true},
		{name: "a route without addresses", ext: routing(0, 1), dst: true, kept: true},
		{name: "an unknown route behind a known one",
			ext: append(routing(4, 1, mid6), routing(3, 1, mid6)...), dst: true, kept: true},
		{name: "home address", ext: options(slices.Concat([]byte{1, 2, 0, 0, 0xc9, 16}, src6)...), src: true},
		{name: "home address behind padding of one byte",
			ext: options(slices.Concat([]byte{0, 1, 1, 0, 0xc9, 16}, src6)...), src: true},
		{name: "a home address of another length",
			ext: options(slices.Concat([]byte{1, 1, 0, 0xc9, 17, 0}, mid6)...)},
		{name: "options cut short", ext: options(1, 0, 1, 0, 0xc9, 16)},

		{name: "loose source route", options: slices.Concat([]byte{1, 131, 11, 4}, mid4, dst4), dst: true},
		{name: "strict source route", options: slices.Concat([]byte{137, 7, 4}, dst4, []byte{0}), dst: true},
		{name: "source route behind another option",
			options: slices.Concat([]byte{7, 7, 4, 0, 0, 0, 0, 1, 1, 131, 7, 4}, dst4, make([]byte, 4)), dst: true},
		{name: "source route at its end", options: slices.Concat([]byte{131, 7, 8}, mid4, []byte{0})},
		{name: "source route behind the end of options",
			options: slices.Concat([]byte{0, 3, 0, 131, 7, 4}, mid4, []byte{0, 0})},
		{name: "a source route without addresses", options: []byte{131, 3, 1, 0}},
		{name: "options of no length", options: []byte{130, 0, 131, 4}},
		{name: "options that are cut off", options: []byte{131, 11, 4, 1, 2, 3, 4, 0}},
		{name: "an option that is cut off", options: []byte{1, 1, 1, 131}},
	} {
		try := func(udp, wrong bool, size int) {
			s := tcp(9000, size)
			s.UDP, s.V6, s.Ext, s.IPOptions = udp, c.options == nil, c.ext, c.options
			f := vnettest.Super(s)
			at := int(f.Hdr.CsumStart) + int(f.Hdr.CsumOffset)
			src, n, other := vnet.EthLen+ipv4Addrs, ipv4AddrLen, mid4
			if s.V6 {
				src, n, other = vnet.EthLen+ipv6Addrs, ipv6AddrLen, mid6
			}
			addrs := bytes.Clone(f.Head[src:][:2*n])
			if c.src {
				copy(f.Head[src:], other)
			}
			if c.dst {
				copy(f.Head[src+n:], other)
			}
			if wrong {
				binary.BigEndian.PutUint16(f.Head[at:], 0)
			}
			_, p := parse(t, &f)
			for i, packet := range segment(t, &f, 100) {
				sum := sumOf(addrs, p.Proto, packet[p.L4:])
				if right, want := sum == 0xffff, !c.kept || !wrong; right != want {
					t.Errorf("%s, udp=%v, wrong=%v, segments of %d: segment %d sums to %#x",
						c.name, udp, wrong, size, i, sum)
					return
				}
			}
		}
		for _, udp := range []bool{false, true} {
			for _, wrong := range []bool{false, true} {
				try(udp, wrong, 1000)
				try(udp, wrong, 10000) // one segment
			}
		}
	}
}

// sumOf is the sum of a pseudo-header with these addresses (RFC 9293, 3.1; RFC 8200,
// 8.1) and what it is for. With a right checksum it is 0xffff.
func sumOf(addrs []byte, proto uint8, l4 []byte) uint16 {
	b := binary.BigEndian.AppendUint32(bytes.Clone(addrs), uint32(len(l4)))
	b = append(b, 0, 0, 0, proto)
	return vnettest.Sum(append(b, l4...))
}
