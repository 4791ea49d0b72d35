package bench

import (
	"fmt"
	"strconv"

	"sluice/dataplane/summary"
)

// Sizes that distinguish the cases, in bytes.
const (
	bigSize    = 389120 // gso_max_size of a BIG TCP sender, and of an egress that takes it all
	legacySize = 65536  // gso_max_size without BIG TCP (GSO_LEGACY_MAX_SIZE)
	mtu        = 1500
	wireSize   = mtu + 14 // the longest frame that is no super-packet
)

// Paths: what carries the stream, and into what.
const (
	PacketToTap    = "packet-to-tap"
	PacketToPacket = "packet-to-packet"
	Bridge         = "bridge"
)

// Paths lists all paths, in the order of the report.
var Paths = []string{Bridge, PacketToPacket, PacketToTap}

// Names of cases. A bridge cannot choose what to do with a frame that is too big, so it has one
// mixed case.
const (
	legacy         = "legacy"
	big            = "big"
	mixedSegment   = "mixed-segment"
	mixedResegment = "mixed-resegment"
	bridgeLegacy   = "bridge-legacy"
	bridgeBig      = "bridge-big"
	bridgeMixed    = "bridge-mixed"
)

// scenario is what a case sets up.
type scenario struct {
	name     string
	sender   int    // gso_max_size of the sender
	egress   int    // gso_max_size of the egress
	oversize string // what Sluice does with a frame that is too big for the egress; empty if none is
}

var (
	switchScenarios = []scenario{
		{legacy, legacySize, legacySize, ""},
		{big, bigSize, bigSize, ""},
		{mixedSegment, bigSize, legacySize, "segment"},
		{mixedResegment, bigSize, legacySize, "resegment"},
	}
	bridgeScenarios = []scenario{
		{bridgeLegacy, legacySize, legacySize, ""},
		{bridgeBig, bigSize, bigSize, ""},
		{bridgeMixed, bigSize, legacySize, ""},
	}
)

// families are the address families of the streams, with the ends' addresses.
var families = []struct{ name, sender, receiver, mask string }{
	{"ipv4", "10.77.0.1", "10.77.0.2", "/24"},
	{"ipv6", "fd77::1", "fd77::2", "/64"},
}

// wasItself says why a stream whose greatest frames were in and out bytes was not the case that s
// describes, or is empty. Frames below the egress's limit leave whole in every case, so out says
// nothing about how the others were cut.
func (s *scenario) wasItself(in, out int) string {
	switch {
	case s.sender > legacySize && in <= legacySize:
		return fmt.Sprintf("the sender made no frame above 64 KiB (greatest %d)", in)
	case s.sender == legacySize && in >= legacySize:
		return fmt.Sprintf("the sender made a frame above 64 KiB (%d)", in)
	case s.egress > legacySize && out <= legacySize:
		return fmt.Sprintf("no frame above 64 KiB left (greatest %d)", out)
	case s.egress == legacySize && out >= legacySize:
		return fmt.Sprintf("a frame above 64 KiB left (%d)", out)
	case out <= wireSize:
		return fmt.Sprintf("no super-packet left (greatest frame %d)", out)
	}
	return ""
}

// wasCut says why a switch's egress did not cut as s requires, or is empty.
func (s *scenario) wasCut(tx *summary.TX) string {
	switch {
	case s.oversize == "segment" && tx.Segmented == 0:
		return "the switch segmented nothing"
	case s.oversize == "resegment" && (tx.Resegmented == 0 || tx.Segmented > tx.Resegmented):
		return fmt.Sprintf("the switch resegmented %d super-packets and segmented %d",
			tx.Resegmented, tx.Segmented)
	}
	return ""
}

// cannot says why an egress with limits l cannot do s for a family, or is empty. The switch would
// cut to what the egress takes and carry the stream, but that would be another case.
func (s *scenario) cannot(family string, l *summary.Limits) string {
	if s.egress <= legacySize {
		return ""
	}
	size, key := l.GSOMaxSize, "gso_max_size"
	if family == "ipv4" {
		size, key = l.GSOIPv4MaxSize, "gso_ipv4_max_size"
	}
	switch {
	case family == "ipv6" && l.IPv6Form == "none":
		return "this kernel takes no form of IPv6 BIG TCP there (ipv6_form none): " +
			"Sluice cuts it to 64 KiB"
	case size <= legacySize:
		return fmt.Sprintf("the egress takes no frame above 64 KiB (%s %d)", key, size)
	case l.MaxWrite <= legacySize:
		return fmt.Sprintf(
			"this kernel takes no write above 64 KiB there (max_write %d)", l.MaxWrite)
	}
	return ""
}

// ports are the `-p` arguments of the switch for s over path. receiver is
// the namespace in which the tap lives.
func (s *scenario) ports(path, receiver string) []string {
	egress := "b=packet:vB"
	if path == PacketToTap {
		size := strconv.Itoa(s.egress)
		egress = "b=tap:tap0,netns=" + receiver +
			",gso_max_size=" + size + ",gso_ipv4_max_size=" + size
	}
	if s.oversize != "" {
		egress += ",oversize=" + s.oversize
	}
	return []string{"-p", "a=packet:vA", "-p", egress}
}
