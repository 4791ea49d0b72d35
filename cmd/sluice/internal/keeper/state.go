package keeper

import (
	"context"
	"fmt"
	"os"
	"time"

	"sluice/cmd/sluice/internal/config"
	"sluice/dataplane"
	"sluice/dataplane/summary"
	"sluice/vnet"
)

// State is what the switch is and does now, as `sluice show` prints it.
type State struct {
	Name     string      `json:"name"`
	PID      int         `json:"pid"`
	Revision uint64      `json:"revision"` // of the desired state
	Ports    []PortState `json:"ports"`
	Pairs    []Pair      `json:"pairs"` // ports that cannot take whole what another sends
}

// PortState is a port's part of the summary, and why it is so.
type PortState struct {
	summary.Port
	Why    string    `json:"why,omitempty"` // it is down
	Since  time.Time `json:"since"`         // it is up or down, or Why
	Queues int       `json:"queues"`
	// Sources say, for each limit, who set it: the port's key, the netdev, a probe of the
	// kernel, or a refusal of the kernel.
	Sources map[string]Source `json:"sources"`
}

// Source is who set a limit.
type Source string

// Sources of limits.
const (
	FromKey     Source = "key"     // a key of the port: lower than what the netdev takes
	FromNetdev  Source = "netdev"  // what the netdev takes
	FromProbe   Source = "probe"   // what the kernel was found to take
	FromRefusal Source = "refusal" // the kernel refused more
)

// Pair is an ingress whose super-packets an egress does not take whole.
type Pair struct {
	From    string `json:"from"`
	To      string `json:"to"`
	Family  string `json:"family"` // ipv4 or ipv6
	Sends   int    `json:"sends"`  // the longest super-packet that came in, or may come in
	Takes   int    `json:"takes"`  // the longest that the egress takes
	Outcome string `json:"outcome"`
	Text    string `json:"text"`
}

// State is the state of the switch now. Frames that are under way are in some counters and
// not yet in others.
func (k *Keeper) State(ctx context.Context) (s State, err error) {
	err = k.do(ctx, func() { s = k.state() })
	return s, err
}

// Summary is what Run would return if it ended now, but that frames may be under way.
func (k *Keeper) Summary(ctx context.Context) (s *summary.Summary, err error) {
	err = k.do(ctx, func() {
		for _, p := range k.ports {
			p.last = p.state()
		}
		s = k.summary()
	})
	return s, err
}

func (k *Keeper) state() State {
	s := State{
		Name: k.want.Name, PID: os.Getpid(), Revision: k.revision,
		Ports: []PortState{}, Pairs: []Pair{},
	}
	for _, p := range k.ports {
		p.last = p.state()
		ps := PortState{
			Port: p.summary(), Since: p.since, Queues: len(p.queues), Sources: p.sources(),
		}
		if p.said != up {
			ps.Why = p.said
		}
		s.Ports = append(s.Ports, ps)
	}
	for _, from := range k.ports {
		for _, to := range k.ports {
			if from != to {
				s.Pairs = append(s.Pairs, pairs(from, to)...)
			}
		}
	}
	return s
}

// sources are who set each limit of the port.
func (p *port) sources() map[string]Source {
	granted, takes := p.granted, p.sw.Limits()
	all := map[string]Source{}
	source := func(name string, device, now any, key bool) {
		switch {
		case key:
			all[name] = FromKey
		case device != now:
			all[name] = FromRefusal
		default:
			all[name] = FromNetdev
		}
	}
	s := p.spec
	source("gso_max_size", granted.GSOMaxSize, takes.GSOMaxSize, s.GSOMaxSize != 0 && s.GSOMaxSize == takes.GSOMaxSize)
	ipv4 := ipv4MaxSize(&s)
	source("gso_ipv4_max_size", granted.GSOIPv4MaxSize, takes.GSOIPv4MaxSize, ipv4 != 0 && ipv4 == takes.GSOIPv4MaxSize)
	source("gso_max_segs", granted.GSOMaxSegs, takes.GSOMaxSegs, s.GSOMaxSegs != 0 && s.GSOMaxSegs == takes.GSOMaxSegs)
	source("mtu", granted.MTU, takes.MTU, s.MTU != 0 && s.MTU == takes.MTU)
	offload := s.Offload != config.OffloadAuto
	source("csum", granted.Csum, takes.Csum, offload)
	source("tso4", granted.TSO4, takes.TSO4, offload)
	source("tso6", granted.TSO6, takes.TSO6, offload)
	source("uso", granted.USO, takes.USO, offload)
	all["ipv6_form"] = FromProbe
	all["max_write"] = FromProbe
	if granted.MaxWrite != takes.MaxWrite {
		all["max_write"] = FromRefusal
	}
	return all
}

// pairs are how the super-packets that came in at from do not fit to.
func pairs(from, to *port) (all []Pair) {
	sends := from.sw.Stats().RxMaxFrame
	takes := to.sw.Limits()
	if !to.sw.Up() {
		return nil
	}
	for _, family := range []struct {
		name  string
		ether uint16
		gso   vnet.GSO
	}{
		{"ipv4", vnet.EtherTypeIPv4, vnet.GSOTCPv4},
		{"ipv6", vnet.EtherTypeIPv6, vnet.GSOTCPv6},
	} {
		most := takes.MaxSuper(&vnet.L2{EtherType: family.ether}, family.gso)
		whole := takes.Takes(family.gso)
		if sends <= most && whole || sends <= takes.MTU+vnet.EthLen {
			continue
		}
		p := Pair{From: from.spec.Name, To: to.spec.Name, Family: family.name, Sends: sends, Takes: most}
		switch {
		case !whole || to.spec.Oversize == dataplane.OversizeSegment:
			p.Outcome = dataplane.OversizeSegment.String()
		default:
			p.Outcome = to.spec.Oversize.String()
		}
		p.Text = fmt.Sprintf("%s sends %d, %s takes %d (%s): %s", p.From, p.Sends, p.To, p.Takes, p.Family,
			map[string]string{
				"resegment": "cut into super-packets",
				"segment":   "cut into single segments",
				"pass":      "handed to the kernel whole, whatever it does with it",
			}[p.Outcome])
		all = append(all, p)
	}
	return all
}
