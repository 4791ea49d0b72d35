package probe

import (
	"encoding/binary"
	"net/netip"

	"sluice/vnet"
)

// Addresses of the receiving netdev and of a sender behind it that does not exist: documentation
// prefixes (RFC 5737, RFC 3849).
var (
	receiver4 = netip.MustParsePrefix("192.0.2.1/24")
	sender4   = netip.MustParseAddr("192.0.2.2")
	receiver6 = netip.MustParsePrefix("2001:db8::1/64")
	sender6   = netip.MustParseAddr("2001:db8::2")
	senderMAC = [6]byte{2} // locally administered
)

// gsoSize is the MSS of a sender with an MTU of 1500.
const gsoSize = 1400

// shape is a packet to try with.
type shape struct {
	v6   bool
	form vnet.Form // of IPv6 above 64 KiB
	n    int       // length of the frame
	udp  bool      // else TCP
	ecn  bool      // TCP with CWR set
}

// l4 is the length of the transport header.
func (s *shape) l4() int {
	if s.udp {
		return vnet.UDPLen
	}
	return vnet.TCPLen
}

// gso is the GSO type of the frame.
func (s *shape) gso() (g vnet.GSO) {
	switch {
	case s.n-s.headers() <= gsoSize:
		return vnet.GSONone
	case s.udp:
		return vnet.GSOUDPL4
	case s.v6:
		g = vnet.GSOTCPv6
	default:
		g = vnet.GSOTCPv4
	}
	if s.ecn {
		g |= vnet.GSOECN
	}
	return g
}

// headers is the length of what precedes the payload.
func (s *shape) headers() int {
	n := vnet.EthLen + s.l4() + vnet.IPv4Len
	if s.v6 {
		n += vnet.IPv6Len - vnet.IPv4Len
		if s.form == vnet.FormHBH {
			n += vnet.JumboHBHLen
		}
	}
	return n
}

// received is the length that a raw socket reports for the packet: from the IPv4
// header on, or from behind the IPv6 header and its extensions (raw(7), RFC 3542, 3).
func (s *shape) received() int {
	if s.v6 {
		return s.n - s.headers() + s.l4()
	}
	return s.n - vnet.EthLen
}

// build is the frame: a TCP or UDP packet, above gsoSize a super-packet. The payload and the
// transport checksum are zeros: a raw socket gets a packet before TCP and UDP check it.
func (s *shape) build(dst []byte) vnet.Frame {
	b := make([]byte, s.n)
	copy(b, dst)
	copy(b[6:], senderMAC[:])
	ip, l4 := b[vnet.EthLen:], b[s.headers()-s.l4():]
	if s.v6 {
		binary.BigEndian.PutUint16(b[12:], vnet.EtherTypeIPv6)
		s.buildIPv6(ip)
	} else {
		binary.BigEndian.PutUint16(b[12:], vnet.EtherTypeIPv4)
		s.buildIPv4(ip)
	}
	binary.BigEndian.PutUint16(l4[0:], 7)
	binary.BigEndian.PutUint16(l4[2:], 7)
	field := uint16(vnet.TCPCsumOffset)
	if s.udp {
		field = vnet.UDPCsumOffset
		binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)))
	} else {
		l4[12] = vnet.TCPLen / 4 << 4
		l4[13] = 0x10 // ACK
		if s.ecn {
			l4[13] |= 0x80 // CWR
		}
	}
	f := vnet.Frame{Head: b}
	if gso := s.gso(); gso != vnet.GSONone {
		f.Hdr = vnet.Header{
			Flags:      vnet.NeedsCsum,
			GSO:        gso,
			HdrLen:     uint16(s.headers()),
			GSOSize:    gsoSize,
			CsumStart:  uint16(s.headers() - s.l4()),
			CsumOffset: field,
		}
	}
	return f
}

// proto is the protocol number of the transport.
func (s *shape) proto() uint8 {
	if s.udp {
		return vnet.ProtoUDP
	}
	return vnet.ProtoTCP
}

func (s *shape) buildIPv4(h []byte) {
	h[0] = 4<<4 | vnet.IPv4Len/4
	if len(h) <= 65535 { // else 0: iph_set_totlen in include/linux/ip.h
		binary.BigEndian.PutUint16(h[2:], uint16(len(h)))
	}
	h[8] = 64
	h[9] = s.proto()
	copy(h[12:], sender4.AsSlice())
	copy(h[16:], receiver4.Addr().AsSlice())
	sum := uint32(0)
	for i := 0; i < vnet.IPv4Len; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(h[10:], ^uint16(sum+sum>>16))
}

func (s *shape) buildIPv6(h []byte) {
	payload := len(h) - vnet.IPv6Len
	h[0] = 6 << 4
	if payload <= 65535 {
		binary.BigEndian.PutUint16(h[4:], uint16(payload))
	}
	h[6] = s.proto()
	h[7] = 64
	copy(h[8:], sender6.AsSlice())
	copy(h[24:], receiver6.Addr().AsSlice())
	if s.form == vnet.FormHBH { // RFC 2675, 2
		h[6] = vnet.ProtoHopByHop
		j := h[vnet.IPv6Len:]
		j[0], j[1], j[2], j[3] = s.proto(), 0, 0xc2, 4
		binary.BigEndian.PutUint32(j[4:], uint32(payload))
	}
}
