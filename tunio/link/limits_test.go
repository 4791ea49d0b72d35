package link

import (
	"testing"

	"sluice/tunio/probe"
	"sluice/vnet"
)

func TestLimits(t *testing.T) {
	can := probe.Ability{IPv4: true, IPv6: vnet.FormHBH, MaxWrite: vnet.MaxFrame}
	cannot := probe.Ability{MaxWrite: 65535}
	facts := Facts{
		MTU:      1400,
		Sizes:    Sizes{400000, 300000, 500, 200000, 100000},
		Features: Features{Csum: true, TSO4: true, TSO6: true, USO: true},
	}
	lesser := Facts{
		MTU:      1500,
		Sizes:    Sizes{450000, 250000, 65535, 65536, 65536},
		Features: Features{Csum: true, TSO4: true},
	}
	for _, c := range []struct {
		name      string
		got, want vnet.Limits
	}{
		{"packet", PacketLimits(&facts, can), vnet.Limits{
			GSOMaxSize: 400000, GSOIPv4MaxSize: 300000, GSOMaxSegs: 500, MTU: 1400, MaxWrite: 524279,
			Csum: true, TSO4: true, TSO6: true, USO: true, IPv6Form: vnet.FormHBH, TaggedIPv6AsIPv4: true}},
		{"packet, features", PacketLimits(&lesser, can), vnet.Limits{
			GSOMaxSize: 450000, GSOIPv4MaxSize: 250000, GSOMaxSegs: 65535, MTU: 1500, MaxWrite: 524279,
			Csum: true, TSO4: true, IPv6Form: vnet.FormHBH, TaggedIPv6AsIPv4: true}},
		{"packet, old kernel", PacketLimits(&facts, cannot), vnet.Limits{
			GSOMaxSize: 400000, GSOIPv4MaxSize: 65536, GSOMaxSegs: 500, MTU: 1400, MaxWrite: 65535,
			Csum: true, TSO4: true, TSO6: true, USO: true, TaggedIPv6AsIPv4: true}},
		{"tap", TapLimits(&lesser, can), vnet.Limits{
			GSOMaxSize: 65536, GSOIPv4MaxSize: 65536, GSOMaxSegs: 65535, MTU: 1500, MaxWrite: 524279,
			Csum: true, TSO4: true, TSO6: true, USO: true, IPv6Form: vnet.FormHBH}},
		{"tap, old kernel", TapLimits(&facts, cannot), vnet.Limits{
			GSOMaxSize: 200000, GSOIPv4MaxSize: 65536, GSOMaxSegs: 65535, MTU: 1400, MaxWrite: 65535,
			Csum: true, TSO4: true, TSO6: true, USO: true}},
		{"macvtap", MacvtapLimits(&facts, &lesser, can), vnet.Limits{
			GSOMaxSize: 400000, GSOIPv4MaxSize: 250000, GSOMaxSegs: 500, MTU: 1400, MaxWrite: 524279,
			Csum: true, TSO4: true, IPv6Form: vnet.FormHBH, TaggedIPv6AsIPv4: true}},
		{"macvtap, lower elsewhere", MacvtapLimits(&facts, nil, can), PacketLimits(&facts, can)},
	} {
		if c.got != c.want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", c.name, c.got, c.want)
		}
	}
}
