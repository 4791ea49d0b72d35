package oracle_test

import (
	"fmt"
	"slices"

	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// rule is a frame, and the rule of cutting or completing that it tests.
type rule struct {
	name  string
	spec  vnettest.Spec
	edits []func(*vnet.Frame) // edits after the build, in this order
}

func (r rule) frame() vnet.Frame {
	f := vnettest.Super(r.spec)
	for _, edit := range r.edits {
		edit(&f)
	}
	return f
}

// asked is the frame that is given to the kernel: that of the rule, except for a single segment
// with TCP options. virtio_net_hdr_to_skb treats a single segment as an ordinary packet only
// without options, because it looks for the payload 20 bytes after csum_start; tcp_gso_segment then
// finds nothing to cut, and the kernel loses it. So the kernel gets the same frame without GSO
// type.
func (r rule) asked() vnet.Frame {
	f := r.frame()
	if len(r.spec.Payload) <= r.spec.GSOSize && len(r.spec.TCPOptions) > 0 {
		f.Hdr.GSO, f.Hdr.GSOSize = vnet.GSONone, 0
	}
	return f
}

// tcp is the plain super-packet, with something in every field.
func tcp(payload, gsoSize int, edits ...func(*vnettest.Spec)) vnettest.Spec {
	return with(vnettest.Spec{
		Payload: vnettest.Pattern(payload), GSOSize: gsoSize,
		ID: 0x1234, Seq: 0xfedcba98, Ack: 0x01020304, Window: 0x0203,
		TCPFlags: vnettest.ACK, TCPOptions: vnettest.Timestamps,
		Form: vnet.FormHBH,
	}, edits...)
}

func udp(payload, gsoSize int, edits ...func(*vnettest.Spec)) vnettest.Spec {
	return with(vnettest.Spec{
		UDP: true, Payload: vnettest.Pattern(payload), GSOSize: gsoSize, ID: 0x4321,
	}, edits...)
}

func with(s vnettest.Spec, edits ...func(*vnettest.Spec)) vnettest.Spec {
	for _, edit := range edits {
		edit(&s)
	}
	return s
}

// Edits of a Spec.

func family(v6 bool) func(*vnettest.Spec) {
	return func(s *vnettest.Spec) { s.V6 = v6 }
}

func form(f vnet.Form) func(*vnettest.Spec) {
	return func(s *vnettest.Spec) { s.Form = f }
}

func tags(t ...uint16) func(*vnettest.Spec) {
	return func(s *vnettest.Spec) { s.Tags = t }
}

func csum(c vnettest.Csum) func(*vnettest.Spec) {
	return func(s *vnettest.Spec) { s.Csum = c }
}

func class(tos uint8, flow uint32) func(*vnettest.Spec) {
	return func(s *vnettest.Spec) { s.TOS, s.FlowLabel = tos, flow }
}

func id(v uint16) func(*vnettest.Spec) {
	return func(s *vnettest.Spec) { s.ID = v }
}

func ipOptions(n int) func(*vnettest.Spec) {
	return func(s *vnettest.Spec) { s.IPOptions = options(n) }
}

func ext(e ...vnettest.Ext) func(*vnettest.Spec) {
	return func(s *vnettest.Spec) { s.Ext = e }
}

func seq(v uint32) func(*vnettest.Spec) {
	return func(s *vnettest.Spec) { s.Seq = v }
}

func flags(f uint16) func(*vnettest.Spec) {
	return func(s *vnettest.Spec) { s.TCPFlags |= f }
}

func urgent(v uint16) func(*vnettest.Spec) {
	return func(s *vnettest.Spec) { s.Urgent = v }
}

func tcpOptions(o []byte) func(*vnettest.Spec) {
	return func(s *vnettest.Spec) { s.TCPOptions = o }
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

// Edits of a built frame.

// atIP and atL4 write a 16-bit field of the IP and of the transport header.
func atIP(offset int, v uint16) func(*vnet.Frame) {
	return func(f *vnet.Frame) { put16(f, network(f).L3+offset, v) }
}

func atL4(offset int, v uint16) func(*vnet.Frame) {
	return func(f *vnet.Frame) { put16(f, network(f).L4+offset, v) }
}

func hdrLen(n func(f *vnet.Frame) int) func(*vnet.Frame) {
	return func(f *vnet.Frame) { f.Hdr.HdrLen = uint16(n(f)) }
}

// pad appends what makes the frame longer than its headers say.
func pad(f *vnet.Frame) { f.Head = append(f.Head, 0, 0, 0, 0, 0) }

func none(*vnet.Frame) int    { return 0 }
func toL4(f *vnet.Frame) int  { return network(f).L4 }
func all(f *vnet.Frame) int   { return f.Len() }
func noECN(f *vnet.Frame)     { f.Hdr.GSO &^= vnet.GSOECN }
func setECN(f *vnet.Frame)    { f.Hdr.GSO |= vnet.GSOECN }
func dataValid(f *vnet.Frame) { f.Hdr.Flags = vnet.DataValid }

// network is where the IP and transport headers of a frame lie, which has an IP
// header that the switch accepts.
func network(f *vnet.Frame) (p vnet.Packet) {
	var l2 vnet.L2
	d := f.Check(&l2)
	if d == vnet.Keep {
		d = vnet.ParseNetwork(f, &l2, &p)
	}
	if d != vnet.Keep {
		panic(fmt.Sprintf("dropped: %v", d))
	}
	return p
}

// Fields of the headers.
const (
	ipv4TotalLen, ipv4Fragment, ipv4Csum = 2, 6, 10
	ipv6PayloadLen                       = 4
	tcpDataOffset                        = 12
	udpLen                               = 4
)

// everywhere are the rules of cutting that hold in both families.
func everywhere(v6 bool) (rules []rule) {
	add := func(name string, s vnettest.Spec, edits ...func(*vnet.Frame)) {
		rules = append(rules, rule{name, s, edits})
	}
	const (
		ecn     = vnettest.CWR | vnettest.ECE
		ending  = vnettest.FIN | vnettest.PSH
		tcpCsum = vnet.TCPCsumOffset
		tsLen   = 12 // of the timestamps
	)
	fortyBytes := slices.Concat(vnettest.Timestamps, vnettest.Pattern(28))

	add("sequence numbers and IDs advance", tcp(14480, 1448))
	add("sequence numbers wrap", tcp(14480, 1448, seq(0xfffff000)))
	add("FIN and PSH are the last segment's", tcp(5000, 1000, flags(ending)))
	add("CWR is the first segment's, ECE everybody's", tcp(5000, 1000, flags(ecn|ending)))
	add("CWR without the ECN bit is the same", tcp(5000, 1000, flags(vnettest.CWR)), noECN)
	add("the ECN bit without CWR changes nothing", tcp(5000, 1000), setECN)
	add("AE is everybody's", tcp(5000, 1000, flags(vnettest.AE)))
	add("all other flags are everybody's", tcp(5000, 1000, flags(0xfff), urgent(77)))
	add("class and flow label are everybody's", tcp(5000, 1000, class(0xbb, 0xabcde)))
	add("no options", tcp(5000, 1460, tcpOptions(nil)))
	add("options of 40 bytes are everybody's", tcp(5000, 1400, tcpOptions(fortyBytes)))
	add("the data offset says where the payload begins",
		tcp(5000, 1000), atL4(tcpDataOffset, 0xf010))

	add("two segments", tcp(1449, 1448))
	add("two segments without options", tcp(1461, 1460, tcpOptions(nil)))
	add("a tail of one byte", tcp(4285, 1428))
	add("odd segments", tcp(10001, 777))
	add("segments of one byte", tcp(200, 1))
	add("greatest segments", tcp(200001, mtu-vnet.IPv6Len-vnet.TCPLen-tsLen))
	add("a payload one byte below gso_size is no super-packet", tcp(1447, 1448))
	add("a payload of gso_size is no super-packet", tcp(1448, 1448))
	add("a payload of gso_size without options is no super-packet",
		tcp(1460, 1460, tcpOptions(nil)))
	add("no payload is no super-packet", tcp(0, 1448))

	add("hdr_len 0", tcp(14480, 1448), hdrLen(none))
	add("hdr_len that ends within the headers", tcp(14480, 1448), hdrLen(toL4))
	add("hdr_len of the whole frame", tcp(14480, 1448), hdrLen(all))

	add("a checksum of 0 is sent as 0", zeroSums(tcp(5000, 1000, family(v6))))
	add("without NEEDS_CSUM the seed is made of the addresses",
		tcp(5000, 1000, csum(vnettest.Full)))
	add("without NEEDS_CSUM the checksum is of no account", tcp(5000, 1000, csum(vnettest.Zero)))
	add("one segment may be padded", tcp(1, 1000, tcpOptions(nil)), pad)
	add("UDP: one segment may be padded", udp(1, 1000), pad)
	add("without NEEDS_CSUM one segment keeps its checksum",
		tcp(1000, 1000, csum(vnettest.Full)), atL4(tcpCsum, 0x1234))

	add("UDP: length and checksum are each segment's own", udp(14001, 1400))
	add("UDP: odd segments", udp(7001, 777))
	add("UDP: 128 segments of one byte", udp(128, 1))
	add("UDP: two segments", udp(1401, 1400))
	add("UDP: a payload of gso_size is no super-packet", udp(1400, 1400))
	add("UDP: no payload is no super-packet", udp(0, 1400))
	add("UDP: longest datagram", udp(0xffff-vnet.UDPLen-vnet.IPv4Len, 1400))
	add("UDP: class and flow label are everybody's", udp(5000, 1000, class(0xbb, 0xabcde)))
	add("UDP: a checksum of 0 is sent as 0xffff", zeroSums(udp(5000, 1000, family(v6))))

	// Around the first length that does not fit in 16 bits.
	for _, d := range []int{-1, 0, 1} {
		n := 65536 + d - vnet.TCPLen - tsLen
		add(fmt.Sprintf("TCP segment of 65536%+d bytes", d), tcp(n, 1448))
		add(fmt.Sprintf("IPv4 packet of 65536%+d bytes", d), tcp(n-vnet.IPv4Len, 1448))
		add(fmt.Sprintf("IPv4 frame of 65536%+d bytes", d), tcp(n-vnet.IPv4Len-vnet.EthLen, 1448))
		add(fmt.Sprintf("IPv6 packet of 65536%+d bytes", d), tcp(n-vnet.IPv6Len, 1448))
		add(fmt.Sprintf("IPv6 frame of 65536%+d bytes", d), tcp(n-vnet.IPv6Len-vnet.EthLen, 1448))
	}
	return rules
}

// onlyIPv4 are the rules of IPv4.
func onlyIPv4() (rules []rule) {
	add := func(name string, s vnettest.Spec, edits ...func(*vnet.Frame)) {
		rules = append(rules, rule{name, s, edits})
	}
	add("IDs wrap", tcp(5000, 1000, id(0xfffe)))
	add("UDP: IDs wrap", udp(5000, 1000, id(0xfffe)))
	add("ID 0 with don't-fragment advances like any other", tcp(5000, 1000, id(0)))
	add("may fragment is everybody's", tcp(5000, 1000), atIP(ipv4Fragment, 0))
	add("the reserved flag is everybody's", tcp(5000, 1000), atIP(ipv4Fragment, 0xc000))
	add("a wrong header checksum is of no account", tcp(5000, 1000), atIP(ipv4Csum, 0x1234))
	add("a wrong total length is of no account", tcp(5000, 1000), atIP(ipv4TotalLen, 777))
	add("a total length of 0 is of no account", tcp(5000, 1000), atIP(ipv4TotalLen, 0))
	add("one segment keeps its wrong header",
		tcp(1000, 1000), atIP(ipv4Csum, 0x1234), atIP(ipv4TotalLen, 7777))
	for n := 4; n <= 40; n += 4 {
		add(fmt.Sprintf("IHL %d", 5+n/4), tcp(9000, 1000, ipOptions(n)))
		add(fmt.Sprintf("UDP: IHL %d", 5+n/4), udp(9000, 1000, ipOptions(n)))
	}
	return rules
}

// onlyIPv6 are the rules of IPv6.
func onlyIPv6() (rules []rule) {
	add := func(name string, s vnettest.Spec, edits ...func(*vnet.Frame)) {
		rules = append(rules, rule{name, s, edits})
	}
	add("a wrong payload length is of no account", tcp(5000, 1000), atIP(ipv6PayloadLen, 777))
	add("a payload length of 0 is of no account", tcp(5000, 1000), atIP(ipv6PayloadLen, 0))
	add("one segment keeps its wrong header", tcp(1000, 1000), atIP(ipv6PayloadLen, 7777))
	for _, e := range []struct {
		name string
		ext  []vnettest.Ext
	}{
		{"hop-by-hop", []vnettest.Ext{vnettest.HopByHop}},
		{"routing", []vnettest.Ext{vnettest.Routing}},
		{"destination options", []vnettest.Ext{vnettest.DestOpts}},
		{"all headers", []vnettest.Ext{
			vnettest.HopByHop, vnettest.DestOpts, vnettest.Routing, vnettest.DestOpts,
		}},
	} {
		add(e.name+" are everybody's", tcp(9000, 1000, ext(e.ext...)))
		add(e.name+" without NEEDS_CSUM", tcp(9000, 1000, ext(e.ext...), csum(vnettest.Full)))
		add(e.name+" above 64 KiB", tcp(100000, 1000, ext(e.ext...), form(vnet.FormPlain)))
		add("UDP: "+e.name+" are everybody's", udp(9000, 1000, ext(e.ext...)))
	}
	return rules
}

// families and tagged are what rules are crossed with.
var (
	families = []struct {
		name string
		v6   bool
	}{{"IPv4", false}, {"IPv6", true}}

	tagged = []struct {
		name string
		tags []uint16
	}{
		{"no tag", nil},
		{"a tag", []uint16{0x2064}},
		{"a priority tag", []uint16{0xe000}},
		{"two tags", []uint16{100, 0xe0c8}},
	}
)

// jumboIsNoOracle reports whether the kernel is no oracle for s: a jumbo option
// behind two tags, which 6.18 leaves in every segment.
func jumboIsNoOracle(s vnettest.Spec) bool {
	return s.V6 && s.Form == vnet.FormHBH && len(s.Tags) == 2 && !s.UDP &&
		vnet.TCPLen+len(s.TCPOptions)+len(s.Payload) > 0xffff
}

// rules are all rules of cutting of a family, crossed with tags.
func rules(v6 bool) (all []rule) {
	own := onlyIPv4()
	if v6 {
		own = onlyIPv6()
	}
	for _, r := range append(everywhere(v6), own...) {
		for _, tag := range tagged {
			c := r
			c.name += "/" + tag.name
			c.spec = with(r.spec, family(v6), tags(tag.tags...))
			if jumboIsNoOracle(c.spec) {
				c.spec.Form = vnet.FormPlain
			}
			all = append(all, c)
		}
	}
	return all
}

// zeroSums is s with a payload that makes the checksum of every segment except the last 0: two
// bytes of each compensate for all others.
func zeroSums(s vnettest.Spec) vnettest.Spec {
	s.Payload = slices.Clone(s.Payload)
	for from := 0; from+s.GSOSize < len(s.Payload); from += s.GSOSize {
		one := s
		one.GSOSize, one.Csum = 0, vnettest.Full
		one.Seq += uint32(from)
		one.Payload = s.Payload[from:][:s.GSOSize]
		// While these two bytes are 0, the checksum is the value that they need.
		one.Payload[0], one.Payload[1] = 0, 0
		copy(one.Payload, checksum(one))
	}
	return s
}

// checksum is the transport checksum of the frame of s.
func checksum(s vnettest.Spec) []byte {
	f := vnettest.Super(s)
	at := f.Len() - len(s.Payload) - vnet.UDPLen + vnet.UDPCsumOffset
	if !s.UDP {
		at = f.Len() - len(s.Payload) - len(s.TCPOptions) - vnet.TCPLen + vnet.TCPCsumOffset
	}
	return f.Head[at : at+2]
}
