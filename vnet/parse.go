package vnet

import (
	"encoding/binary"
	"fmt"
)

// Fixed header lengths.
const (
	EthLen      = 14
	VLANLen     = 4
	IPv4Len     = 20
	IPv6Len     = 40
	TCPLen      = 20
	UDPLen      = 8
	JumboHBHLen = 8 // the hop-by-hop header that holds nothing but a jumbo option (RFC 2675, 2)
)

// EtherTypes (IEEE 802 numbers) that the dataplane looks at.
const (
	EtherTypeIPv4 = 0x0800
	EtherTypeIPv6 = 0x86dd
	EtherTypeVLAN = 0x8100 // 802.1Q C-tag
	EtherTypeQinQ = 0x88a8 // 802.1ad S-tag
	EtherTypeMPLS = 0x8847 // RFC 5332, 3
)

// IP protocol numbers (IANA).
const (
	ProtoHopByHop = 0
	ProtoIPv4     = 4 // in IP
	ProtoTCP      = 6
	ProtoUDP      = 17
	ProtoIPv6     = 41 // in IP
	ProtoRouting  = 43
	ProtoFragment = 44
	ProtoGRE      = 47
	ProtoDestOpts = 60
	ProtoSCTP     = 132
)

// MAC is a 48-bit address in the low bits of a word: one compare, one hash, no
// allocation.
type MAC uint64

// String is the address as iproute2 prints it: 02:00:5e:10:00:01.
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x",
		byte(m>>40), byte(m>>32), byte(m>>24), byte(m>>16), byte(m>>8), byte(m))
}

// Group reports whether the address is a group address, broadcast included.
func (m MAC) Group() bool { return m>>40&1 != 0 }

// Reserved reports whether the address is one of 01:80:c2:00:00:00 to :0f, which
// no bridge forwards (IEEE 802.1Q, table 8-1).
func (m MAC) Reserved() bool { return m&^0xf == 0x0180c2000000 }

// PauseMAC is the destination of PAUSE frames, which concern a single link (IEEE 802.3, 31B.1).
const PauseMAC MAC = 0x0180c2000001

// L2 is what the Ethernet header and its VLAN tags say.
type L2 struct {
	Dst, Src  MAC
	EtherType uint16 // behind the tags
	TCI       uint16 // of the outer tag; valid when Tags > 0
	Tags      int    // 0 to 2 in-band VLAN tags
	Len       int    // Ethernet header and tags
}

// VID is the VLAN of the frame: that of the outer tag, or 0.
func (l *L2) VID() uint16 { return l.TCI & 0xfff }

// CutOff reports whether the frame ends within a tag, or has more than two. EtherType is then that
// tag's TPID.
func (l *L2) CutOff() bool {
	return l.EtherType == EtherTypeVLAN || l.EtherType == EtherTypeQinQ
}

// parse reads the Ethernet header, of at least EthLen bytes, and up to two
// tags. A tag that is cut off is left as the EtherType.
func (l *L2) parse(b []byte) {
	h := (*[EthLen]byte)(b) // one bounds check for all three loads
	l.Dst = MAC(binary.BigEndian.Uint64(h[0:8]) >> 16)
	l.Src = MAC(binary.BigEndian.Uint64(h[4:12]) & (1<<48 - 1))
	l.EtherType = binary.BigEndian.Uint16(h[12:14])
	l.TCI, l.Tags, l.Len = 0, 0, EthLen
	for l.Tags < 2 && (l.EtherType == EtherTypeVLAN || l.EtherType == EtherTypeQinQ) {
		if len(b) < l.Len+VLANLen {
			return
		}
		if l.Tags == 0 {
			l.TCI = binary.BigEndian.Uint16(b[l.Len:])
		}
		l.EtherType = binary.BigEndian.Uint16(b[l.Len+2:])
		l.Tags++
		l.Len += VLANLen
	}
}

// Check is the one place that trusts nothing. It reads the Ethernet header and the tags of a
// received frame into l2. It reports why the frame must be dropped, or Keep. Beyond Header.Check, a
// GSO type must fit the EtherType.
func (f *Frame) Check(l2 *L2) Drop {
	if d := f.Hdr.Check(f.Len()); d != Keep {
		return d
	}
	if len(f.Head) < EthLen {
		return DropRunt
	}
	l2.parse(f.Head)
	ok := true
	switch f.Hdr.GSO.Type() {
	case GSOTCPv4:
		ok = l2.EtherType == EtherTypeIPv4
	case GSOTCPv6:
		ok = l2.EtherType == EtherTypeIPv6
	case GSOUDPL4:
		ok = l2.EtherType == EtherTypeIPv4 || l2.EtherType == EtherTypeIPv6
	}
	if !ok {
		return f.misfit(l2)
	}
	return Keep
}

// misfit is why a GSO type that does not fit the outermost packet is a drop.
func (f *Frame) misfit(l2 *L2) Drop {
	if f.tunnel(l2) != NoTunnel {
		return DropUnsupportedGSO
	}
	return DropBadGSO
}

// Packet is where the protocol headers of a super-packet lie.
type Packet struct {
	L3      int   // of the IP header
	L4      int   // of the TCP or UDP header
	Payload int   // behind it: the length of all headers
	V6      bool  // IPv6
	Jumbo   bool  // a hop-by-hop header follows the IPv6 header and holds only a jumbo option
	Proto   uint8 // of the transport header
}

// Parse reads the protocol headers of a frame with a GSO type, which Check accepted into l2. It
// reports why the frame is malformed, or Keep. It requires everything that tcp_gso_segment,
// __udp_gso_segment, inet_gso_segment and ipv6_gso_segment require, so a frame that it accepts can
// be cut. Like these, it ignores the lengths and checksums inside the headers.
func Parse(f *Frame, l2 *L2, p *Packet) Drop {
	b := f.Head
	if d := ParseNetwork(f, l2, p); d != Keep {
		return d
	}
	want := f.Hdr.GSO.proto()
	if p.Proto != want || f.Hdr.Flags&NeedsCsum != 0 && int(f.Hdr.CsumStart) != p.L4 {
		return f.misfit(l2)
	}
	thlen := UDPLen
	if p.Proto == ProtoTCP {
		if len(b) < p.L4+TCPLen {
			return short(b)
		}
		if thlen = int(b[p.L4+12]>>4) * 4; thlen < TCPLen {
			return DropBadGSO
		}
	}
	p.Payload = p.L4 + thlen
	switch {
	case p.Payload > MaxHeaders:
		return DropHeadersTooLong
	case len(b) < p.Payload:
		return short(b)
	}
	return Keep
}

// ParseNetwork reads the IP header and IPv6's extension headers of a frame that
// Check accepted into l2. It fills all of p but Payload. A fragment, and what is
// not IP, is DropBadGSO.
func ParseNetwork(f *Frame, l2 *L2, p *Packet) Drop {
	*p = Packet{L3: l2.Len}
	switch l2.EtherType {
	case EtherTypeIPv4:
		return p.parseIPv4(f.Head)
	case EtherTypeIPv6:
		return p.parseIPv6(f.Head)
	}
	return DropBadGSO
}

// short is why headers that do not end within the head are a drop: a received
// head holds MaxHeaders bytes if the frame has them.
func short(head []byte) Drop {
	if len(head) >= MaxHeaders {
		return DropHeadersTooLong
	}
	return DropBadGSO
}

func (p *Packet) parseIPv4(b []byte) Drop {
	if len(b) < p.L3+IPv4Len {
		return short(b)
	}
	h := b[p.L3:]
	ihl := int(h[0]&0xf) * 4
	const moreFragmentsOrOffset = 0x3fff
	if h[0]>>4 != 4 || ihl < IPv4Len || binary.BigEndian.Uint16(h[6:])&moreFragmentsOrOffset != 0 {
		return DropBadGSO
	}
	p.Proto = h[9]
	p.L4 = p.L3 + ihl
	return Keep
}

func (p *Packet) parseIPv6(b []byte) Drop {
	if len(b) < p.L3+IPv6Len {
		return short(b)
	}
	if b[p.L3]>>4 != 6 {
		return DropBadGSO
	}
	p.V6 = true
	p.Proto = b[p.L3+6]
	p.L4 = p.L3 + IPv6Len
	for p.Proto == ProtoHopByHop || p.Proto == ProtoRouting || p.Proto == ProtoDestOpts {
		if len(b) < p.L4+8 {
			return short(b)
		}
		h := b[p.L4:]
		n := 8 + int(h[1])*8
		if p.Proto == ProtoHopByHop {
			if p.L4 != p.L3+IPv6Len { // RFC 8200, 4.1: first or not at all
				return DropBadGSO
			}
			const jumbo, jumboLen = 0xc2, 4 // RFC 2675, 2
			p.Jumbo = n == JumboHBHLen && h[2] == jumbo && h[3] == jumboLen
		}
		p.Proto = h[0]
		p.L4 += n
	}
	return Keep
}
