package seen

import (
	"testing"

	"sluice/vnet"
	"sluice/vnet/vnettest"
)

func TestAddTellsFlowsAndFormsApart(t *testing.T) {
	var s, all Frames
	super := vnettest.Super(vnettest.Spec{V6: true, Payload: vnettest.Pattern(20_000), GSOSize: 1428})
	super.Hdr.GSO |= vnet.GSOECN
	s.Add(&super, super.Len())
	arp := vnet.Frame{Head: make([]byte, 60)}
	arp.Head[12], arp.Head[13] = 0x08, 0x06
	s.Add(&arp, 60)
	all.Merge(s)
	all.Merge(s)
	want := map[Flow]Tally{
		TCP6:  {Frames: 2, Max: super.Len(), GSO: 2, ECN: 2, Partial: 2},
		Other: {Frames: 2, Max: 60, Plain: 60},
	}
	for flow, w := range want {
		if got := all.Flows[flow]; got != w {
			t.Errorf("%s: %+v, want %+v", flow, got, w)
		}
	}
	if len(all.Flows) != len(want) {
		t.Errorf("flows %v", all.Flows)
	}
	if sum := all.Sum(); sum.Frames != 4 || sum.Max != super.Len() {
		t.Errorf("sum %+v", sum)
	}
}
