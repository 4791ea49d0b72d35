package vnettest

import (
	"encoding/binary"
	"slices"

	"sluice/vnet"
)

// Encap is a kind of tunnel.
type Encap struct {
	Name   string
	Kind   vnet.Tunnel
	Proto  uint8  // in the outer IP header; ProtoIPv4 stands for the inner packet's family
	Header []byte // behind the outer IP header
	Ether  bool   // the inner packet has an Ethernet header
}

// Encaps are the kinds of tunnel that the kernel leaves uncut where the device cuts them.
var Encaps = []Encap{
	{"VXLAN", vnet.TunnelUDP, vnet.ProtoUDP, udpTo(4789, 8, 0, 0, 0, 0, 0, 7, 0), true},
	{"Geneve with an option", vnet.TunnelUDP, vnet.ProtoUDP,
		udpTo(6081, 2, 0, 0x65, 0x58, 0, 0, 7, 0, 0xff, 0, 0, 1, 0x45, 0, 0, 6), true},
	{"FOU", vnet.TunnelUDP, vnet.ProtoUDP, udpTo(5555), false},
	{"gretap with a key", vnet.TunnelGRE, vnet.ProtoGRE, []byte{0x20, 0, 0x65, 0x58, 0, 0, 0, 7}, true},
	{"GRE", vnet.TunnelGRE, vnet.ProtoGRE, []byte{0, 0, 8, 0}, false},
	{"IP in IP", vnet.TunnelIP, vnet.ProtoIPv4, nil, false},
}

// udpTo is a UDP header, with length 0, and what follows it.
func udpTo(port uint16, rest ...byte) []byte {
	b := binary.BigEndian.AppendUint16([]byte{0x9c, 0x41}, port)
	return append(append(b, 0, 0, 0, 0), rest...)
}

// Wrap is the super-packet of s in a tunnel of kind e, as a packet socket shows it: the virtio-net
// header does not mention the tunnel. The outer packet is IPv6 if v6 says so; then ext are its
// extension headers. outerCsum says that the tunnel's own UDP header has a checksum.
func (e Encap) Wrap(s Spec, v6, outerCsum bool, ext ...Ext) vnet.Frame {
	inner := Super(s)
	l2 := len(s.ethernet())
	packet := inner.Head
	if !e.Ether {
		packet = packet[l2:]
	}
	header := slices.Clone(e.Header)
	if e.Proto == vnet.ProtoUDP {
		binary.BigEndian.PutUint16(header[4:], zeroIfBig(len(header)+len(packet)))
		if outerCsum {
			binary.BigEndian.PutUint16(header[6:], 0x1234)
		}
	}
	outer := Spec{V6: v6, Ext: ext, carries: e.Proto}
	if e.Proto == vnet.ProtoIPv4 && s.V6 {
		outer.carries = vnet.ProtoIPv6
	}
	body := append(header, packet...)
	head := append(outer.ethernet(), outer.network(body)...)
	f := vnet.Frame{Hdr: inner.Hdr, Head: append(head, body...)}
	more := uint16(len(f.Head) - len(inner.Head))
	f.Hdr.HdrLen += more
	if f.Hdr.Flags&vnet.NeedsCsum != 0 {
		f.Hdr.CsumStart += more
	}
	return f
}
