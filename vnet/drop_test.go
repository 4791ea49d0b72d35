package vnet_test

import (
	"regexp"
	"testing"

	"sluice/vnet"
)

func TestDropNamesAreCompleteAndUnique(t *testing.T) {
	snake := regexp.MustCompile(`^[a-z0-9]+(_[a-z0-9]+)*$`)
	seen := map[string]vnet.Drop{}
	for d := vnet.Keep; d < vnet.NumDrops; d++ {
		name := d.String()
		if !snake.MatchString(name) {
			t.Errorf("reason %d is called %q", d, name)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("reasons %d and %d are both called %q", other, d, name)
		}
		seen[name] = d
	}
	if got := vnet.NumDrops.String(); got != "unknown" {
		t.Errorf("a reason beyond the last is called %q", got)
	}
}

func TestDropSides(t *testing.T) {
	for d, ingress := range map[vnet.Drop]bool{
		vnet.Keep: false, vnet.DropRunt: true, vnet.DropBadGSO: true, vnet.DropNoEgress: true,
		vnet.DropOverMTU: false, vnet.DropTooManySegments: false, vnet.DropIOError: false,
	} {
		if d.Ingress() != ingress {
			t.Errorf("%v at the ingress: %v", d, !ingress)
		}
	}
}

func TestRefusalNames(t *testing.T) {
	seen := map[string]bool{}
	for r := vnet.Accepted; r <= vnet.Failed; r++ {
		if name := r.String(); name == "" || seen[name] {
			t.Errorf("refusal %d is called %q", r, name)
		}
		seen[r.String()] = true
	}
}
