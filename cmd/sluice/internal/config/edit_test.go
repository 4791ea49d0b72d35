package config

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// samples are values of each key of a port, some of them wrong.
var samples = map[string][]string{
	"kind": {"tap", "packet", "macvtap", "", "veth"}, "device": {"t0", "t1", "eth0.5", "a b", ""},
	"netns": {"B", "/run/netns/x", ""}, "lower": {"eth0", ""}, "mtu": {"1500", "9000", "67", ""},
	"queues": {"1", "4", "0", ""}, "gso_max_size": {"65536", "524280", ""}, "gso_ipv4_max_size": {"65536", ""},
	"gso_max_segs": {"1", "65535", ""}, "oversize": {"resegment", "segment", "pass", ""},
	"offload": {"auto", "full", "none", ""}, "host": {"drop", "keep", ""}, "reserved": {"drop", "forward", ""},
	"vlan_mode": {"access", "trunk", "native-tagged", "native-untagged", ""}, "tag": {"0", "10", "4095", "4096", ""},
	"trunks": {"10", "0+20-30", "1-4095", "", "+"}, "isolated": {"true", "false", ""},
	"mac_limit": {"0", "10", ""}, "storm": {"0", "1000", ""}, "loop": {"warn", "shut", ""},
}

// TestRandomEdits: every accepted edit makes a valid value that each spelling can express, leaves
// the old value unchanged, and is what Diff says.
func TestRandomEdits(t *testing.T) {
	for i := range portKeys {
		if len(samples[portKeys[i].name]) == 0 {
			t.Fatalf("there are no samples of %s", portKeys[i].name)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	one := func(of []string) string { return of[r.IntN(len(of))] }
	names := []string{"a", "b", "c", "7", "true"}
	s := Default()
	taken := map[string]int{}
	for range 6000 {
		was := s.Clone()
		var next Switch
		var err error
		var edit string
		switch name := one(names); r.IntN(8) {
		case 0:
			edit = "remove"
			next, err = s.RemovePort(name)
		case 1:
			p := DefaultPort(name, Kind(one(samples["kind"])), one(samples["device"]))
			edit = "add"
			next, err = s.AddPort(p)
		default:
			var settings []string
			for range 1 + r.IntN(3) {
				key := portKeys[r.IntN(len(portKeys))].name
				settings = append(settings, key+"="+one(samples[key]))
			}
			edit = "set"
			next, err = s.SetPort(name, settings...)
		}
		if !s.Equal(was) {
			t.Fatalf("%s changed what it was made of: %v", edit, Diff(was, s))
		}
		if err != nil {
			continue
		}
		taken[edit]++
		roundTrip(t, next)
		changes := Diff(s, next)
		if (len(changes) == 0) != s.Equal(next) {
			t.Fatalf("equal %v, and the changes are %v", s.Equal(next), changes)
		}
		if again := carryOut(t, s, changes); !again.Equal(next) {
			t.Fatalf("%v, carried out, leaves %v", changes, Diff(again, next))
		}
		s = next
	}
	if taken["add"] < 100 || taken["remove"] < 100 || taken["set"] < 300 {
		t.Errorf("too few edits were taken: %v", taken)
	}
}

// carryOut applies the changes of ports, as they are spelled.
func carryOut(t *testing.T, s Switch, changes []Change) Switch {
	t.Helper()
	settings := map[string][]string{}
	var err error
	for _, c := range changes {
		switch c.Op {
		case Removed:
			s, err = s.RemovePort(c.Name)
		case Added:
			var p Port
			if p, err = ParsePort(c.To); err == nil {
				s, err = s.AddPort(p)
			}
		case Changed:
			settings[c.Name] = append(settings[c.Name], fmt.Sprintf("%s=%s", c.Key, strings.TrimPrefix(c.To, "unset")))
		}
		if err != nil {
			t.Fatalf("%s: %v", c, err)
		}
	}
	for name, set := range settings {
		if s, err = s.SetPort(name, set...); err != nil {
			t.Fatalf("%v: %v", changes, err)
		}
	}
	return s
}
