package vnet_test

import (
	"testing"

	"sluice/vnet"
)

func TestMaxSuper(t *testing.T) {
	all := vnet.Limits{
		GSOMaxSize: 400000, GSOIPv4MaxSize: 200000, MaxWrite: vnet.MaxFrame, IPv6Form: vnet.FormPlain,
	}
	type limits = vnet.Limits
	edit := func(edit func(*limits)) limits {
		l := all
		edit(&l)
		return l
	}
	v4, v6 := vnet.L2{EtherType: vnet.EtherTypeIPv4}, vnet.L2{EtherType: vnet.EtherTypeIPv6}
	tagged := vnet.L2{EtherType: vnet.EtherTypeIPv6, Tags: 1}
	asIPv4 := func(l *limits) { l.TaggedIPv6AsIPv4 = true }
	for name, c := range map[string]struct {
		l    vnet.Limits
		l2   vnet.L2
		g    vnet.GSO
		want int
	}{
		"IPv4":               {all, v4, vnet.GSOTCPv4, 199999},
		"IPv4 above IPv6":    {edit(func(l *limits) { l.GSOMaxSize = 65536 }), v4, vnet.GSOTCPv4, 199999},
		"IPv6":               {all, v6, vnet.GSOTCPv6, 399999},
		"IPv6 with ECN":      {all, v6, vnet.GSOTCPv6 | vnet.GSOECN, 399999},
		"IPv6 by HBH":        {edit(func(l *limits) { l.IPv6Form = vnet.FormHBH }), v6, vnet.GSOTCPv6, 399999},
		"IPv6 without form":  {edit(func(l *limits) { l.IPv6Form = vnet.FormNone }), v6, vnet.GSOTCPv6, 65535},
		"IPv4 needs no form": {edit(func(l *limits) { l.IPv6Form = vnet.FormNone }), v4, vnet.GSOTCPv4, 199999},
		"tagged IPv6":        {all, tagged, vnet.GSOTCPv6, 399999},
		"tagged as IPv4":     {edit(asIPv4), tagged, vnet.GSOTCPv6, 199999},
		"untagged not so":    {edit(asIPv4), v6, vnet.GSOTCPv6, 399999},
		"UDP over IPv4":      {all, v4, vnet.GSOUDPL4, 65535},
		"UDP over IPv6":      {all, v6, vnet.GSOUDPL4, 65535},
		"UDP, small egress":  {edit(func(l *limits) { l.GSOIPv4MaxSize = 9000 }), v4, vnet.GSOUDPL4, 8999},
		"write limit":        {edit(func(l *limits) { l.MaxWrite = 70000 }), v6, vnet.GSOTCPv6, 70000},
		"beyond any kernel":  {limits{GSOMaxSize: 1 << 20, MaxWrite: 1 << 20, IPv6Form: vnet.FormHBH}, v6, vnet.GSOTCPv6, 524279},
	} {
		if got := c.l.MaxSuper(&c.l2, c.g); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestTakes(t *testing.T) {
	types := []vnet.GSO{vnet.GSOTCPv4, vnet.GSOTCPv6, vnet.GSOUDPL4, vnet.GSOTCPv4 | vnet.GSOECN}
	for name, c := range map[string]struct {
		l    vnet.Limits
		want [4]bool
	}{
		"all":       {vnet.Limits{Csum: true, TSO4: true, TSO6: true, USO: true}, [4]bool{true, true, true, true}},
		"no csum":   {vnet.Limits{TSO4: true, TSO6: true, USO: true}, [4]bool{}},
		"csum only": {vnet.Limits{Csum: true}, [4]bool{}},
		"TSO4":      {vnet.Limits{Csum: true, TSO4: true}, [4]bool{true, false, false, true}},
		"TSO6":      {vnet.Limits{Csum: true, TSO6: true}, [4]bool{false, true, false, false}},
		"USO":       {vnet.Limits{Csum: true, USO: true}, [4]bool{false, false, true, false}},
	} {
		for i, g := range types {
			if got := c.l.Takes(g); got != c.want[i] {
				t.Errorf("%s: takes %#x: %v", name, g, got)
			}
		}
	}
}

func TestFormNames(t *testing.T) {
	for f, want := range map[vnet.Form]string{
		vnet.FormNone: "none", vnet.FormHBH: "hbh", vnet.FormPlain: "plain",
	} {
		if f.String() != want {
			t.Errorf("form %d is called %q, want %q", f, f.String(), want)
		}
	}
}
