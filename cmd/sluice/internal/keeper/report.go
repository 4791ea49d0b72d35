package keeper

import (
	"sluice/dataplane/summary"
	"sluice/vnet"
)

// state is what a summary says about a port besides its counters.
type state struct {
	up          bool
	limits      vnet.Limits
	kernelDrops uint64
}

// state is the port's state now.
func (p *port) state() state {
	if p.queues != nil && !p.parked && p.ns.ns != nil {
		if f, err := p.ns.ns.GetIndex(p.index); err == nil {
			p.seen = f.Drops
		}
	}
	return state{
		up: p.sw.Up(), limits: p.sw.Limits(),
		kernelDrops: p.lost + p.queueDrops() + p.linkDrops(),
	}
}

func (p *port) queueDrops() (n uint64) {
	for _, q := range p.queues {
		n += q.KernelDrops()
	}
	return n
}

// linkDrops is what the netdev has dropped from the attach to the last look.
func (p *port) linkDrops() uint64 {
	s, b := p.seen, p.base
	return grown(b.Rx, s.Rx) + grown(b.Tx, s.Tx) + grown(b.RxMissed, s.RxMissed)
}

// grown is by how much a counter grew. Some drivers begin anew when they are reset.
func grown(from, to uint64) uint64 {
	if to < from {
		return 0
	}
	return to - from
}

// summary is the port's part of the summary, with the state in p.last.
func (p *port) summary() summary.Port {
	c, l := p.sw.Stats(), p.last.limits
	s := summary.Port{
		Name: p.spec.Name, Kind: string(p.spec.Kind), Device: p.spec.Device, Up: p.last.up,
		Limits: summary.Limits{
			GSOMaxSize: l.GSOMaxSize, GSOIPv4MaxSize: l.GSOIPv4MaxSize, GSOMaxSegs: l.GSOMaxSegs, MTU: l.MTU,
			Csum: l.Csum, TSO4: l.TSO4, TSO6: l.TSO6, USO: l.USO,
			IPv6Form: l.IPv6Form.String(), MaxWrite: l.MaxWrite,
		},
		RX: summary.RX{Frames: c.RxFrames, Bytes: c.RxBytes, Copies: c.RxCopies, MaxFrame: c.RxMaxFrame},
		TX: summary.TX{
			Offered: c.TxOffered, Frames: c.TxFrames, Bytes: c.TxBytes, MaxFrame: c.TxMaxFrame,
			Resegmented: c.Resegmented, Chunks: c.Chunks, Segmented: c.Segmented, Segments: c.Segments,
			Retried: c.Retried, CsumCompleted: c.CsumCompleted,
		},
		Drops:       summary.Drops{Ingress: drops(&c.IngressDrops), Egress: drops(&c.EgressDrops)},
		KernelDrops: p.last.kernelDrops,
	}
	if p.alias() {
		s.Netdev = p.netdev
	}
	return s
}

// drops are the reasons that occurred.
func drops(counts *[vnet.NumDrops]uint64) map[string]uint64 {
	m := map[string]uint64{}
	for d, n := range counts {
		if n != 0 {
			m[vnet.Drop(d).String()] = n
		}
	}
	return m
}
