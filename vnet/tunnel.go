package vnet

// Tunnel is what a super-packet is wrapped in.
type Tunnel uint8

// Tunnels. Each names the offload that a sender must switch off to cut the packets itself.
const (
	NoTunnel   Tunnel = iota
	TunnelUDP         // VXLAN, Geneve, FOU, GUE
	TunnelGRE         // GRE, with an Ethernet header inside or without
	TunnelIP          // IPIP, SIT, ip6tnl, SRv6: IP in IP
	TunnelTags        // not IP outside: a third VLAN tag, MPLS
	NumTunnels
)

// maxEncap bounds what lies between the outer header and the inner IP header: a UDP
// header, Geneve's with all options (RFC 8926, 3.4), Ethernet and two tags.
const maxEncap = UDPLen + 8 + 252 + EthLen + 2*VLANLen

// Tunnel says what a super-packet that Check or Parse refused is wrapped in. A packet socket
// reports the GSO type and the checksum of the inner packet and does not mention the tunnel
// (virtio_net_hdr_from_skb). It is slow, and meant only for frames that are dropped.
func (f *Frame) Tunnel() Tunnel {
	if f.Hdr.GSO == GSONone || f.Hdr.Check(f.Len()) != Keep || len(f.Head) < EthLen {
		return NoTunnel
	}
	var l2 L2
	l2.parse(f.Head)
	return f.tunnel(&l2)
}

// tunnel is Tunnel for a frame that Header.Check accepted.
func (f *Frame) tunnel(l2 *L2) Tunnel {
	kind, from := TunnelTags, l2.Len
	switch l2.EtherType {
	case EtherTypeIPv4, EtherTypeIPv6:
		var outer Packet
		if ParseNetwork(f, l2, &outer) != Keep {
			return NoTunnel
		}
		switch from = outer.L4; outer.Proto {
		case ProtoUDP:
			kind = TunnelUDP
			from += UDPLen
		case ProtoGRE:
			kind = TunnelGRE
			from += 4 // RFC 2784, 2: at least
		case ProtoIPv4, ProtoIPv6:
			kind = TunnelIP
		default:
			return NoTunnel
		}
	case EtherTypeVLAN, EtherTypeQinQ, EtherTypeMPLS:
	default:
		return NoTunnel
	}
	if !f.holdsPacket(from) {
		return NoTunnel
	}
	return kind
}

// holdsPacket reports whether a packet of this GSO type begins at offset from or shortly after it.
// If the virtio-net header has a csum_start, the transport header must be there. The tunnel's own
// headers are not read: there are too many kinds, and a UDP port does not identify one.
func (f *Frame) holdsPacket(from int) bool {
	b, gso := f.Head[:min(len(f.Head), MaxHeaders)], f.Hdr.GSO.Type()
	needs, start := f.Hdr.Flags&NeedsCsum != 0, int(f.Hdr.CsumStart)
	last := min(from+maxEncap, len(b)-1)
	for at := from; at <= last; at += 2 { // every tunnel's header is of even length
		p := Packet{L3: at}
		d := DropBadGSO
		switch version := b[at] >> 4; {
		case version == 4 && gso != GSOTCPv6:
			d = p.parseIPv4(b)
		case version == 6 && gso != GSOTCPv4:
			d = p.parseIPv6(b)
		}
		if d != Keep || p.Proto != gso.proto() {
			continue
		}
		if needs && p.L4 == start || !needs && tcpAt(b, p.L4) {
			return true
		}
	}
	return false
}

// tcpAt reports whether what lies at offset at may be a TCP header.
func tcpAt(b []byte, at int) bool {
	return len(b) >= at+TCPLen && int(b[at+12]>>4)*4 >= TCPLen
}
