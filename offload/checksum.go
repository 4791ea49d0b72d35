package offload

import (
	"encoding/binary"
	"hash/crc32"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"

	"sluice/vnet"
)

// mangledZero replaces a checksum of 0, which in UDP means "no checksum" (RFC 768): the kernel's
// CSUM_MANGLED_0.
const mangledZero = 0xffff

// sctpLen is SCTP's common header, which ends with its checksum (RFC 9260, 3.1).
const sctpLen = vnet.SCTPCsumOffset + 4

// castagnoli is the polynomial of SCTP's checksum (RFC 9260, appendix A).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Complete appends f, which needs its checksum and has no GSO type, to out with the checksum
// finished. An SCTP packet gets a CRC32c, any other an Internet checksum, whose 0 is stored as
// 0xffff (skb_checksum_help). Both cover the bytes up to the end of the frame. It reports
// vnet.DropHeadersTooLong when the checksum field lies beyond vnet.MaxHeaders, and vnet.DropBadCsum
// when an SCTP packet ends before its field. out needs room for vnet.MaxHeaders bytes of scratch
// and len(f.Body)+1 pieces.
func Complete(out *vnet.Batch, f *vnet.Frame, l2 *vnet.L2) vnet.Drop {
	sctp := isSCTP(f, l2)
	field := 2
	if sctp {
		field = sctpLen - vnet.SCTPCsumOffset
	}
	end := int(f.Hdr.CsumStart) + int(f.Hdr.CsumOffset) + field
	switch {
	case end > f.Len():
		return vnet.DropBadCsum
	case end > vnet.MaxHeaders || end > len(f.Head):
		return vnet.DropHeadersTooLong
	case sctp:
		completeSCTP(out, f, end)
	default:
		completeInternet(appendPlain(out, f, end), &f.Hdr)
	}
	return vnet.Keep
}

// isSCTP reports whether the checksum that f needs is that of an SCTP packet. The packet may be in
// a tunnel; then it follows an IP header without options.
func isSCTP(f *vnet.Frame, l2 *vnet.L2) bool {
	start := int(f.Hdr.CsumStart)
	if f.Hdr.CsumOffset != vnet.SCTPCsumOffset || start > len(f.Head) {
		return false
	}
	var p vnet.Packet
	if vnet.ParseNetwork(f, l2, &p) != vnet.Keep {
		return false
	}
	if start == p.L4 {
		return p.Proto == vnet.ProtoSCTP
	}
	inner := f.Head[min(p.L4, start):start]
	const protocol = 9 // RFC 791, 3.1
	if n := len(inner) - vnet.IPv4Len; n >= 0 && inner[n] == 0x45 && inner[n+protocol] == vnet.ProtoSCTP {
		return true
	}
	n := len(inner) - vnet.IPv6Len
	return n >= 0 && inner[n]>>4 == 6 && inner[n+ipv6NextHeader] == vnet.ProtoSCTP
}

// completeInternet finishes the Internet checksum that h asks for. The head of o holds the checksum
// field, and the field holds the seed.
func completeInternet(o *vnet.Frame, h *vnet.Header) {
	start := int(h.CsumStart)
	var c checksum.Checksumer // carries odd lengths from piece to piece
	c.Add(o.Head[start:])
	for _, b := range o.Body {
		c.Add(b)
	}
	v := ^c.Checksum()
	if v == 0 {
		v = mangledZero
	}
	binary.BigEndian.PutUint16(o.Head[start+int(h.CsumOffset):], v)
}

// completeSCTP appends the SCTP packet f with a finished CRC32c. It is computed with the field set
// to 0 and stored with its low byte first (RFC 9260, appendix A).
func completeSCTP(out *vnet.Batch, f *vnet.Frame, headLen int) {
	o := appendPlain(out, f, headLen)
	packet := o.Head[f.Hdr.CsumStart:]
	field := packet[vnet.SCTPCsumOffset:sctpLen]
	clear(field)
	crc := crc32.Update(0, castagnoli, packet)
	for _, b := range o.Body {
		crc = crc32.Update(crc, castagnoli, b)
	}
	binary.LittleEndian.PutUint32(field, crc)
}

// appendPlain appends f with a head of its own, its first headLen bytes, and a
// header that asks for nothing: no GSO type, no checksum.
func appendPlain(out *vnet.Batch, f *vnet.Frame, headLen int) *vnet.Frame {
	head := out.Scratch(headLen)
	copy(head, f.Head)
	o := out.Next()
	o.Hdr = vnet.Header{Flags: f.Hdr.Flags & vnet.DataValid, HdrLen: uint16(headLen)}
	o.Head = head
	o.Body = out.Slice(f, headLen, f.Len()-headLen)
	return o
}

// sum is the sum of b. Only the last part of a packet may have an odd length.
func sum(b []byte) uint32 { return uint32(checksum.Checksum(b, 0)) }

// sumPieces is the sum of bytes that lie in several pieces, of any lengths.
func sumPieces(pieces [][]byte) uint32 {
	if len(pieces) == 1 {
		return sum(pieces[0])
	}
	var c checksum.Checksumer
	for _, b := range pieces {
		c.Add(b)
	}
	return uint32(c.Checksum())
}

// sum32 is the sum of v's two halves.
func sum32(v uint32) uint32 { return v>>16 + v&0xffff }

// fold folds a sum of up to 65536 words into 16 bits (RFC 1071, 2).
func fold(s uint32) uint16 {
	s = s>>16 + s&0xffff
	return uint16(s>>16 + s)
}
