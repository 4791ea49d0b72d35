package link

import (
	"sluice/tunio/probe"
	"sluice/vnet"
)

// PacketLimits are those of an egress through a packet socket on the netdev: what
// the netdev's send side takes without cutting it to segments.
func PacketLimits(f *Facts, a probe.Ability) vnet.Limits {
	return bounded(a, vnet.Limits{
		GSOMaxSize:     f.GSOMaxSize,
		GSOIPv4MaxSize: f.GSOIPv4MaxSize,
		GSOMaxSegs:     f.GSOMaxSegs,
		MTU:            f.MTU,

		Csum: f.Csum,
		TSO4: f.TSO4,
		TSO6: f.TSO6,
		USO:  f.USO,

		TaggedIPv6AsIPv4: true,
	})
}

// MacvtapLimits are those of an egress through a macvtap: the smaller of its own and its lower
// netdev's, since its frames leave directly through that. lower is nil if it is in another
// namespace, out of reach.
func MacvtapLimits(own, lower *Facts, a probe.Ability) vnet.Limits {
	l := PacketLimits(own, a)
	if lower == nil {
		return l
	}
	b := PacketLimits(lower, a)
	l.GSOMaxSize = min(l.GSOMaxSize, b.GSOMaxSize)
	l.GSOIPv4MaxSize = min(l.GSOIPv4MaxSize, b.GSOIPv4MaxSize)
	l.GSOMaxSegs = min(l.GSOMaxSegs, b.GSOMaxSegs)
	l.MTU = min(l.MTU, b.MTU)
	l.Csum = l.Csum && b.Csum
	l.TSO4 = l.TSO4 && b.TSO4
	l.TSO6 = l.TSO6 && b.TSO6
	l.USO = l.USO && b.USO
	return l
}

// TapLimits are those of an egress into a TAP. What is written there enters the kernel's receive
// side, which takes what its own GRO may make. The TAP's GSO sizes and features govern the other
// direction.
func TapLimits(f *Facts, a probe.Ability) vnet.Limits {
	return bounded(a, vnet.Limits{
		GSOMaxSize:     f.GROMaxSize,
		GSOIPv4MaxSize: f.GROIPv4MaxSize,
		GSOMaxSegs:     vnet.MaxSegments,
		MTU:            f.MTU,

		Csum: true,
		TSO4: true,
		TSO6: true,
		USO:  true,
	})
}

// bounded is l, limited to what the kernel carries.
func bounded(a probe.Ability, l vnet.Limits) vnet.Limits {
	l.IPv6Form = a.IPv6
	l.MaxWrite = a.MaxWrite
	if !a.IPv4 {
		l.GSOIPv4MaxSize = min(l.GSOIPv4MaxSize, vnet.LegacyGSOMaxSize)
	}
	return l
}
