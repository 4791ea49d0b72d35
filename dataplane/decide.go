package dataplane

import (
	"sluice/offload"
	"sluice/vnet"
)

// Oversize says what to do with a super-packet that its egress does not take.
type Oversize uint8

// Oversize policies.
const (
	OversizeResegment Oversize = iota // cut into the fewest chunks that fit
	OversizeSegment                   // cut into segments with full checksums, as kernels before 7.4 do
	OversizePass                      // hand it to the kernel whole, up to the greatest write
)

var oversizeNames = [...]string{"resegment", "segment", "pass"}

func (o Oversize) String() string { return oversizeNames[o] }

// ParseOversize is the inverse of String.
func ParseOversize(s string) (Oversize, bool) {
	for i, n := range oversizeNames {
		if n == s {
			return Oversize(i), true
		}
	}
	return 0, false
}

// outcome is what happens to a frame at one egress.
type outcome uint8

const (
	pass      outcome = iota // as it is
	complete                 // its checksum completed
	reform                   // its BIG TCP form changed
	resegment                // as chunks
	segment                  // as segments
	drop
)

// decision is an outcome, with its argument or reason.
type decision struct {
	outcome outcome
	drop    vnet.Drop // why, with outcome drop
	max     int       // longest chunk, with outcome resegment
}

func dropped(d vnet.Drop) decision { return decision{outcome: drop, drop: d} }

// subject is a checked frame and what is known about it. Its protocol headers are parsed once, when
// the first egress needs them.
type subject struct {
	frame  *vnet.Frame
	l2     vnet.L2
	len    int
	vid    uint16 // the VLAN that it is in: see admit
	parsed bool
	fault  vnet.Drop   // what Parse said; valid when parsed
	packet vnet.Packet // valid when parsed and fault is Keep
}

// parse reads the protocol headers, once.
func (s *subject) parse() vnet.Drop {
	if !s.parsed {
		s.fault = vnet.Parse(s.frame, &s.l2, &s.packet)
		s.parsed = true
	}
	return s.fault
}

// hasHopByHop reports whether s, which is IPv6 and parsed, has a hop-by-hop header.
func (s *subject) hasHopByHop() bool {
	const nextHeader = 6 // RFC 8200, 3
	return s.frame.Head[s.packet.L3+nextHeader] == vnet.ProtoHopByHop
}

// maxTCPLen is a TCP header with all options (RFC 9293, 3.1: data offset 15).
const maxTCPLen = 60

// decide says what happens to s at an egress with limits lim and policy o. It changes nothing
// except the parse result that s keeps. It always reads the protocol in the IP header and TCP's
// data offset. It reads the other protocol headers only where the frame must be cut, where its
// segments may be above the MTU, where it may be a single segment, where the form of an IPv6 frame
// above 64 KiB matters, and where its headers are not the usual ones.
func decide(s *subject, lim *vnet.Limits, o Oversize) decision {
	h := &s.frame.Hdr
	if h.GSO == vnet.GSONone {
		switch {
		case s.len-s.l2.Len > lim.MTU:
			return dropped(vnet.DropOverMTU)
		case h.Flags&vnet.NeedsCsum != 0 && (!lim.Csum || h.CsumOffset == vnet.SCTPCsumOffset):
			// The header cannot express CRC32c: what completes the frame behind the egress would
			// write an Internet checksum.
			return decision{outcome: complete}
		}
		return decision{}
	}

	if !usualHeaders(s) {
		if d := s.parse(); d != vnet.Keep {
			return dropped(d)
		}
	}
	size := int(h.GSOSize)
	if mayExceed(s, lim.MTU) {
		if d := s.parse(); d != vnet.Keep {
			return dropped(d)
		}
		if segmentLen(s) > lim.MTU {
			return dropped(vnet.DropOverMTU)
		}
	}
	if !lim.Takes(h.GSO) {
		return cut(s, decision{outcome: segment})
	}

	limit := lim.MaxSuper(&s.l2, h.GSO)
	over := s.len > limit
	// First a bound: the exact count needs the length of the headers.
	if !over && s.len/size >= lim.GSOMaxSegs {
		if d := s.parse(); d != vnet.Keep {
			return dropped(d)
		}
		over = (s.len-s.packet.Payload+size-1)/size > lim.GSOMaxSegs
	}
	if !over && perhapsSingle(s) {
		if d := s.parse(); d != vnet.Keep {
			return dropped(d)
		}
		if s.len-s.packet.Payload <= size {
			return decision{outcome: resegment, max: limit}
		}
	}
	if !over {
		return decideForm(s, lim, limit)
	}
	switch {
	case o == OversizeSegment:
		return cut(s, decision{outcome: segment})
	case o == OversizePass && s.len <= lim.MaxWrite:
		return decision{}
	}
	return cut(s, decision{outcome: resegment, max: limit})
}

// mayExceed reports whether segments of s may be longer than mtu. The ingress's MTU does not help:
// super-packets are not checked against it (is_skb_forwardable, net/core/dev.c), and the sender's
// MTU may differ.
func mayExceed(s *subject, mtu int) bool {
	h := &s.frame.Hdr
	start := int(h.CsumStart)
	if h.Flags&vnet.NeedsCsum == 0 || len(s.frame.Head) < start+vnet.TCPLen {
		return true
	}
	n := start - s.l2.Len + int(h.GSOSize)
	if h.GSO.Type() == vnet.GSOUDPL4 {
		return n+vnet.UDPLen > mtu
	}
	const dataOffset = 12 // RFC 9293, 3.1
	return n+max(vnet.TCPLen, int(s.frame.Head[start+dataOffset]>>4)*4) > mtu
}

// usualHeaders reports whether the IP header names the protocol of the GSO type, and the part that
// the checksum covers begins right after it, or after a jumbo option. If not, s may be malformed or
// in a tunnel. A packet socket does not say so, and a TAP takes such a frame, but its receiver
// loses it uncounted (VXLAN, measured on 6.18).
func usualHeaders(s *subject) bool {
	const protocol, nextHeader = 9, 6 // RFC 791, 3.1; RFC 8200, 3
	h := &s.frame.Hdr
	l3 := s.frame.Head[s.l2.Len:]
	if len(l3) <= vnet.IPv6Len {
		return false
	}
	length, proto := vnet.IPv4Len, l3[protocol]
	if s.l2.EtherType == vnet.EtherTypeIPv6 {
		length, proto = vnet.IPv6Len, l3[nextHeader]
		if proto == vnet.ProtoHopByHop {
			length, proto = length+vnet.JumboHBHLen, l3[vnet.IPv6Len]
		}
	}
	want := uint8(vnet.ProtoTCP)
	if h.GSO.Type() == vnet.GSOUDPL4 {
		want = vnet.ProtoUDP
	}
	return proto == want && (h.Flags&vnet.NeedsCsum == 0 || int(h.CsumStart) == s.l2.Len+length)
}

// perhapsSingle reports whether s may be a single segment with a GSO type. The kernel loses some of
// those when they are passed on: virtio_net_hdr_to_skb should treat them as ordinary packets, but
// assumes a TCP header of 20 bytes, and tcp_gso_segment, which knows the right length, refuses them
// (measured on 6.18).
func perhapsSingle(s *subject) bool {
	h := &s.frame.Hdr
	before, most := int(h.CsumStart), maxTCPLen
	if h.Flags&vnet.NeedsCsum == 0 {
		before, most = 0, vnet.MaxHeaders
	}
	return s.len-before-most <= int(h.GSOSize)
}

// decideForm decides on a super-packet that is short enough. An IPv6 packet whose
// payload_len cannot hold its length must be in the egress's BIG TCP form.
func decideForm(s *subject, lim *vnet.Limits, limit int) decision {
	const maxPayloadLen = 65535
	if s.l2.EtherType != vnet.EtherTypeIPv6 || s.len-s.l2.Len-vnet.IPv6Len <= maxPayloadLen {
		return decision{}
	}
	if d := s.parse(); d != vnet.Keep {
		return dropped(d)
	}
	form := offload.BigForm(s.frame, &s.packet)
	switch {
	case form == lim.IPv6Form:
		return decision{}
	case lim.IPv6Form == vnet.FormHBH && (s.len+vnet.JumboHBHLen > limit || s.hasHopByHop()):
		// There is no room for the jumbo option, or it would need an edit of an existing hop-by-hop
		// header (RFC 8200, 4.1: there is at most one).
		return cut(s, decision{outcome: resegment, max: limit})
	}
	return decision{outcome: reform}
}

// cut finishes a decision to cut s. If a chunk has no room for two segments, the frame leaves as
// segments.
func cut(s *subject, d decision) decision {
	if fault := s.parse(); fault != vnet.Keep {
		return dropped(fault)
	}
	size := int(s.frame.Hdr.GSOSize)
	if d.outcome == resegment && s.packet.Payload+2*size > d.max {
		d = decision{outcome: segment}
	}
	if d.outcome == segment && (s.len-s.packet.Payload+size-1)/size > vnet.MaxSegments {
		return dropped(vnet.DropTooManySegments)
	}
	return d
}

// segmentLen is the length of the longest segment of s, from the IP header on. A
// jumbo option is not part of it.
func segmentLen(s *subject) int {
	n := s.packet.Payload - s.packet.L3 + min(int(s.frame.Hdr.GSOSize), s.len-s.packet.Payload)
	if s.packet.Jumbo {
		n -= vnet.JumboHBHLen
	}
	return n
}
