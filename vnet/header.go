package vnet

import "encoding/binary"

// Lengths of the virtio-net header on a queue.
const (
	// HeaderLen is struct virtio_net_hdr_v1 (virtio 1.2, 5.1.6): 12 bytes, with
	// num_buffers. Taps and macvtaps take it through TUNSETVNETHDRSZ, packet
	// sockets through PACKET_VNET_HDR_SZ (Linux 6.4).
	HeaderLen = 12
	// MinHeaderLen is the legacy struct virtio_net_hdr: 10 bytes, the only length
	// that packet sockets know before Linux 6.4.
	MinHeaderLen = 10
)

// Flags is the flags byte of a Header (virtio 1.2, 5.1.6).
type Flags uint8

// Flags that a Header may carry.
const (
	// NeedsCsum: the checksum field holds the pseudo-header sum, not complemented. Before the frame
	// goes on a wire, the sum must be completed, from csum_start to the end.
	NeedsCsum Flags = 1
	// DataValid: the sender vouches for the checksum.
	DataValid Flags = 2
)

// GSO is the gso_type byte of a Header (include/uapi/linux/virtio_net.h).
type GSO uint8

// GSO types, and the flag bits that go with them.
const (
	GSONone    GSO = 0
	GSOTCPv4   GSO = 1
	GSOUDP     GSO = 3 // UFO: fragments, not segments; not carried
	GSOTCPv6   GSO = 4
	GSOUDPL4   GSO = 5    // USO
	GSOTunnel4 GSO = 0x20 // bit: in a UDP tunnel over IPv4; not carried
	GSOTunnel6 GSO = 0x40 // bit: in a UDP tunnel over IPv6; not carried
	GSOECN     GSO = 0x80 // bit: the TCP header has CWR set
)

// Type is g without the ECN bit.
func (g GSO) Type() GSO { return g &^ GSOECN }

// proto is the transport protocol of g, which is one of the types that are carried.
func (g GSO) proto() uint8 {
	if g.Type() == GSOUDPL4 {
		return ProtoUDP
	}
	return ProtoTCP
}

// MaxGSOSize is the greatest gso_size: 65535 is the kernel's GSO_BY_FRAGS
// (include/linux/skbuff.h), which virtio_net_hdr_to_skb refuses.
const MaxGSOSize = 65534

// Header is a decoded virtio-net header. Fields are as they came: hostile until
// Check accepted them. HdrLen is never more than a hint: the kernel fills it with
// skb_headlen, which may cover payload.
type Header struct {
	Flags      Flags
	GSO        GSO
	HdrLen     uint16
	GSOSize    uint16 // payload bytes of each segment but the last
	CsumStart  uint16 // where the sum starts; valid with NeedsCsum
	CsumOffset uint16 // from CsumStart to the checksum field; valid with NeedsCsum
}

// Decode reads the header in front of a frame. b holds at least MinHeaderLen
// bytes, little-endian as TUNSETVNETLE asks. What follows the legacy header
// (num_buffers) is not read: kernels before 6.15 leave it uninitialised.
func (h *Header) Decode(b []byte) {
	_ = b[MinHeaderLen-1]
	h.Flags = Flags(b[0])
	h.GSO = GSO(b[1])
	h.HdrLen = binary.LittleEndian.Uint16(b[2:])
	h.GSOSize = binary.LittleEndian.Uint16(b[4:])
	h.CsumStart = binary.LittleEndian.Uint16(b[6:])
	h.CsumOffset = binary.LittleEndian.Uint16(b[8:])
}

// Encode writes the header to b, whose length is the queue's header length: 10
// or 12. The 12-byte form ends with num_buffers 1 (virtio 1.2, 5.1.6.4.1).
func (h *Header) Encode(b []byte) {
	_ = b[MinHeaderLen-1]
	b[0] = byte(h.Flags)
	b[1] = byte(h.GSO)
	binary.LittleEndian.PutUint16(b[2:], h.HdrLen)
	binary.LittleEndian.PutUint16(b[4:], h.GSOSize)
	binary.LittleEndian.PutUint16(b[6:], h.CsumStart)
	binary.LittleEndian.PutUint16(b[8:], h.CsumOffset)
	if len(b) >= HeaderLen {
		binary.LittleEndian.PutUint16(b[10:], 1)
	}
}

// Offsets of the checksum field in a transport header.
const (
	TCPCsumOffset  = 16 // RFC 9293, 3.1
	UDPCsumOffset  = 6  // RFC 768
	SCTPCsumOffset = 8  // RFC 9260, 3.1: a CRC32c, not an Internet checksum
)

// Check reports why a frame of n bytes with header h must be dropped, or Keep. It applies those
// rules of virtio_net_hdr_to_skb (include/linux/virtio_net.h) that do not depend on the frame's
// bytes. HdrLen is not checked: nothing relies on it.
func (h *Header) Check(n int) Drop {
	start := int(h.CsumStart) // widened first: the sum below must not wrap
	field := start + int(h.CsumOffset)
	needs := h.Flags&NeedsCsum != 0
	switch {
	case n < EthLen:
		return DropRunt
	case n > MaxFrame:
		return DropTooLong
	case needs && (start < EthLen || field+2 > n):
		return DropBadCsum
	case h.GSO == GSONone:
		return Keep
	}
	wantOffset, thlen := TCPCsumOffset, TCPLen
	switch h.GSO.Type() {
	case GSOTCPv4, GSOTCPv6:
	case GSOUDPL4:
		wantOffset, thlen = UDPCsumOffset, UDPLen
		if !needs || h.GSO&GSOECN != 0 {
			return DropBadGSO
		}
	case GSOUDP:
		return DropUnsupportedGSO
	default:
		if h.GSO&(GSOTunnel4|GSOTunnel6) != 0 {
			return DropUnsupportedGSO
		}
		return DropBadGSO
	}
	switch {
	case h.GSOSize == 0 || h.GSOSize > MaxGSOSize:
		return DropBadGSO
	case needs && (int(h.CsumOffset) != wantOffset || start+thlen > n):
		return DropBadGSO
	}
	return Keep
}
