package offload

import (
	"encoding/binary"

	"sluice/vnet"
)

// BigForm is the form in which f, whose headers lie as p says, gives its length. It is
// vnet.FormNone when f is not IPv6 above 64 KiB. A jumbo option in a shorter packet is invalid (RFC
// 2675, 3) and does not count.
func BigForm(f *vnet.Frame, p *vnet.Packet) vnet.Form {
	switch {
	case !p.V6 || f.Len()-p.L3-vnet.IPv6Len <= maxLen16:
		return vnet.FormNone
	case p.Jumbo:
		return vnet.FormHBH
	}
	return vnet.FormPlain
}

// Reform appends f, IPv6 above 64 KiB, to out in the given form, vnet.FormHBH or vnet.FormPlain: it
// inserts or removes the jumbo option and moves csum_start and hdr_len. It reports vnet.DropTooBig
// where the option makes the frame longer than vnet.MaxFrame, or where f has another hop-by-hop
// header, into which the option would have to go. out needs room for
// vnet.MaxHeaders+vnet.JumboHBHLen bytes of scratch and len(f.Body)+1 pieces.
func Reform(out *vnet.Batch, f *vnet.Frame, p *vnet.Packet, form vnet.Form) vnet.Drop {
	payload := f.Len() - p.Payload
	add := form == vnet.FormHBH && !p.Jumbo
	if add && (!mayAddJumbo(f, p) || f.Len()+vnet.JumboHBHLen > vnet.MaxFrame) {
		return vnet.DropTooBig
	}
	head := out.Scratch(p.Payload + vnet.JumboHBHLen)
	n, l4 := putHeaders(head, f, p, payload, form)
	o := out.Next()
	o.Hdr = f.Hdr
	o.Hdr.HdrLen = uint16(n)
	if f.Hdr.Flags&vnet.NeedsCsum != 0 {
		o.Hdr.CsumStart = uint16(l4)
	}
	o.Head = head[:n:n]
	o.Body = out.Slice(f, p.Payload, payload)
	return vnet.Keep
}

// mayAddJumbo reports whether a hop-by-hop header with a jumbo option can be put
// behind f's IPv6 header: not in front of another one (RFC 8200, 4.1).
func mayAddJumbo(f *vnet.Frame, p *vnet.Packet) bool {
	return p.Jumbo || f.Head[p.L3+ipv6NextHeader] != vnet.ProtoHopByHop
}

// putHeaders copies f's headers to dst, for a packet with n bytes of payload. The IP header gets
// its length, in the given form if it is above 64 KiB. p.Jumbo says that f's jumbo option is
// replaced. It reports the length of the headers and where the transport header lies. The IPv4
// checksum is stale.
func putHeaders(dst []byte, f *vnet.Frame, p *vnet.Packet, n int, form vnet.Form) (length, l4 int) {
	src := f.Head[:p.Payload]
	if !p.V6 {
		length = copy(dst, src)
		putLength(dst[p.L3+ipv4TotalLen:], length-p.L3+n)
		return length, p.L4
	}
	fixed := p.L3 + vnet.IPv6Len // behind the IPv6 header
	copy(dst, src[:fixed])
	next, rest := src[p.L3+ipv6NextHeader], src[fixed:]
	if p.Jumbo {
		next, rest = rest[0], rest[vnet.JumboHBHLen:]
	}
	length = fixed
	if form == vnet.FormHBH && len(rest)+n > maxLen16 {
		hbh := dst[fixed:][:vnet.JumboHBHLen]
		hbh[0], hbh[1], hbh[2], hbh[3] = next, 0, 0xc2, 4 // RFC 2675, 2
		binary.BigEndian.PutUint32(hbh[4:], uint32(vnet.JumboHBHLen+len(rest)+n))
		next = vnet.ProtoHopByHop
		length += vnet.JumboHBHLen
	}
	dst[p.L3+ipv6NextHeader] = next
	length += copy(dst[length:], rest)
	putLength(dst[p.L3+ipv6PayloadLen:], length-fixed+n)
	return length, length - (p.Payload - p.L4)
}

// putLength writes a length, counted as the IP header counts it. A length that does not fit in 16
// bits becomes 0, as in BIG TCP (iph_set_totlen, ipv6_set_payload_len).
func putLength(b []byte, n int) {
	if n > maxLen16 {
		n = 0
	}
	binary.BigEndian.PutUint16(b, uint16(n))
}
