package vnet

import "errors"

// Drop says why a frame was discarded. The zero value keeps it.
type Drop uint8

// Drop reasons. Each is counted on one side of one port: the ingress for what is
// wrong with the frame, the egress for what is wrong with the way out.
const (
	Keep Drop = iota

	DropRunt              // ingress: shorter than an Ethernet header
	DropTooLong           // ingress: longer than MaxFrame
	DropTruncated         // ingress: the queue had no room for all of it
	DropBadHeader         // ingress: shorter than the virtio-net header
	DropBadCsum           // ingress: checksum field outside the frame
	DropBadGSO            // ingress: a GSO type that does not fit its header or its packet
	DropUnsupportedGSO    // ingress: UFO, or a super-packet in a tunnel
	DropHeadersTooLong    // ingress: protocol headers longer than MaxHeaders
	DropBadSource         // ingress: source address is a group address or zero
	DropReservedMulticast // ingress: 01:80:c2:00:00:0x, which a bridge does not forward (IEEE 802.1Q, 8.6.3)
	DropLoop              // ingress: a copy of a flooded frame that came back through a layer-2 loop
	DropVLAN              // ingress: a VLAN that its port, or its destination's, does not carry, or part of a tag
	DropIsolated          // ingress: both its port and where it would go are isolated
	DropStorm             // ingress: more flooded frames than the port may send
	DropSamePort          // ingress: its destination is behind the port that it came from
	DropNoEgress          // ingress: no other port is up and carries its VLAN

	DropOverMTU         // egress: a segment, or a frame without GSO type, longer than the MTU
	DropTooManySegments // egress: more than MaxSegments segments
	DropTooBig          // egress: EMSGSIZE although the limits allow it
	DropFull            // egress: no room, also not after a short wait, or none behind the port
	DropNoMemory        // egress: the kernel had no memory for it
	DropRefused         // egress: EINVAL for a well-formed frame in its plainest form
	DropPortDown        // egress: the port's device is down or gone
	DropIOError         // egress: any other error of the write

	NumDrops
)

// MaxSegments is the greatest number of segments that one super-packet is cut
// into: the kernel's GSO_MAX_SEGS (include/linux/netdevice.h).
const MaxSegments = 65535

var dropNames = [NumDrops]string{
	Keep:                  "keep",
	DropRunt:              "runt",
	DropTooLong:           "too_long",
	DropTruncated:         "truncated",
	DropBadHeader:         "bad_header",
	DropBadCsum:           "bad_csum",
	DropBadGSO:            "bad_gso",
	DropUnsupportedGSO:    "unsupported_gso",
	DropHeadersTooLong:    "headers_too_long",
	DropBadSource:         "bad_source",
	DropReservedMulticast: "reserved_multicast",
	DropLoop:              "loop",
	DropVLAN:              "vlan",
	DropIsolated:          "isolated",
	DropStorm:             "storm",
	DropSamePort:          "same_port",
	DropNoEgress:          "no_egress",
	DropOverMTU:           "over_mtu",
	DropTooManySegments:   "too_many_segments",
	DropTooBig:            "too_big",
	DropFull:              "full",
	DropNoMemory:          "no_memory",
	DropRefused:           "refused",
	DropPortDown:          "port_down",
	DropIOError:           "io_error",
}

// String is the reason as the summary prints it, in snake_case.
func (d Drop) String() string {
	if d < NumDrops {
		return dropNames[d]
	}
	return "unknown"
}

// Ingress reports whether the reason is counted at the port that the frame came
// from.
func (d Drop) Ingress() bool { return d > Keep && d < DropOverMTU }

// Refusal is what the kernel answered to a write, in terms of what to do next.
// Which errno means which is the queue's business.
type Refusal uint8

// Refusals.
const (
	Accepted  Refusal = iota
	Full              // no room now; it may come back
	Congested         // dropped behind the port, where there was no room; the next frame may pass
	NoMemory          // no memory for a frame of this size, or a malformed frame
	TooBig            // longer than the descriptor ever takes
	BadGSO            // the header or the packet is not one that the kernel takes
	Down              // the device is down; it may come back
	Gone              // the descriptor is useless from now on
	Failed            // anything else; the error says what
)

var refusalNames = [...]string{
	"accepted", "full", "congested", "no memory", "too big", "bad GSO", "down", "gone", "failed",
}

func (r Refusal) String() string { return refusalNames[r] }

// Errors that a queue's read side answers.
var (
	ErrDown = errors.New("device is down") // it may come back: read again later
	ErrGone = errors.New("device is gone") // the descriptor is useless from now on
)
