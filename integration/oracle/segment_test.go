package oracle_test

import (
	"fmt"
	"slices"
	"testing"

	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// rule is a super-packet and the rule that cutting it shows.
type rule struct {
	name  string
	spec  vnettest.Spec
	edits []func(*vnet.Frame) // behind the builder's back, in this order
}

func (r rule) frame() vnet.Frame {
	f := vnettest.Super(r.spec)
	for _, edit := range r.edits {
		edit(&f)
	}
	return f
}

// asked is the frame that the kernel is asked about: that of the rule, but for one
// of a single segment with TCP options. virtio_net_hdr_to_skb takes such a frame
// for no super-packet only if there are no options, as it looks for the payload 20
// bytes behind csum_start; tcp_gso_segment then finds that there is nothing to cut,
// and the kernel loses it. So it is asked about the same frame without GSO type.
func (r rule) asked() vnet.Frame {
	f := r.frame()
	if len(r.spec.Payload) <= r.spec.GSOSize && len(r.spec.TCPOptions) > 0 {
		f.Hdr.GSO, f.Hdr.GSOSize = vnet.GSONone, 0
	}
	return f
}

// tcp is the plain super-packet, with something in every field.
func tcp(payload, gsoSize int) vnettest.Spec {
	return vnettest.Spec{
		Payload: vnettest.Pattern(payload), GSOSize: gsoSize,
		ID: 0x1234, Seq: 0xfedcba98, Ack: 0x01020304, Window: 0x0203,
		TCPFlags: vnettest.ACK, TCPOptions: vnettest.Timestamps,
		Form: vnet.FormHBH,
	}
}

func udp(payload, gsoSize int) vnettest.Spec {
	return vnettest.Spec{UDP: true, Payload: vnettest.Pattern(payload), GSOSize: gsoSize, ID: 0x4321}
}

func with(s vnettest.Spec, edit func(*vnettest.Spec)) vnettest.Spec {
	edit(&s)
	return s
}

// options is n bytes of IPv4 options: record route with room for one address,
// then no-operation.
func options(n int) []byte {
	o := append([]byte{7, 7, 4, 0, 0, 0, 0}, slices.Repeat([]byte{1}, 40)...)
	if n < 8 {
		o = o[7:]
	}
	return o[:n]
}

// offsets of f's IP and transport headers. The frame is one that the switch
// accepts.
func offsets(f *vnet.Frame) vnet.Packet {
	_, p, d := parse(f)
	if d != vnet.Keep {
		panic(fmt.Sprintf("dropped: %v", d))
	}
	return p
}

// atIP and atL4 write a 16-bit field of the IP and of the transport header.
func atIP(offset int, v uint16) func(*vnet.Frame) {
	return func(f *vnet.Frame) { put16(f, offsets(f).L3+offset, v) }
}

func atL4(offset int, v uint16) func(*vnet.Frame) {
	return func(f *vnet.Frame) { put16(f, offsets(f).L4+offset, v) }
}

func hdrLen(n func(f *vnet.Frame) int) func(*vnet.Frame) {
	return func(f *vnet.Frame) { f.Hdr.HdrLen = uint16(n(f)) }
}

// everywhere are the rules of both families.
func everywhere() []rule {
	const csum = vnet.TCPCsumOffset
	all := func(s *vnettest.Spec) { s.TCPFlags = 0xfff; s.Urgent = 77 }
	rules := []rule{
		{name: "sequence numbers and IDs advance", spec: tcp(14480, 1448)},
		{name: "FIN and PSH are the last segment's", spec: with(tcp(5000, 1000), func(s *vnettest.Spec) {
			s.TCPFlags |= vnettest.FIN | vnettest.PSH
		})},
		{name: "CWR is the first segment's, ECE everybody's", spec: with(tcp(5000, 1000), func(s *vnettest.Spec) {
			s.TCPFlags |= vnettest.CWR | vnettest.ECE | vnettest.PSH
		})},
		{name: "CWR without the ECN bit is the same", spec: with(tcp(5000, 1000), func(s *vnettest.Spec) {
			s.TCPFlags |= vnettest.CWR
		}), edits: []func(*vnet.Frame){func(f *vnet.Frame) { f.Hdr.GSO &^= vnet.GSOECN }}},
		{name: "the ECN bit without CWR changes nothing", spec: tcp(5000, 1000),
			edits: []func(*vnet.Frame){func(f *vnet.Frame) { f.Hdr.GSO |= vnet.GSOECN }}},
		{name: "all other flags are everybody's", spec: with(tcp(5000, 1000), all)},
		{name: "AE is everybody's", spec: with(tcp(5000, 1000), func(s *vnettest.Spec) { s.TCPFlags |= vnettest.AE })},
		{name: "a tail of one byte", spec: tcp(4285, 1428)},
		{name: "odd segments", spec: tcp(10001, 777)},
		{name: "segments of one byte", spec: tcp(200, 1)},
		{name: "two segments", spec: tcp(1449, 1448)},
		{name: "no options", spec: with(tcp(5000, 1460), func(s *vnettest.Spec) { s.TCPOptions = nil })},
		{name: "options of 40 bytes are everybody's", spec: with(tcp(5000, 1400), func(s *vnettest.Spec) {
			s.TCPOptions = slices.Concat(vnettest.Timestamps, vnettest.Pattern(28))
		})},
		{name: "sequence numbers wrap", spec: with(tcp(14480, 1448), func(s *vnettest.Spec) { s.Seq = 0xfffff000 })},
		{name: "class and flow label are everybody's", spec: with(tcp(5000, 1000), func(s *vnettest.Spec) {
			s.TOS, s.FlowLabel = 0xbb, 0xabcde
		})},
		{name: "greatest segments", spec: tcp(200001, mtu-vnet.IPv6Len-vnet.TCPLen-len(vnettest.Timestamps))},
		{name: "a payload one byte below gso_size is no super-packet", spec: tcp(1447, 1448)},
		{name: "a payload of gso_size is no super-packet", spec: tcp(1448, 1448)},
		{name: "a payload of gso_size without options is no super-packet",
			spec: with(tcp(1460, 1460), func(s *vnettest.Spec) { s.TCPOptions = nil })},
		{name: "one byte more without options is two segments",
			spec: with(tcp(1461, 1460), func(s *vnettest.Spec) { s.TCPOptions = nil })},
		{name: "no payload is no super-packet", spec: tcp(0, 1448)},
		{name: "hdr_len 0", spec: tcp(14480, 1448), edits: []func(*vnet.Frame){hdrLen(func(*vnet.Frame) int { return 0 })}},
		{name: "hdr_len that ends within the headers", spec: tcp(14480, 1448),
			edits: []func(*vnet.Frame){hdrLen(func(f *vnet.Frame) int { return offsets(f).L4 })}},
		{name: "hdr_len of the whole frame", spec: tcp(14480, 1448),
			edits: []func(*vnet.Frame){hdrLen((*vnet.Frame).Len)}},
		{name: "a wrong seed stays wrong", spec: tcp(5000, 1000), edits: []func(*vnet.Frame){atL4(csum, 0x1234)}},
		{name: "a seed of 0 stays wrong", spec: tcp(5000, 1000), edits: []func(*vnet.Frame){atL4(csum, 0)}},
		{name: "a seed of 0xffff stays wrong", spec: tcp(5000, 1000), edits: []func(*vnet.Frame){atL4(csum, 0xffff)}},
		{name: "without NEEDS_CSUM the seed is made of the addresses", spec: with(tcp(5000, 1000), func(s *vnettest.Spec) {
			s.Csum = vnettest.Full
		})},
		{name: "without NEEDS_CSUM the old checksum is of no account", spec: with(tcp(5000, 1000), func(s *vnettest.Spec) {
			s.Csum = vnettest.Zero
		})},
		{name: "without NEEDS_CSUM one segment keeps its wrong checksum", spec: with(tcp(1000, 1000), func(s *vnettest.Spec) {
			s.Csum = vnettest.Full
		}), edits: []func(*vnet.Frame){atL4(csum, 0x1234)}},
		{name: "without NEEDS_CSUM many segments", spec: with(tcp(60000, 536), func(s *vnettest.Spec) {
			s.Csum = vnettest.Full
		})},

		{name: "UDP: length and checksum are each segment's own", spec: udp(14001, 1400)},
		{name: "UDP: odd segments", spec: udp(7001, 777)},
		{name: "UDP: 128 segments of one byte", spec: udp(128, 1)},
		{name: "UDP: a payload of gso_size is no super-packet", spec: udp(1400, 1400)},
		{name: "UDP: one byte more is two segments", spec: udp(1401, 1400)},
		{name: "UDP: no payload is no super-packet", spec: udp(0, 1400)},
		{name: "UDP: longest datagram", spec: udp(0xffff-vnet.UDPLen-vnet.IPv4Len, 1400)},
		{name: "UDP: class and flow label are everybody's", spec: with(udp(5000, 1000), func(s *vnettest.Spec) {
			s.TOS, s.FlowLabel = 0xbb, 0xabcde
		})},
		{name: "UDP: a wrong seed stays wrong", spec: udp(5000, 1000),
			edits: []func(*vnet.Frame){atL4(vnet.UDPCsumOffset, 0x1234)}},
		{name: "UDP: a wrong length makes wrong checksums", spec: udp(5000, 1000),
			edits: []func(*vnet.Frame){atL4(4, 1234)}},
		{name: "UDP: a checksum of 0 is sent as 0xffff", spec: zeroSums(udp(5000, 1000))},
	}
	for _, s := range []int{-1, 0, 1} { // the first length that 16 bits cannot say, and its neighbours
		for what, over := range map[string]int{
			"total length or payload length": vnet.IPv4Len,
			"payload length":                 0,
			"frame":                          vnet.EthLen + vnet.IPv4Len,
			"TCP segment":                    vnet.TCPLen + len(vnettest.Timestamps),
		} {
			if what != "TCP segment" {
				over += vnet.TCPLen + len(vnettest.Timestamps)
			}
			rules = append(rules, rule{
				name: fmt.Sprintf("%s of 65536%+d", what, s), spec: tcp(65536+s-over, 1448)})
		}
	}
	return rules
}

// zeroSums is s with payloads so that the checksum of every segment but the last
// is 0: the last two bytes of each make up for all others.
func zeroSums(s vnettest.Spec) vnettest.Spec {
	payload := slices.Clone(s.Payload)
	for from := 0; from+s.GSOSize < len(payload); from += s.GSOSize {
		one := s
		one.GSOSize = 0
		one.Csum = vnettest.Full
		one.Payload = payload[from:][:s.GSOSize:s.GSOSize]
		end := one.Payload[s.GSOSize-2:]
		end[0], end[1] = 0, 0
		f := vnettest.Super(one)
		// With these two bytes at 0 the checksum is what they have to be.
		at := f.Len() - s.GSOSize - vnet.UDPLen + vnet.UDPCsumOffset
		copy(end, f.Head[at:at+2])
	}
	s.Payload = payload
	return s
}

// onlyIPv4 are the rules of IPv4.
func onlyIPv4() []rule {
	rules := []rule{
		{name: "IDs wrap", spec: with(tcp(5000, 1000), func(s *vnettest.Spec) { s.ID = 0xfffe })},
		{name: "UDP: IDs wrap", spec: with(udp(5000, 1000), func(s *vnettest.Spec) { s.ID = 0xfffe })},
		{name: "ID 0 with don't-fragment advances like any other", spec: with(tcp(5000, 1000), func(s *vnettest.Spec) { s.ID = 0 })},
		{name: "may fragment is everybody's", spec: tcp(5000, 1000), edits: []func(*vnet.Frame){atIP(6, 0)}},
		{name: "the evil bit is everybody's", spec: tcp(5000, 1000), edits: []func(*vnet.Frame){atIP(6, 0xc000)}},
		{name: "a wrong header checksum is of no account", spec: tcp(5000, 1000), edits: []func(*vnet.Frame){atIP(10, 0x1234)}},
		{name: "a wrong total length is of no account", spec: tcp(5000, 1000), edits: []func(*vnet.Frame){atIP(2, 777)}},
		{name: "a total length of 0 is of no account", spec: tcp(5000, 1000), edits: []func(*vnet.Frame){atIP(2, 0)}},
		{name: "one segment keeps its wrong header", spec: tcp(1000, 1000),
			edits: []func(*vnet.Frame){atIP(10, 0x1234), atIP(2, 777)}},
	}
	for n := 4; n <= 40; n += 4 {
		for _, s := range []vnettest.Spec{tcp(9000, 1000), udp(9000, 1000)} {
			s.IPOptions = options(n)
			rules = append(rules, rule{name: fmt.Sprintf("IHL %d, UDP %v", 5+n/4, s.UDP), spec: s})
		}
	}
	return rules
}

// onlyIPv6 are the rules of IPv6.
func onlyIPv6() []rule {
	rules := []rule{
		{name: "a wrong payload length is of no account", spec: tcp(5000, 1000), edits: []func(*vnet.Frame){atIP(4, 777)}},
		{name: "a payload length of 0 is of no account", spec: tcp(5000, 1000), edits: []func(*vnet.Frame){atIP(4, 0)}},
		{name: "one segment keeps its wrong header", spec: tcp(1000, 1000), edits: []func(*vnet.Frame){atIP(4, 777)}},
	}
	for _, e := range []struct {
		name string
		ext  []vnettest.Ext
	}{
		{"hop-by-hop", []vnettest.Ext{vnettest.HopByHop}},
		{"routing", []vnettest.Ext{vnettest.Routing}},
		{"destination options", []vnettest.Ext{vnettest.DestOpts}},
		{"all", []vnettest.Ext{vnettest.HopByHop, vnettest.DestOpts, vnettest.Routing, vnettest.DestOpts}},
	} {
		for _, s := range []vnettest.Spec{
			tcp(9000, 1000), udp(9000, 1000),
			with(tcp(9000, 1000), func(s *vnettest.Spec) { s.Csum = vnettest.Full }),
			with(tcp(100000, 1000), func(s *vnettest.Spec) { s.Form = vnet.FormPlain }),
		} {
			s.Ext = e.ext
			rules = append(rules, rule{
				name: fmt.Sprintf("extension headers: %s, UDP %v, payload %d, checksum %d",
					e.name, s.UDP, len(s.Payload), s.Csum),
				spec: s,
			})
		}
	}
	return rules
}

// tagged is the tags of a frame, by name.
var tagged = []struct {
	name string
	tags []uint16
}{
	{"no tag", nil},
	{"a tag", []uint16{0x2064}},
	{"a priority tag", []uint16{0xe000}},
	{"two tags", []uint16{100, 0xe0c8}},
}

// jumboIsNoOracle reports whether the kernel is no oracle for s: a jumbo option
// behind two tags, which 6.18 leaves in every segment.
func jumboIsNoOracle(s vnettest.Spec) bool {
	return s.V6 && s.Form == vnet.FormHBH && len(s.Tags) == 2 && !s.UDP &&
		vnet.TCPLen+len(s.TCPOptions)+len(s.Payload) > 0xffff
}

// rules crosses the rules of a family with tags.
func rules(v6 bool) (all []rule) {
	own := onlyIPv4()
	if v6 {
		own = onlyIPv6()
	}
	for _, r := range append(everywhere(), own...) {
		for _, tag := range tagged {
			c := r
			c.spec.V6, c.spec.Tags = v6, tag.tags
			if jumboIsNoOracle(c.spec) {
				c.spec.Form = vnet.FormPlain
			}
			c.name += "/" + tag.name
			all = append(all, c)
		}
	}
	return all
}

func TestSegmentIsWhatTheKernelMakes(t *testing.T) {
	k := newKernel(t)
	for name, v6 := range families {
		t.Run(name, func(t *testing.T) { sameAll(t, k, rules(v6)) })
	}
}

var families = map[string]bool{"IPv4": false, "IPv6": true}

// sameAll compares what package offload makes of each rule's frame with what the
// kernel makes of it.
func sameAll(t *testing.T, k *kernel, rules []rule) {
	t.Helper()
	frames := make([]vnet.Frame, len(rules))
	asked := make([]vnet.Frame, len(rules))
	for i, r := range rules {
		frames[i] = r.frame()
		asked[i] = r.asked()
	}
	for i, a := range k.wire(t, asked...) {
		t.Run(rules[i].name, func(t *testing.T) {
			if a.err != nil {
				t.Fatalf("the kernel refuses header %+v: %v", asked[i].Hdr, a.err)
			}
			same(t, "Segment", finish(t, frames[i]), a.packets)
		})
	}
}
