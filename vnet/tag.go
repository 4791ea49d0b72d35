package vnet

import "encoding/binary"

// TagOp is what is done to the outer VLAN tag of a frame.
type TagOp uint8

// Operations on the outer tag.
const (
	TagKeep TagOp = iota // none: the frame stays as it is
	TagPush              // an 802.1Q tag is put in front of the EtherType
	TagPop               // the outer tag is taken away
	TagSet               // the outer tag gets another TCI; its TPID stays
	NumTagOps
)

// TagEdit is an operation on the outer tag, with its argument.
type TagEdit struct {
	Op  TagOp
	TCI uint16 // with TagPush and TagSet
}

// grows is the number of bytes that the edit adds to a frame.
func (e TagEdit) grows() int {
	switch e.Op {
	case TagPush:
		return VLANLen
	case TagPop:
		return -VLANLen
	}
	return 0
}

const (
	tagAt = 12 // where the outer tag is, or would be: behind the addresses
	// maxTransport is the longest transport header that a new head holds: TCP with all options (RFC
	// 9293, 3.1).
	maxTransport = 60
)

// Retag appends f, which Check accepted into l2, to out with its outer tag edited. It sets edited
// to what Check would report for the result. csum_start and hdr_len move with the bytes. Only the
// headers that later steps read (to cut, complete or hash the frame) are copied; the rest is
// referenced. It reports DropBadCsum where csum_start is in front of the packet, or cannot move.
// out needs room for MaxHeaders+VLANLen bytes of scratch and len(f.Body)+1 pieces.
func Retag(out *Batch, f *Frame, l2 *L2, e TagEdit, edited *L2) Drop {
	grows := e.grows()
	hdr := f.Hdr
	if hdr.Flags&NeedsCsum != 0 {
		start := int(hdr.CsumStart) + grows
		if int(hdr.CsumStart) < l2.Len || start > 1<<16-1 {
			return DropBadCsum
		}
		hdr.CsumStart = uint16(start)
	}
	if int(hdr.HdrLen) >= l2.Len { // else the kernel did not say
		hdr.HdrLen = uint16(min(int(hdr.HdrLen)+grows, 1<<16-1))
	}
	n := headersOf(f, l2)
	head := out.Scratch(n + grows)
	rest := tagAt
	if e.Op != TagPush {
		rest += VLANLen
	}
	to := rest + grows
	copy(head, f.Head[:rest])
	switch e.Op {
	case TagPush:
		binary.BigEndian.PutUint16(head[tagAt:], EtherTypeVLAN)
		binary.BigEndian.PutUint16(head[tagAt+2:], e.TCI)
	case TagSet:
		binary.BigEndian.PutUint16(head[tagAt+2:], e.TCI)
	}
	copy(head[to:], f.Head[rest:n])
	edited.parse(head)
	o := out.Next()
	o.Hdr, o.Head = hdr, head
	o.Body = out.Slice(f, n, f.Len()-n)
	return Keep
}

// headersOf is how many bytes of f a new head must hold: up to the end of the transport header,
// where the virtio-net header says where that is.
func headersOf(f *Frame, l2 *L2) int {
	n := min(len(f.Head), MaxHeaders)
	switch {
	case f.Hdr.Flags&NeedsCsum != 0:
		n = min(n, int(f.Hdr.CsumStart)+maxTransport)
	case f.Hdr.GSO == GSONone:
		n = min(n, l2.Len+IPv6Len+maxTransport)
	}
	return n
}
