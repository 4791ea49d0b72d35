package vnettest

import (
	"encoding/binary"
	"fmt"

	"sluice/vnet"
)

// TCP flags (RFC 9293, 3.1; AE: RFC 9768).
const (
	FIN = 0x001
	SYN = 0x002
	RST = 0x004
	PSH = 0x008
	ACK = 0x010
	URG = 0x020
	ECE = 0x040
	CWR = 0x080
	AE  = 0x100
)

// Csum is what the checksum field of the transport header holds.
type Csum uint8

// Contents of the checksum field.
const (
	// Seed: the pseudo-header sum over the whole length, not complemented, and
	// NeedsCsum in the header: as a sender's kernel leaves it.
	Seed Csum = iota
	// Full: the finished checksum, and no flag.
	Full
	// Zero: 0 and no flag. The kernel accepts this in a TCP super-packet; in UDP over IPv4 it means
	// "no checksum" (RFC 768).
	Zero
)

// Ext is an IPv6 extension header. The builder puts the next header and the
// length in front of Data, which is 6 bytes longer than a multiple of 8.
type Ext struct {
	Proto uint8
	Data  []byte
}

// Extension headers to put into Spec.Ext, in this order.
var (
	HopByHop = Ext{vnet.ProtoHopByHop, []byte{5, 2, 0, 0, 1, 0}} // router alert (RFC 2711), PadN
	Routing  = Ext{vnet.ProtoRouting, []byte{253, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}
	DestOpts = Ext{vnet.ProtoDestOpts, []byte{1, 4, 0, 0, 0, 0}} // PadN
)

// Timestamps are TCP options that extend a 20-byte header to 32 bytes: two NOPs and the timestamps
// of RFC 7323.
var Timestamps = []byte{1, 1, 8, 10, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88}

// Spec says what frame to build. The zero value is a TCP segment over IPv4 with
// nothing in it.
type Spec struct {
	V6      bool
	UDP     bool
	Payload []byte // see Pattern

	// GSOSize makes the frame a super-packet when it is not 0, whatever the length
	// of the payload is. The ECN bit is set if TCPFlags has CWR.
	GSOSize int
	Csum    Csum

	Tags []uint16 // TCI of each VLAN tag, the outer one first

	ID        uint16 // IPv4 only
	TOS       uint8  // or traffic class
	IPOptions []byte // IPv4 only; a multiple of 4 bytes, at most 40

	FlowLabel uint32 // IPv6 only; 20 bits
	Ext       []Ext  // IPv6 only
	// Form is how IPv6 above 64 KiB gives its length: with FormHBH in a jumbo option in front of
	// Ext, otherwise not at all.
	Form vnet.Form

	Seq, Ack   uint32
	TCPFlags   uint16 // ACK is not implied
	Window     uint16
	Urgent     uint16
	TCPOptions []byte // a multiple of 4 bytes, at most 40

	carries uint8 // the protocol in the IP header, if it is a tunnel's
}

// Super builds the frame of s, in one piece. HdrLen is the real length of the
// headers.
func Super(s Spec) vnet.Frame {
	l4 := s.transport()
	l3 := s.network(l4)
	b := append(s.ethernet(), l3...)
	csumStart := len(b)
	b = append(b, l4...)

	offset, gso := vnet.TCPCsumOffset, vnet.GSOTCPv4
	switch {
	case s.UDP:
		offset, gso = vnet.UDPCsumOffset, vnet.GSOUDPL4
	case s.V6:
		gso = vnet.GSOTCPv6
	}
	field := b[csumStart+offset:]
	seed := Sum(s.pseudo(len(l4)))
	f := vnet.Frame{Head: b}
	f.Hdr.HdrLen = uint16(len(b) - len(s.Payload))
	switch s.Csum {
	case Seed:
		f.Hdr.Flags = vnet.NeedsCsum
		f.Hdr.CsumStart = uint16(csumStart)
		f.Hdr.CsumOffset = uint16(offset)
		binary.BigEndian.PutUint16(field, seed)
	case Full:
		binary.BigEndian.PutUint16(field, seed)
		sum := ^Sum(b[csumStart:])
		if sum == 0 && s.UDP {
			sum = 0xffff // RFC 768: 0 means "no checksum"
		}
		binary.BigEndian.PutUint16(field, sum)
	}
	if s.GSOSize != 0 {
		f.Hdr.GSO = gso
		f.Hdr.GSOSize = uint16(s.GSOSize)
		if !s.UDP && s.TCPFlags&CWR != 0 {
			f.Hdr.GSO |= vnet.GSOECN
		}
	}
	return f
}

// Pattern is n bytes of payload. No byte is 0, and neither bytes nor words repeat at a distance
// that a wrong offset is likely to have.
func Pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(1 + (i*31+i/251*7+i/65521*3)%255)
	}
	return b
}

// Scatter is f with the same bytes in several pieces: head bytes in Head, then
// pieces of the given lengths, then the rest. Nothing is copied.
func Scatter(f vnet.Frame, head int, pieces ...int) vnet.Frame {
	b := f.AppendTo(nil)
	out := vnet.Frame{Hdr: f.Hdr, Head: b[:head:head]}
	b = b[head:]
	for _, n := range pieces {
		out.Body = append(out.Body, b[:n:n])
		b = b[n:]
	}
	if len(b) > 0 {
		out.Body = append(out.Body, b)
	}
	return out
}

// Sum is the Internet checksum's sum (RFC 1071) of b, not complemented.
func Sum(b []byte) uint16 {
	sum := 0
	for i, c := range b {
		if i%2 == 0 {
			sum += int(c) << 8
		} else {
			sum += int(c)
		}
		if sum > 0xffff {
			sum -= 0xffff
		}
	}
	return uint16(sum)
}

// Reseed changes seed, the pseudo-header sum of a packet with n bytes from the transport header on,
// to that of one with m bytes. With m 0 it leaves the length out, as some senders do.
func Reseed(seed uint16, n, m int) uint16 {
	b := binary.BigEndian.AppendUint16(nil, seed)
	b = binary.BigEndian.AppendUint32(b, ^uint32(n))
	return Sum(binary.BigEndian.AppendUint32(b, uint32(m)))
}

var (
	dstMAC = []byte{0x02, 0x00, 0x5e, 0x10, 0x00, 0x02}
	srcMAC = []byte{0x02, 0x00, 0x5e, 0x10, 0x00, 0x01}

	src4 = []byte{192, 0, 2, 1} // TEST-NET-1
	dst4 = []byte{192, 0, 2, 2}
	src6 = []byte{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}
	dst6 = []byte{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}
)

const (
	srcPort = 40000
	dstPort = 5201
	ttl     = 64
)

func (s *Spec) proto() uint8 {
	if s.carries != 0 {
		return s.carries
	}
	if s.UDP {
		return vnet.ProtoUDP
	}
	return vnet.ProtoTCP
}

// ethernet is the Ethernet header and the tags: 802.1ad outside of 802.1Q.
func (s *Spec) ethernet() []byte {
	b := append(append([]byte{}, dstMAC...), srcMAC...)
	for i, tci := range s.Tags {
		tpid := uint16(vnet.EtherTypeVLAN)
		if i < len(s.Tags)-1 {
			tpid = vnet.EtherTypeQinQ
		}
		b = binary.BigEndian.AppendUint16(b, tpid)
		b = binary.BigEndian.AppendUint16(b, tci)
	}
	if s.V6 {
		return binary.BigEndian.AppendUint16(b, vnet.EtherTypeIPv6)
	}
	return binary.BigEndian.AppendUint16(b, vnet.EtherTypeIPv4)
}

// transport is the TCP or UDP header, with checksum 0, and the payload.
func (s *Spec) transport() []byte {
	b := binary.BigEndian.AppendUint16(nil, srcPort)
	b = binary.BigEndian.AppendUint16(b, dstPort)
	if s.UDP {
		b = binary.BigEndian.AppendUint16(b, fits16(vnet.UDPLen+len(s.Payload)))
		b = append(b, 0, 0)
		return append(b, s.Payload...)
	}
	if len(s.TCPOptions)%4 != 0 || len(s.TCPOptions) > 40 {
		panic(fmt.Sprintf("vnettest: %d bytes of TCP options", len(s.TCPOptions)))
	}
	words := (vnet.TCPLen + len(s.TCPOptions)) / 4
	b = binary.BigEndian.AppendUint32(b, s.Seq)
	b = binary.BigEndian.AppendUint32(b, s.Ack)
	b = binary.BigEndian.AppendUint16(b, uint16(words)<<12|s.TCPFlags&0xfff)
	b = binary.BigEndian.AppendUint16(b, s.Window)
	b = append(b, 0, 0)
	b = binary.BigEndian.AppendUint16(b, s.Urgent)
	b = append(b, s.TCPOptions...)
	return append(b, s.Payload...)
}

// pseudo is the pseudo-header (RFC 9293, 3.1; RFC 8200, 8.1) of n bytes.
func (s *Spec) pseudo(n int) []byte {
	src, dst := src4, dst4
	if s.V6 {
		src, dst = src6, dst6
	}
	b := append(append([]byte{}, src...), dst...)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	return append(b, 0, 0, 0, s.proto())
}

// network is the IP header, with options or extension headers, in front of l4.
func (s *Spec) network(l4 []byte) []byte {
	if s.V6 {
		return s.ipv6(len(l4))
	}
	return s.ipv4(len(l4))
}

func (s *Spec) ipv4(n int) []byte {
	if len(s.IPOptions)%4 != 0 || len(s.IPOptions) > 40 {
		panic(fmt.Sprintf("vnettest: %d bytes of IPv4 options", len(s.IPOptions)))
	}
	ihl := vnet.IPv4Len + len(s.IPOptions)
	const dontFragment = 0x4000
	b := []byte{byte(0x40 | ihl/4), s.TOS}
	b = binary.BigEndian.AppendUint16(b, zeroIfBig(ihl+n))
	b = binary.BigEndian.AppendUint16(b, s.ID)
	b = binary.BigEndian.AppendUint16(b, dontFragment)
	b = append(b, ttl, s.proto(), 0, 0)
	b = append(append(append(b, src4...), dst4...), s.IPOptions...)
	binary.BigEndian.PutUint16(b[10:], ^Sum(b))
	return b
}

func (s *Spec) ipv6(n int) []byte {
	exts := s.Ext
	extLen := 0
	for _, e := range exts {
		if len(e.Data)%8 != 6 {
			panic(fmt.Sprintf("vnettest: extension header with %d bytes of data", len(e.Data)))
		}
		extLen += 2 + len(e.Data)
	}
	if s.Form == vnet.FormHBH && extLen+n > 0xffff {
		jumbo := []byte{0xc2, 4} // RFC 2675, 2
		jumbo = binary.BigEndian.AppendUint32(jumbo, uint32(vnet.JumboHBHLen+extLen+n))
		exts = append([]Ext{{vnet.ProtoHopByHop, jumbo}}, exts...)
		extLen += vnet.JumboHBHLen
	}
	b := binary.BigEndian.AppendUint32(nil, 6<<28|uint32(s.TOS)<<20|s.FlowLabel&0xfffff)
	b = binary.BigEndian.AppendUint16(b, zeroIfBig(extLen+n))
	b = append(b, s.proto(), ttl)
	b = append(append(b, src6...), dst6...)
	next := 6 // where the last header so far names the next one
	for _, e := range exts {
		b[next], next = e.Proto, len(b)
		b = append(b, s.proto(), byte(len(e.Data)/8))
		b = append(b, e.Data...)
	}
	return b
}

// zeroIfBig is n as an IP length field says it: 0 above 65535, as in BIG TCP.
func zeroIfBig(n int) uint16 {
	if n > 0xffff {
		return 0
	}
	return uint16(n)
}

func fits16(n int) uint16 {
	if n > 0xffff {
		panic(fmt.Sprintf("vnettest: a length of %d", n))
	}
	return uint16(n)
}
