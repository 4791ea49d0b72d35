package offload

import "sluice/vnet"

const (
	ipv4AddrLen = 4
	ipv6AddrLen = 16
)

// pseudoAddrs are the addresses of a packet's pseudo-header: the IP header's, with two exceptions.
// The destination is the final one while the packet is source-routed (RFC 8200, 8.1), and the
// source is the home address where there is one (RFC 6275, 11.3.1). known is false where a routing
// header of an unknown type has segments left.
//
// The kernel's sockets use these addresses when they send. Its segmentation does not: it makes a
// seed only without NeedsCsum, and then takes the addresses in the IP header (tcp4_gso_segment,
// tcp6_gso_segment).
func pseudoAddrs(b []byte, p *vnet.Packet) (src, dst []byte, known bool) {
	if !p.V6 {
		addrs := b[p.L3+ipv4Addrs:]
		src, dst = addrs[:ipv4AddrLen], addrs[ipv4AddrLen:][:ipv4AddrLen]
		if final := sourceRoute(b[p.L3+vnet.IPv4Len : p.L4]); final != nil {
			dst = final
		}
		return src, dst, true
	}
	addrs := b[p.L3+ipv6Addrs:]
	src, dst, known = addrs[:ipv6AddrLen], addrs[ipv6AddrLen:][:ipv6AddrLen], true
	proto := b[p.L3+ipv6NextHeader]
	for h := b[p.L3+vnet.IPv6Len : p.L4]; len(h) > 0; {
		n := 8 + int(h[1])*8
		switch proto {
		case vnet.ProtoRouting:
			if segmentsLeft := h[3]; segmentsLeft == 0 {
				break
			}
			if final := finalSegment(h[:n]); final != nil {
				dst = final
			} else {
				known = false
			}
		case vnet.ProtoDestOpts:
			if home := homeAddress(h[2:n]); home != nil {
				src = home
			}
		}
		proto, h = h[0], h[n:]
	}
	return src, dst, known
}

// sourceRoute is the last address of the source route in IPv4 options. It is nil where there is no
// source route, or its end is reached (RFC 791, 3.1).
func sourceRoute(options []byte) []byte {
	const end, nop, loose, strict = 0, 1, 131, 137
	for o := options; len(o) > 0 && o[0] != end; {
		if o[0] == nop {
			o = o[1:]
			continue
		}
		if len(o) < 3 || int(o[1]) < 2 || int(o[1]) > len(o) {
			return nil
		}
		n, pointer := int(o[1]), o[2]
		if (o[0] == loose || o[0] == strict) && n >= 3+ipv4AddrLen && int(pointer) <= n {
			return o[n-ipv4AddrLen : n]
		}
		o = o[n:]
	}
	return nil
}

// finalSegment is the last address that a routing header leads to, or nil for an unknown type.
func finalSegment(ext []byte) []byte {
	const fixed = 8 // in front of the addresses
	if len(ext) < fixed+ipv6AddrLen {
		return nil
	}
	switch ext[2] {
	case 0, 2: // RFC 2460, 4.4; RFC 6275, 6.4
		return ext[len(ext)-ipv6AddrLen:]
	case 4: // RFC 8754, 2: the first is the last segment
		return ext[fixed:][:ipv6AddrLen]
	}
	return nil
}

// homeAddress is a mobile node's home address, from IPv6 destination options (RFC 6275, 6.3), or
// nil.
func homeAddress(options []byte) []byte {
	const pad1, home = 0, 0xc9
	for o := options; len(o) > 1; {
		if o[0] == pad1 {
			o = o[1:]
			continue
		}
		n := 2 + int(o[1])
		if n > len(o) {
			return nil
		}
		if o[0] == home && n == 2+ipv6AddrLen {
			return o[2:n]
		}
		o = o[n:]
	}
	return nil
}
