package oracle_test

import (
	"testing"

	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// malformed is a super-packet that something is wrong with.
type malformed struct {
	name string
	spec vnettest.Spec
	edit func(*vnet.Frame)
	drop vnet.Drop // of vnet.Frame.Check or vnet.Parse
	// sent: the kernel sends something all the same. The name says why the switch
	// does not.
	sent bool
}

// TestKernelLosesWhatParseRefuses has the other half in
// TestSegmentIsWhatTheKernelMakes: what Parse accepts, the kernel cuts.
func TestKernelLosesWhatParseRefuses(t *testing.T) {
	set8 := func(at func(*vnet.Frame) int, v byte) func(*vnet.Frame) {
		return func(f *vnet.Frame) { f.Head[at(f)] = v }
	}
	l3 := func(f *vnet.Frame) int { return network(f).L3 }
	protocol := func(f *vnet.Frame) int { return network(f).L3 + 9 }
	nextHeader := func(f *vnet.Frame) int { return network(f).L3 + 6 }
	dataOffset := func(f *vnet.Frame) int { return network(f).L4 + tcpDataOffset }
	inHeader := func(edit func(*vnet.Header)) func(*vnet.Frame) {
		return func(f *vnet.Frame) { edit(&f.Hdr) }
	}
	// Cut off within the headers; csum_start stays behind the end.
	truncate := func(n int) func(*vnet.Frame) {
		return func(f *vnet.Frame) { f.Head = f.Head[:n] }
	}
	v6 := family(true)
	const bad = vnet.DropBadGSO
	cases := []malformed{
		{name: "gso_size 0", spec: tcp(5000, 1000), drop: bad,
			edit: inHeader(func(h *vnet.Header) { h.GSOSize = 0 })},
		{name: "gso_size 65535 is GSO_BY_FRAGS", spec: tcp(70000, 65535), drop: bad},
		{name: "an unknown GSO type", spec: tcp(5000, 1000), drop: bad,
			edit: inHeader(func(h *vnet.Header) { h.GSO = 2 })},
		{name: "TCPv6 over IPv4", spec: tcp(5000, 1000), drop: bad,
			edit: inHeader(func(h *vnet.Header) { h.GSO = vnet.GSOTCPv6 })},
		{name: "TCPv4 over IPv6", spec: tcp(5000, 1000, v6), drop: bad,
			edit: inHeader(func(h *vnet.Header) { h.GSO = vnet.GSOTCPv4 })},
		{name: "TCP with a checksum at 14", spec: tcp(5000, 1000), drop: bad,
			edit: inHeader(func(h *vnet.Header) { h.CsumOffset = 14 })},
		{name: "UDP with a checksum at 16", spec: udp(5000, 1000), drop: bad,
			edit: inHeader(func(h *vnet.Header) { h.CsumOffset = 16 })},
		{name: "UDP without NEEDS_CSUM", spec: udp(5000, 1000, csum(vnettest.Full)), drop: bad},
		{name: "UDP with the ECN bit", spec: udp(5000, 1000), drop: bad, edit: setECN},
		{name: "csum_start behind the end", spec: tcp(5000, 1000), drop: vnet.DropBadCsum,
			edit: inHeader(func(h *vnet.Header) { h.CsumStart = 0xffff })},
		{name: "csum_start before the TCP header", spec: tcp(5000, 1000, ipOptions(4)), drop: bad,
			edit: inHeader(func(h *vnet.Header) { h.CsumStart -= 4 })},
		{name: "csum_start behind the TCP header's start", spec: tcp(5000, 1000), drop: bad,
			edit: inHeader(func(h *vnet.Header) { h.CsumStart += 4 })},
		{name: "a UDP packet as TCP", spec: tcp(5000, 1000), drop: bad,
			edit: set8(protocol, vnet.ProtoUDP)},
		{name: "a TCP packet as UDP", spec: udp(5000, 1000), drop: bad,
			edit: set8(protocol, vnet.ProtoTCP)},
		{name: "an unknown protocol", spec: tcp(5000, 1000), drop: bad, edit: set8(protocol, 253)},
		{name: "an unknown next header", spec: tcp(5000, 1000, v6), drop: bad,
			edit: set8(nextHeader, 253)},
		{name: "no next header", spec: tcp(5000, 1000, v6), drop: bad, edit: set8(nextHeader, 59)},
		{name: "IHL 4", spec: tcp(5000, 1000), drop: bad, edit: set8(l3, 0x44)},
		{name: "IHL 6 without options", spec: tcp(5000, 1000), drop: bad, edit: set8(l3, 0x46)},
		{name: "a data offset of 4", spec: tcp(5000, 1000), drop: bad,
			edit: set8(dataOffset, 0x40)},
		{name: "a data offset of 0", spec: tcp(5000, 1000, v6), drop: bad,
			edit: set8(dataOffset, 0)},
		{name: "a data offset behind the end", spec: tcp(30, 1, tcpOptions(nil)), drop: bad,
			edit: set8(dataOffset, 0xf0)},
		{name: "nothing behind the Ethernet header", spec: tcp(5000, 1000, csum(vnettest.Full)),
			drop: bad, edit: truncate(vnet.EthLen)},
		{name: "half an IPv4 header", spec: tcp(5000, 1000, csum(vnettest.Full)), drop: bad,
			edit: truncate(vnet.EthLen + 10)},
		{name: "half an IPv6 header", spec: tcp(5000, 1000, v6, csum(vnettest.Full)), drop: bad,
			edit: truncate(vnet.EthLen + 20)},
		{name: "half a TCP header", spec: tcp(5000, 1000, csum(vnettest.Full)), drop: bad,
			edit: truncate(vnet.EthLen + vnet.IPv4Len + 10)},

		{name: "IPv4 that says version 6: no receiver takes it", spec: tcp(5000, 1000), drop: bad,
			edit: set8(l3, 0x65), sent: true},
		{name: "a fragment: what it is a part of is not TCP segments", spec: tcp(5000, 1000),
			drop: bad, edit: atIP(ipv4Fragment, 0x2000), sent: true},
	}
	k := newKernel(t)
	frames := make([]vnet.Frame, len(cases))
	for i, c := range cases {
		frames[i] = vnettest.Super(c.spec)
		if c.edit != nil {
			c.edit(&frames[i])
		}
	}
	for i, a := range k.wire(t, frames...) {
		c := cases[i]
		t.Run(c.name, func(t *testing.T) {
			if _, _, drop := parse(&frames[i]); drop != c.drop {
				t.Errorf("the switch says %v, want %v", drop, c.drop)
			}
			if sent := len(a.packets) > 0; sent != c.sent {
				t.Errorf("the kernel sends %d packets, error %v; want sent %v",
					len(a.packets), a.err, c.sent)
			}
		})
	}
}

// TestKernelLosesWhatTheSwitchCanCut are super-packets that the switch cuts although
// the kernel loses them. An egress that takes super-packets loses them too.
func TestKernelLosesWhatTheSwitchCanCut(t *testing.T) {
	cases := []struct {
		name    string
		spec    vnettest.Spec
		packets int
	}{
		// virtio_net_hdr_to_skb bounds UDP by UDP_MAX_SEGMENTS.
		{"UDP of 129 segments", udp(129, 1), 129},
		// See rule.asked.
		{"one segment with TCP options", tcp(1448, 1448), 1},
	}
	k := newKernel(t)
	for _, c := range cases {
		f := vnettest.Super(c.spec)
		if a := k.wire(t, f)[0]; len(a.packets) > 0 {
			t.Errorf("%s: the kernel sends %d packets", c.name, len(a.packets))
		}
		if n := len(finish(t, f)); n != c.packets {
			t.Errorf("%s: %d packets, want %d", c.name, n, c.packets)
		}
	}
}
