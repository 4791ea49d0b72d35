package offload

import (
	"encoding/binary"

	"sluice/vnet"
)

// Offsets in the protocol headers (RFC 791, RFC 8200, RFC 9293, RFC 768).
const (
	ipv4TotalLen   = 2
	ipv4ID         = 4
	ipv4Csum       = 10
	ipv4Addrs      = 12
	ipv6PayloadLen = 4
	ipv6NextHeader = 6
	ipv6Addrs      = 8
	tcpSeq         = 4
	tcpFlags       = 13
	udpLength      = 4
)

// Flags in the byte at tcpFlags (RFC 9293, 3.1; RFC 3168, 6.1).
const (
	tcpFIN = 0x01
	tcpPSH = 0x08
	tcpCWR = 0x80
)

// maxLen16 is the greatest value of a 16-bit length field.
const maxLen16 = 0xffff

// maxUSOSegments bounds the segments of a UDP chunk. The kernel refuses a write of more than
// UDP_MAX_SEGMENTS (virtio_net_hdr_to_skb): 128 since August 2024, 64 before. Chunks are made only
// where a frame must be cut anyway, so 64, which every kernel takes, costs at most one more chunk.
const maxUSOSegments = 64

// Segmenter cuts one super-packet at a time, and can pause: Resegment or Segment begins, then Fill
// is called until it reports that nothing is left. The zero value is ready to use. A Segmenter is
// reused, and allocates nothing.
//
// Theory of operation. All pieces but the last hold the same number of segments. So they differ
// only in the IPv4 ID, the sequence number, and the checksums over these. Everything else is laid
// out and summed once, in a template. A new template is made only where a piece differs in more:
// after the first piece, which alone keeps CWR, and for the last, which is shorter and alone has
// FIN and PSH.
type Segmenter struct {
	f *vnet.Frame
	// p is where f's headers lie. Its Jumbo is set only for a jumbo option that counts (see
	// BigForm). That one is replaced; any other is copied like all options.
	p    vnet.Packet
	form vnet.Form
	full bool // checksums are finished: Segment, not Resegment

	payload int    // of f
	size    int    // gso_size
	segs    int    // segments of each piece but the last
	pieces  int    // number of pieces
	next    int    // next piece to cut
	seed    uint32 // sum of the pseudo-header without the length
	seq     uint32 // of f; TCP only
	id      uint16 // of f; IPv4 only
	cwr     bool   // f has CWR; TCP only

	t template
}

// template holds what a series of pieces has in common.
type template struct {
	hdr   vnet.Header
	n     int    // payload of a piece
	l4    int    // offset of the TCP or UDP header
	csum  int    // offset of its checksum
	ipSum uint32 // sum of the IPv4 header with ID 0
	l4Sum uint32 // sum of pseudo-header and transport header with sequence number 0
	len   int    // bytes of buf that are headers
	buf   [vnet.MaxHeaders + vnet.JumboHBHLen]byte
}

// Resegment begins to cut the super-packet f, whose headers lie as p says, into chunks. A chunk is
// at most maxLen bytes long (vnet.Limits.MaxSuper) and stands for at most maxSegs segments; IPv6
// above 64 KiB is written in the given form. A chunk of one segment has no GSO type. Where not even
// two segments fit, every chunk is one segment, whatever its length. It reports
// vnet.DropTooManySegments for more than vnet.MaxSegments chunks.
func (s *Segmenter) Resegment(
	f *vnet.Frame, p *vnet.Packet, maxLen, maxSegs int, form vnet.Form,
) vnet.Drop {
	s.begin(f, p)
	s.full, s.form = false, form
	headers := s.p.Payload
	if s.p.Jumbo {
		headers -= vnet.JumboHBHLen
	}
	room := maxLen - headers // for payload
	if s.p.Proto == vnet.ProtoUDP {
		// There is no BIG UDP, in either family.
		room = min(room, maxLen16-(headers-s.p.L3))
		maxSegs = min(maxSegs, maxUSOSegments)
	} else if s.p.V6 {
		// Up to short, payload_len gives the packet's length; beyond that, the form does.
		short := maxLen16 - (headers - s.p.L3 - vnet.IPv6Len)
		switch {
		case room <= short:
		case form == vnet.FormHBH && mayAddJumbo(f, &s.p):
			room = max(short, room-vnet.JumboHBHLen)
		case form != vnet.FormPlain:
			room = short
		}
	}
	return s.split(min(room/s.size, maxSegs))
}

// Segment begins to cut the super-packet f, whose headers lie as p says, into frames of at most
// gso_size bytes of payload and with finished checksums. It reports vnet.DropTooManySegments for
// more than vnet.MaxSegments of them.
func (s *Segmenter) Segment(f *vnet.Frame, p *vnet.Packet) vnet.Drop {
	s.begin(f, p)
	s.full, s.form = true, vnet.FormNone
	return s.split(1)
}

// Fill appends pieces to out until out is full or f is used up, and reports
// whether there is more. f and what it borrows stay untouched until then. An
// empty out must have room for one piece: vnet.MaxHeaders+vnet.JumboHBHLen bytes
// of scratch and len(f.Body)+1 pieces.
func (s *Segmenter) Fill(out *vnet.Batch) (more bool) {
	for ; s.next < s.pieces; s.next++ {
		if !out.Room(s.p.Payload+vnet.JumboHBHLen, len(s.f.Body)+1) {
			return true
		}
		if s.payload <= s.size {
			s.pass(out)
		} else {
			s.cut(out)
		}
	}
	s.f = nil
	return false
}

func (s *Segmenter) begin(f *vnet.Frame, p *vnet.Packet) {
	s.f, s.p = f, *p
	s.p.Jumbo = BigForm(f, p) == vnet.FormHBH
	s.payload = f.Len() - p.Payload
	s.size = int(f.Hdr.GSOSize)

	l3, l4 := f.Head[p.L3:], f.Head[p.L4:]
	if !p.V6 {
		s.id = binary.BigEndian.Uint16(l3[ipv4ID:])
	}
	if p.Proto == vnet.ProtoTCP {
		s.seq = binary.BigEndian.Uint32(l4[tcpSeq:])
		s.cwr = l4[tcpFlags]&tcpCWR != 0
	} else {
		s.cwr = false
	}
	s.seed = seed(f, p)
}

// seed is the sum of f's pseudo-header without the length. It comes from the addresses, not from
// the checksum field; see the package's documentation. Where the addresses are not known, it is the
// field less the length of f. That is what tcp_gso_segment and __udp_gso_segment do with NeedsCsum;
// without it, tcp6_gso_segment takes the addresses of the IP header, as here.
func seed(f *vnet.Frame, p *vnet.Packet) uint32 {
	src, dst, known := pseudoAddrs(f.Head, p)
	if known || f.Hdr.Flags&vnet.NeedsCsum == 0 {
		return uint32(fold(sum(src)+sum(dst))) + uint32(p.Proto)
	}
	field := f.Head[int(f.Hdr.CsumStart)+int(f.Hdr.CsumOffset):]
	length := fold(sum32(uint32(f.Len() - p.L4)))
	return uint32(binary.BigEndian.Uint16(field)) + uint32(^length)
}

// split sets the number of pieces of segs segments each, at least one.
func (s *Segmenter) split(segs int) vnet.Drop {
	s.segs = max(1, segs)
	step := s.segs * s.size
	s.next, s.pieces = 0, max(1, (s.payload+step-1)/step)
	if s.pieces > vnet.MaxSegments {
		s.pieces = 0
		return vnet.DropTooManySegments
	}
	return vnet.Keep
}

// pass appends f, which is one segment. As in virtio_net_hdr_to_skb, it is then not a super-packet:
// its lengths are real, its checksum is finished unless NeedsCsum is set, and padding may follow
// the payload.
func (s *Segmenter) pass(out *vnet.Batch) {
	o := appendPlain(out, s.f, s.p.Payload)
	h := &s.f.Hdr
	if h.Flags&vnet.NeedsCsum == 0 {
		return
	}
	field := o.Head[int(h.CsumStart)+int(h.CsumOffset):]
	binary.BigEndian.PutUint16(field, fold(s.seed+sum32(uint32(segmentLen(s.f, &s.p)))))
	if s.full {
		completeInternet(o, h)
		return
	}
	o.Hdr.Flags |= vnet.NeedsCsum
	o.Hdr.CsumStart, o.Hdr.CsumOffset = h.CsumStart, h.CsumOffset
}

// segmentLen is the length of f, which is one segment, from the transport header on. The headers
// give it, since padding may follow. Where their value is impossible, it is everything up to the
// end.
func segmentLen(f *vnet.Frame, p *vnet.Packet) int {
	l3, l4 := f.Head[p.L3:], f.Head[p.L4:]
	var n int
	switch {
	case p.Proto == vnet.ProtoUDP:
		n = int(binary.BigEndian.Uint16(l4[udpLength:]))
	case p.V6:
		n = vnet.IPv6Len + int(binary.BigEndian.Uint16(l3[ipv6PayloadLen:])) - (p.L4 - p.L3)
	default:
		n = int(binary.BigEndian.Uint16(l3[ipv4TotalLen:])) - (p.L4 - p.L3)
	}
	if whole := f.Len() - p.L4; n < p.Payload-p.L4 || n > whole {
		return whole
	}
	return n
}

// cut appends the next piece.
func (s *Segmenter) cut(out *vnet.Batch) {
	if s.next == 0 || s.next == 1 && s.cwr || s.next == s.pieces-1 {
		s.prepare()
	}
	t := &s.t
	before := s.next * s.segs // segments
	from := before * s.size   // payload

	head := out.Scratch(t.len)
	copy(head, t.buf[:t.len])
	if !s.p.V6 {
		id := s.id + uint16(before)
		l3 := head[s.p.L3:]
		binary.BigEndian.PutUint16(l3[ipv4ID:], id)
		binary.BigEndian.PutUint16(l3[ipv4Csum:], ^fold(t.ipSum+uint32(id)))
	}
	l4Sum := t.l4Sum
	if s.p.Proto == vnet.ProtoTCP {
		seq := s.seq + uint32(from)
		binary.BigEndian.PutUint32(head[t.l4+tcpSeq:], seq)
		l4Sum += sum32(seq)
	}
	o := out.Next()
	o.Hdr = t.hdr
	o.Head = head
	o.Body = out.Slice(s.f, s.p.Payload+from, t.n)
	if s.full {
		c := ^fold(l4Sum + sumPieces(o.Body))
		if c == 0 && s.p.Proto == vnet.ProtoUDP {
			c = mangledZero
		}
		binary.BigEndian.PutUint16(head[t.csum:], c)
	}
}

// prepare makes the template for the next piece and those like it.
func (s *Segmenter) prepare() {
	t := &s.t
	first, last := s.next == 0, s.next == s.pieces-1
	t.n = s.segs * s.size
	if last {
		t.n = s.payload - s.next*t.n
	}
	form := s.form
	if t.n <= s.size {
		form = vnet.FormNone // BIG TCP is for super-packets
	}
	t.len, t.l4 = putHeaders(t.buf[:], s.f, &s.p, t.n, form)

	if !s.p.V6 {
		l3 := t.buf[s.p.L3:t.l4]
		binary.BigEndian.PutUint16(l3[ipv4ID:], 0)
		binary.BigEndian.PutUint16(l3[ipv4Csum:], 0)
		t.ipSum = sum(l3)
	}

	l4 := t.buf[t.l4:t.len]
	length := uint32(len(l4) + t.n)
	pseudo := s.seed + sum32(length)
	offset := vnet.TCPCsumOffset
	if s.p.Proto == vnet.ProtoUDP {
		offset = vnet.UDPCsumOffset
		binary.BigEndian.PutUint16(l4[udpLength:], uint16(length))
	} else {
		binary.BigEndian.PutUint32(l4[tcpSeq:], 0)
		if !first {
			l4[tcpFlags] &^= tcpCWR
		}
		if !last {
			l4[tcpFlags] &^= tcpFIN | tcpPSH
		}
	}
	t.csum = t.l4 + offset

	t.hdr = vnet.Header{HdrLen: uint16(t.len)}
	if s.full {
		binary.BigEndian.PutUint16(l4[offset:], 0)
		t.l4Sum = pseudo + sum(l4)
		return
	}
	binary.BigEndian.PutUint16(l4[offset:], fold(pseudo))
	t.hdr.Flags = vnet.NeedsCsum
	t.hdr.CsumStart = uint16(t.l4)
	t.hdr.CsumOffset = uint16(offset)
	if t.n > s.size {
		t.hdr.GSO = s.f.Hdr.GSO
		if !first || !s.cwr {
			t.hdr.GSO = t.hdr.GSO.Type() // the ECN bit goes with CWR
		}
		t.hdr.GSOSize = uint16(s.size)
	}
}
