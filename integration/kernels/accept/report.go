package accept

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Ways for a frame to a receiving netdev.
const (
	Tap     = "tap"             // a write to a TAP whose gro_max_size is the greatest
	Packet  = "packet"          // a packet socket on a veth whose gso_max_size is the greatest
	Narrow  = "packet to 65536" // the same, on a veth whose gso_max_size is 65536
	Macvtap = "macvtap"         // a write to a macvtap; it and its veth have the greatest gso_max_size
)

// Ways lists all of them.
var Ways = []string{Tap, Packet, Narrow, Macvtap}

// Forms of a frame.
const (
	IPv4  = "IPv4"
	HBH   = "IPv6 hbh"   // with a jumbo option
	Plain = "IPv6 plain" // with payload_len 0 and no option
)

// Forms lists all of them.
var Forms = []string{IPv4, HBH, Plain}

// Outcomes.
const (
	Whole   = "whole"    // it arrives as it was sent
	Cut     = "cut"      // it arrives in pieces, as wire packets
	Lost    = "lost"     // the kernel takes it, and nothing arrives
	TooLong = "EMSGSIZE" // the kernel refuses it
)

// Fate is what happened to one frame.
type Fate struct {
	Way, Form string
	Length    int
	Outcome   string // one of the constants above, or another text
}

// Carried is what a running switch carried of one TCP connection, in both directions at once.
type Carried struct {
	From, To string // kinds of the ports, and what is special about them
	V6       bool
	In, Out  int // greatest frame received at From, and sent through To
	Form     string
}

// Report is everything that was found out about one kernel.
type Report struct {
	Release string
	Probe   string // what package probe says about it
	Fates   []Fate
	Carried []Carried
}

// Big are the lengths above 64 KiB that are tried. 65535 bytes are tried too, and arrive whole
// everywhere. Lengths from 516097 to 520192 are left out: the kernel never has memory for them (18
// page fragments).
var Big = []int{70000, 131072, 262144, 400000, 500000, 524279}

// Legacy is the longest frame that every kernel and every netdev takes.
const Legacy = 65535

// Greatest is the length of the longest frame that arrived whole.
func (r *Report) Greatest(way, form string) (n int) {
	for _, f := range r.Fates {
		if f.Way == way && f.Form == form && f.Outcome == Whole {
			n = max(n, f.Length)
		}
	}
	return n
}

// Outcome is what happened to all frames above 64 KiB, or to each if that differs.
func (r *Report) Outcome(way, form string) string {
	var each, outcomes []string
	for _, f := range r.Fates {
		if f.Way == way && f.Form == form && f.Length > Legacy {
			each = append(each, strconv.Itoa(f.Length)+" "+f.Outcome)
			outcomes = append(outcomes, f.Outcome)
		}
	}
	if len(slices.Compact(outcomes)) == 1 {
		return outcomes[0]
	}
	return strings.Join(each, ", ")
}

// Acceptance is the table of what happens to frames above 64 KiB, and of the greatest frame that
// arrives whole, with a row for each kernel and way.
func Acceptance(reports []Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-26s %-16s", "kernel", "way")
	for _, form := range Forms {
		fmt.Fprintf(&b, " %-16s", form)
	}
	b.WriteByte('\n')
	for _, r := range reports {
		for _, way := range Ways {
			fmt.Fprintf(&b, "%-26s %-16s", r.Release, way)
			for _, form := range Forms {
				fmt.Fprintf(&b, " %-16s", fmt.Sprintf("%s <=%d", r.Outcome(way, form), r.Greatest(way, form)))
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// Traffic is the table of what the switch carried, with a row for each kernel and
// pair of ports: the greatest frame in and out.
func Traffic(reports []Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-26s %-18s %-18s %-20s %s\n", "kernel", "from", "to", "IPv4 in / out", "IPv6 in / out (form)")
	for _, r := range reports {
		for _, c := range r.Carried {
			if c.V6 {
				fmt.Fprintf(&b, " %d / %d (%s)\n", c.In, c.Out, c.Form)
				continue
			}
			sizes := fmt.Sprintf("%d / %d", c.In, c.Out)
			fmt.Fprintf(&b, "%-26s %-18s %-18s %-20s", r.Release, c.From, c.To, sizes)
		}
	}
	return b.String()
}
