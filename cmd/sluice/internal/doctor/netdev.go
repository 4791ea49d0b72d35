package doctor

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"sluice/tunio/link"
	"sluice/tunio/probe"
	"sluice/vnet"
)

// examination is the examination of one netdev.
type examination struct {
	*Report
	*Netdev
	ns    *link.Namespace
	found *probe.Result
}

// told adds a finding about the netdev.
func (e *examination) told(id string, mark Mark, text, means, mend string) *Finding {
	e.find(Finding{
		Group: netdevs, Object: e.Netdev.Name, ID: id, Mark: mark, Text: text, Means: means, Mend: mend,
	})
	return &e.Findings[len(e.Findings)-1]
}

// run fills in the netdev and finds what hinders a port on it.
func (e *examination) run() {
	before := len(e.Findings)
	f, err := e.ns.Get(e.Name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		e.told("missing", Problem, "there is no such netdev in this network namespace",
			"only a tap port can create its netdev", "").Advice = "ip -brief link lists the netdevs"
		return
	case err != nil:
		e.told("unreadable", Problem, err.Error(), "", "")
		return
	}
	e.facts(f)
	s, err := e.ns.Surroundings(f)
	if err == nil {
		e.around(f, s)
		err = e.ports(f, s)
	}
	if err != nil {
		e.told("unreadable", Problem, err.Error(), "", "")
		return
	}
	e.holder(f)
	e.state(f)
	if s.Ethernet {
		e.sizes(f)
		e.offloads(f, s.Switchable)
	}
	e.company(s)
	if !slices.ContainsFunc(e.Findings[before:], func(f Finding) bool { return f.Mark != OK }) {
		e.told("ready", OK, "nothing stands in the way", "", "")
	}
}

func (e *examination) facts(f *link.Facts) {
	d := e.Netdev
	d.Found, d.Index, d.Netdev, d.Kind = true, f.Index, f.Name, f.Kind
	d.MTU, d.Up, d.Carrier = f.MTU, f.Up, f.Carrier
	d.Sizes = Sizes{
		GSOMaxSize: f.GSOMaxSize, GSOIPv4MaxSize: f.GSOIPv4MaxSize, GSOMaxSegs: f.GSOMaxSegs,
		GROMaxSize: f.GROMaxSize, GROIPv4MaxSize: f.GROIPv4MaxSize,
		TSOMaxSize: f.TSOMaxSize, TSOMaxSegs: f.TSOMaxSegs,
	}
	d.Features = Features(f.Features)
}

func (e *examination) around(f *link.Facts, s *link.Surroundings) {
	d := e.Netdev
	d.AltNames = append(d.AltNames, s.AltNames...)
	d.Addresses = append(d.Addresses, s.Addresses...)
	d.Qdiscs = append(d.Qdiscs, s.Qdiscs...)
	d.TCXIngress = append(d.TCXIngress, s.TCXIngress...)
	d.TCXEgress = append(d.TCXEgress, s.TCXEgress...)
	d.BridgeNFCalls = append(d.BridgeNFCalls, s.BridgeCalls...)
	d.Master, d.HostUse, d.XDP = s.Master, s.HostUse, s.XDP
	if f.Name != d.Name {
		e.told("altname", OK, fmt.Sprintf("it is an altname of %s", f.Name), "", "")
	}
}

// ports fills in what a port of each kind that fits would take.
func (e *examination) ports(f *link.Facts, s *link.Surroundings) error {
	if !s.Ethernet {
		e.told("not_ethernet", Problem, "its frames have no Ethernet header", "no port can be opened on it", "")
		return nil
	}
	fitting := []string{"packet"}
	var lower *link.Facts
	switch {
	case f.Tun != nil && f.Tun.Tap:
		fitting = append(fitting, "tap")
	case f.Kind == "macvtap":
		fitting = append(fitting, "macvtap")
		if !f.LowerElsewhere {
			var err error
			if lower, err = e.ns.GetIndex(f.Lower); err != nil {
				return err
			}
			if size := lower.GSOMaxSize; size < f.GSOMaxSize {
				e.told("lower_gso_max_size", Note,
					fmt.Sprintf("its lower netdev %s has gso_max_size %d", lower.Name, size),
					"that limits it too", fmt.Sprintf("ip link set %s gso_max_size %d", lower.Name, f.GSOMaxSize))
			}
		}
	}
	for _, kind := range fitting {
		l := limitsOf(kind, f, lower, e.found)
		e.Ports[kind] = Port{Limits: summaryLimits(&l), MaxOut: maxOut(&l)}
	}
	return nil
}

func (e *examination) holder(f *link.Facts) {
	h, err := e.ns.Holder(f)
	switch {
	case err != nil:
		e.told("held", Note, err.Error(), "it is not known whether a switch has it", "")
	case h != nil:
		e.HeldBy = &Holder{h.PID, h.Name, h.UID}
		text, mend := "a switch has it: a process of another PID namespace", ""
		if h.PID != 0 {
			text = fmt.Sprintf("a switch has it: process %d", h.PID)
			mend = fmt.Sprintf("kill %d", h.PID)
		}
		if h.Name != "" {
			text += " (" + h.Name + ")"
		}
		e.told("held", Problem, text, "another switch cannot use it now", mend)
	}
}

// state finds why nothing passes the netdev.
func (e *examination) state(f *link.Facts) {
	switch {
	case !f.Up:
		e.told("down", Problem, "it is down", "its port is down too", "ip link set "+f.Name+" up")
	case !f.Carrier && f.Tun != nil:
		e.told("no_carrier", Note, "it has no carrier: no process has the TAP open",
			"a tap port gives it one; a packet port on it is down until a VM opens it", "")
	case !f.Carrier:
		e.told("no_carrier", Problem, "it has no carrier: its other end is down", "its port is down too", "").
			Advice = "ip link set PEER up, in the namespace of its other end"
	}
}

// sizes finds what limits the super-packets that leave through it.
func (e *examination) sizes(f *link.Facts) {
	const legacy, most = vnet.LegacyGSOMaxSize, vnet.MaxGSOMaxSize
	raise := func(what string, to int) string { return fmt.Sprintf("ip link set %s %s %d", f.Name, what, to) }
	if f.Tun != nil { // a TAP may be under a port of two kinds
		if f.GROMaxSize <= legacy && e.found.Tap.MaxWrite >= legacy {
			e.told("gro_max_size", Note, fmt.Sprintf("gro_max_size is %d", f.GROMaxSize),
				"a tap port sends it super-packets shorter than this: BIG TCP is cut", raise("gro_max_size", most)).
				Advice = fmt.Sprintf("the port's key gso_max_size=%d", most)
		}
	}
	switch size := f.GSOMaxSize; {
	case size < legacy:
		e.told("gso_max_size", Note, fmt.Sprintf("gso_max_size is %d, less than the kernel's default", size),
			"even ordinary super-packets are cut", raise("gso_max_size", f.TSOMaxSize))
	case size == legacy && f.TSOMaxSize > legacy:
		e.told("gso_max_size", Note, fmt.Sprintf("gso_max_size is %d, the kernel's default", size),
			"BIG TCP is cut for it", raise("gso_max_size", f.TSOMaxSize))
	case f.GSOIPv4MaxSize < size && e.found.Packet.IPv4:
		e.told("gso_ipv4_max_size", Note,
			fmt.Sprintf("gso_ipv4_max_size is %d, and gso_max_size %d", f.GSOIPv4MaxSize, size),
			"IPv4 is cut to smaller super-packets than IPv6", raise("gso_ipv4_max_size", size)).
			Advice = fmt.Sprintf("the port's key gso_ipv4_max_size=%d, if iproute2 is older than 6.3", size)
	}
	if f.GSOMaxSegs < f.TSOMaxSegs {
		e.told("gso_max_segs", Note, fmt.Sprintf("gso_max_segs is %d, and can be %d", f.GSOMaxSegs, f.TSOMaxSegs),
			"super-packets of more segments are cut", raise("gso_max_segs", f.TSOMaxSegs))
	}
}

// offloads finds missing offloads that a packet port would use.
func (e *examination) offloads(f *link.Facts, can link.Features) {
	if f.Tun != nil && !f.Carrier { // they are set by the process that opened it
		return
	}
	tell := func(text, means, switches string, can bool) {
		mend := ""
		if can {
			mend = "ethtool -K " + f.Name + " " + switches
		}
		e.told("offloads", Note, text, means, mend)
	}
	switch {
	case !f.Csum:
		tell("it completes no checksums (tx off)",
			"every super-packet leaves as segments, with checksums that the switch computes",
			"tx on tso on", can.Csum)
	case !f.TSO4 || !f.TSO6:
		tell("it does not cut TCP (tso off)", "every TCP super-packet leaves as segments",
			"tso on", can.TSO4 && can.TSO6)
	case !f.USO:
		tell("it does not cut UDP (tx-udp-segmentation off)", "every UDP super-packet leaves as segments",
			"tx-udp-segmentation on", can.USO)
	}
}

// plain are the kernel's default queueing disciplines.
var plain = []string{"noqueue", "mq", "pfifo_fast", "fq_codel", "fq"}

// company finds what else handles the netdev's frames.
func (e *examination) company(s *link.Surroundings) {
	name := e.Netdev.Netdev
	if s.HostUse != "" {
		mend := ""
		if s.Master != "" {
			mend = "ip link set " + name + " nomaster"
		}
		e.told("host_use", Note, "it "+s.HostUse,
			"the host's own stack needs its frames: with a packet port, both get them", mend).
			Advice = "the port's key host=drop if only the switch should get them, otherwise host=keep"
	}
	if calls := s.BridgeCalls; s.Bridge && len(calls) > 0 {
		mend := "sysctl -w"
		for _, c := range calls {
			mend += " net.bridge.bridge-nf-call-" + c + "=0"
		}
		e.told("bridge_nf", Note, "br_netfilter is on ("+strings.Join(calls, ", ")+")",
			"the bridge passes every frame through the firewall, and drops IPv6 above 64 KiB in the plain form", mend)
	}
	if s.XDP != "" {
		e.told("xdp", Note, "an XDP program sees its frames first", "a port only gets what the program passes",
			"ip link set "+name+" "+s.XDP+" off")
	}
	switch {
	case s.TCXErr != nil:
		e.told("tcx", Note, "its tcx programs are not known: "+s.TCXErr.Error(), "", "sudo sluice doctor "+name)
	case len(s.TCXIngress)+len(s.TCXEgress) > 0 && e.HeldBy == nil:
		e.told("tcx", Note, "tcx programs are on it: "+strings.Join(slices.Concat(s.TCXIngress, s.TCXEgress), ", "),
			"one at ingress sees frames after a packet port, one at egress may drop what the port sends", "").
			Advice = "bpftool net show dev " + name + " lists them; they end with the program that attached them"
	}
	for _, q := range s.Qdiscs {
		if slices.Contains(plain, q) {
			continue
		}
		at := "root"
		if q == "clsact" || q == "ingress" {
			at = q
		}
		e.told("qdisc", Note, "its queueing discipline is "+q, "it may hold, cut or drop frames of a port",
			"tc qdisc del dev "+name+" "+at)
	}
}
