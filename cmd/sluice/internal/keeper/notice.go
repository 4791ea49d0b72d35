package keeper

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sluice/dataplane"
	"sluice/vnet"
)

// event takes in what a worker noticed about the port.
func (p *port) event(e dataplane.Event) {
	name := p.spec.Name
	switch e.Kind {
	case dataplane.EventGone:
		if slices.Contains(p.queues, e.Queue.(queue).Queue) { // else it is of an earlier attachment
			p.gone = cmp.Or(e.Err, vnet.ErrGone)
		}
	case dataplane.EventLatched:
		gso := gsoName(e.GSO)
		p.log.Warn("the kernel refuses a GSO type: such frames leave as segments, and it is tried again every minute",
			"gso", gso, "release", p.keeper.probe.Release)
		p.tell(Event{Kind: GSOLatched, Text: fmt.Sprintf(
			"port %s: the kernel refuses GSO type %s: such frames leave as segments for a minute", name, gso)})
	case dataplane.EventLearnt:
		p.log.Warn("the kernel takes no write as long as the limits say: cutting to less", "max_write", e.Size)
	case dataplane.EventFailed:
		p.failed(e.Err)
	case dataplane.EventFlaps:
		p.log.Warn("a MAC address comes in here and at another port in turn: two hosts have it "+
			"(QEMU gives each guest the same one, but for mac=), or there is a loop",
			"mac", e.MAC, "vlan", e.VID, "other", e.Other.Name())
		p.tell(Event{
			Kind: MACFlaps, MAC: e.MAC.String(), VLAN: &e.VID, Other: e.Other.Name(),
			Text: fmt.Sprintf("MAC address %s of VLAN %d comes in at %s and at %s in turn: two hosts have it, or there is a loop",
				e.MAC, e.VID, name, e.Other.Name()),
		})
	case dataplane.EventMoved:
		p.tell(Event{
			Kind: MACMoved, MAC: e.MAC.String(), VLAN: &e.VID, Other: e.Other.Name(),
			Text: fmt.Sprintf("MAC address %s of VLAN %d moved from port %s to port %s", e.MAC, e.VID, e.Other.Name(), name),
		})
	case dataplane.EventFDBFull, dataplane.EventMACLimit:
		whose := "the switch"
		if e.Kind == dataplane.EventMACLimit {
			whose = "port " + name
		}
		p.log.Warn("there are more MAC addresses than "+whose+" may know: the oldest of the port with the most are forgotten",
			"limit", e.Size)
		p.tell(Event{
			Kind: FDBFull, MAC: e.MAC.String(), VLAN: &e.VID, Count: uint64(e.Size),
			Text: fmt.Sprintf("%s knows its %d MAC addresses: with %s at port %s others are forgotten", whose, e.Size, e.MAC, name),
		})
	}
}

// gsoName is the kernel's name of a GSO type.
func gsoName(g vnet.GSO) string {
	switch g.Type() {
	case vnet.GSOTCPv4:
		return "tcpv4"
	case vnet.GSOTCPv6:
		return "tcpv6"
	}
	return "udp_l4"
}

// notice tells of what has changed at the port since it was last called.
func (p *port) notice() {
	if l := p.sw.Limits(); l != p.limited {
		if p.limited != (vnet.Limits{}) && l != (vnet.Limits{}) {
			p.tell(Event{Kind: LimitChanged, Text: "port " + p.spec.Name + " takes now: " + limitChanges(p.limited, l)})
		}
		p.limited = l
	}
	c := p.sw.Stats()
	for d := range vnet.NumDrops {
		n := c.IngressDrops[d] + c.EgressDrops[d]
		if n == 0 || p.dropped[d] {
			continue
		}
		p.dropped[d] = true
		side := "for it"
		if d.Ingress() {
			side = "from it"
		}
		p.tell(Event{Kind: DropSeen, Reason: d.String(), Count: n,
			Text: fmt.Sprintf("port %s: frames %s are dropped as %s", p.spec.Name, side, d)})
	}
}

// limitChanges is what differs between two limits, as "mtu 1500 -> 9000, tso4 true -> false".
func limitChanges(was, is vnet.Limits) string {
	var all []string
	add := func(name string, from, to any) {
		if from != to {
			all = append(all, fmt.Sprintf("%s %v -> %v", name, from, to))
		}
	}
	add("gso_max_size", was.GSOMaxSize, is.GSOMaxSize)
	add("gso_ipv4_max_size", was.GSOIPv4MaxSize, is.GSOIPv4MaxSize)
	add("gso_max_segs", was.GSOMaxSegs, is.GSOMaxSegs)
	add("mtu", was.MTU, is.MTU)
	add("csum", was.Csum, is.Csum)
	add("tso4", was.TSO4, is.TSO4)
	add("tso6", was.TSO6, is.TSO6)
	add("uso", was.USO, is.USO)
	add("ipv6_form", was.IPv6Form, is.IPv6Form)
	add("max_write", was.MaxWrite, is.MaxWrite)
	return strings.Join(all, ", ")
}
