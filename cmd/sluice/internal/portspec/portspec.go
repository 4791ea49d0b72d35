// Package portspec is the port argument of the command line,
// NAME=KIND:DEVICE[,key=value...], as a value.
//
// It knows which keys and values there are, not whether the device exists: it
// makes no system call.
//
// # Units
//
// Sizes are bytes, Ethernet header and tags included; an MTU counts from the IP
// header on.
//
// # Concurrency
//
// A Port is a value; nothing here is shared.
//
// # Trust
//
// Arguments come from whoever may run the program. Errors name the argument, what
// is wrong with it, and what would be right.
package portspec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice/dataplane"
	"sluice/vnet"
)

// Kind is what a port's device is opened as.
type Kind string

// Port kinds.
const (
	Tap     Kind = "tap"     // a TAP with IFF_VNET_HDR, created if missing
	Packet  Kind = "packet"  // an AF_PACKET socket on an existing netdev
	Macvtap Kind = "macvtap" // a macvtap's character device
)

var kinds = []Kind{Tap, Packet, Macvtap}

// Offload is what the receiver behind a port can take.
type Offload string

// Offload settings.
const (
	OffloadAuto Offload = "auto" // what the netdev's features say
	OffloadFull Offload = "full" // every checksum and GSO type
	OffloadCsum Offload = "csum" // checksums only
	OffloadNone Offload = "none" // nothing: complete frames of wire size
)

var offloads = []Offload{OffloadAuto, OffloadFull, OffloadCsum, OffloadNone}

// Host says whether the host's own stack also sees what a packet port receives.
type Host string

// Host settings.
const (
	HostAuto Host = ""     // drop, but keep where the netdev has an address or a master
	HostDrop Host = "drop" // Sluice alone sees the frames
	HostKeep Host = "keep" // the host's stack sees them too
)

var hosts = []Host{HostDrop, HostKeep}

// Reserved says what becomes of frames for 01:80:c2:00:00:0x that come in at a port.
type Reserved string

// Reserved settings.
const (
	ReservedDrop    Reserved = "drop"    // as a bridge does
	ReservedForward Reserved = "forward" // flood them, but for PAUSE
)

var reserveds = []Reserved{ReservedDrop, ReservedForward}

// ParseReserved reads a value of the key reserved, or of the flag --reserved.
func ParseReserved(key, value string) (Reserved, error) { return word(key, value, reserveds) }

// Port is one -p argument. Numbers that were not given are 0.
type Port struct {
	Name   string
	Kind   Kind
	Device string

	Netns  string // tap: the namespace it lives in
	Lower  string // macvtap: the netdev it is created over
	MTU    int
	Queues int

	GSOMaxSize     int
	GSOIPv4MaxSize int
	GSOMaxSegs     int
	Oversize       dataplane.Oversize
	Offload        Offload
	Host           Host
	Reserved       Reserved // "" when not given: as the switch has it
}

// Bounds of numbers.
const (
	minMTU     = 68    // RFC 791, 3.2: every IPv4 module takes this
	maxMTU     = 65535 // IP_MAX_MTU (include/net/ip.h)
	maxQueues  = 256   // MAX_TAP_QUEUES (include/linux/if_tap.h); tun has the same
	minGSOSize = 128   // below this not even one segment of a small MSS fits
	maxName    = 127   // ALTIFNAMSIZ less its NUL (include/uapi/linux/if.h): it may be an altname
)

// Parse reads one -p argument.
func Parse(arg string) (Port, error) {
	p, err := parse(arg)
	if err != nil {
		return Port{}, fmt.Errorf("-p %s: %w", arg, err)
	}
	return p, nil
}

func parse(arg string) (Port, error) {
	p := Port{Queues: 1, Offload: OffloadAuto}
	head, keys, _ := strings.Cut(arg, ",")
	name, rest, ok := strings.Cut(head, "=")
	kind, device, ok2 := strings.Cut(rest, ":")
	if !ok || !ok2 {
		return p, fmt.Errorf("want NAME=KIND:DEVICE[,key=value...], for example a=packet:veth0")
	}
	p.Name, p.Kind, p.Device = name, Kind(kind), device
	switch {
	case name == "":
		return p, fmt.Errorf("the port has no name: want NAME=%s", rest)
	case !slices.Contains(kinds, p.Kind):
		return p, fmt.Errorf("no such port kind %q: use %s", kind, either(kinds))
	}
	if err := checkDevice("device", device); err != nil {
		return p, err
	}
	seen := map[string]bool{}
	for keys != "" {
		var kv string
		kv, keys, _ = strings.Cut(keys, ",")
		key, value, ok := strings.Cut(kv, "=")
		switch {
		case !ok || value == "":
			return p, fmt.Errorf("%q is not key=value", kv)
		case seen[key]:
			return p, fmt.Errorf("key %s is given twice", key)
		}
		seen[key] = true
		if err := p.set(key, value); err != nil {
			return p, err
		}
	}
	return p, nil
}

// set takes in one key.
func (p *Port) set(key, value string) (err error) {
	only := func(k Kind) error {
		if p.Kind != k {
			return fmt.Errorf("key %s is for %s ports, and %s is a %s port", key, k, p.Name, p.Kind)
		}
		return nil
	}
	switch key {
	case "netns":
		p.Netns = value
		return only(Tap)
	case "lower":
		p.Lower = value
		if err := only(Macvtap); err != nil {
			return err
		}
		return checkDevice("lower", value)
	case "mtu":
		p.MTU, err = number(key, value, minMTU, maxMTU)
	case "queues":
		p.Queues, err = number(key, value, 1, maxQueues)
	case "gso_max_size":
		p.GSOMaxSize, err = number(key, value, minGSOSize, vnet.MaxGSOMaxSize)
	case "gso_ipv4_max_size":
		p.GSOIPv4MaxSize, err = number(key, value, minGSOSize, vnet.MaxGSOMaxSize)
	case "gso_max_segs":
		p.GSOMaxSegs, err = number(key, value, 1, vnet.MaxSegments)
	case "oversize":
		o, ok := dataplane.ParseOversize(value)
		if !ok {
			return fmt.Errorf("oversize: %q is not resegment, segment or pass", value)
		}
		p.Oversize = o
	case "offload":
		p.Offload, err = word(key, value, offloads)
	case "host":
		p.Host, err = word(key, value, hosts)
		if err == nil {
			err = only(Packet)
		}
	case "reserved":
		p.Reserved, err = ParseReserved(key, value)
	default:
		return fmt.Errorf("no such key %q: use netns, lower, mtu, queues, gso_max_size, gso_ipv4_max_size, gso_max_segs, oversize, offload, host or reserved", key)
	}
	return err
}

func checkDevice(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("the %s has no name", what)
	case len(name) > maxName:
		return fmt.Errorf("%s name %q has %d bytes, and the kernel takes at most %d", what, name, len(name), maxName)
	case name == "." || name == ".." || strings.ContainsFunc(name, unfit):
		return fmt.Errorf("%s name %q is not one that a netdev can have", what, name)
	}
	return nil
}

// unfit reports a character that no netdev's name has (dev_valid_name in
// net/core/dev.c), or that makes a pattern of one (%).
func unfit(c rune) bool { return c <= ' ' || strings.ContainsRune("/:%\x7f", c) }

func number(key, value string, low, high int) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("%s: %q is not a number from %d to %d", key, value, low, high)
	}
	return n, nil
}

func word[T ~string](key, value string, words []T) (T, error) {
	if !slices.Contains(words, T(value)) {
		return "", fmt.Errorf("%s: %q is not %s", key, value, either(words))
	}
	return T(value), nil
}

// either is "a, b or c".
func either[T ~string](words []T) string {
	var b strings.Builder
	for i, w := range words {
		switch {
		case i == 0:
		case i == len(words)-1:
			b.WriteString(" or ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(string(w))
	}
	return b.String()
}
