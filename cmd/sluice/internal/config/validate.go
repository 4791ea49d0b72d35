package config

import (
	"fmt"
	"slices"
)

// Validate reports all errors in the switch, as Errors. What the parsers return without an error is
// valid.
func (s Switch) Validate() error {
	r := &report{}
	r.whole(&s)
	return r.err()
}

// Validate reports all errors in the port by itself, as Errors.
func (p Port) Validate() error {
	r := &report{}
	if err := names.check(p.Name); err != nil {
		r.errorf("%v", err)
	}
	r.port(&p)
	return r.err()
}

// whole checks a switch: each value, and then the rules between values.
func (r *report) whole(s *Switch) {
	checkObject(r, switchKeys, s)
	r.in("ports", func() {
		under := map[[2]string]string{} // ports by their device and its namespace
		for i := range s.Ports {
			p := &s.Ports[i]
			r.in(p.Name, func() {
				r.rules(p)
				if other := under[[2]string{p.Device, p.Netns}]; other != "" && p.Device != "" {
					r.in("device", func() { r.errorf("device %s is under port %s already", p.Device, other) })
				}
				under[[2]string{p.Device, p.Netns}] = p.Name
			})
		}
	})
	known := func(name string) {
		if name != "" && s.index(name) < 0 {
			r.errorf("there is no port %q%s", name, s.meant(name))
		}
	}
	r.in("fdb", func() {
		if len(s.FDB.Static) > s.FDB.Size {
			r.in("static", func() {
				r.errorf("%d addresses do not fit into a size of %d", len(s.FDB.Static), s.FDB.Size)
			})
		}
		r.in("static", func() {
			for i, e := range s.FDB.Static {
				r.in(fmt.Sprintf("[%d]", i), func() {
					r.in("port", func() { known(e.Port) })
				})
			}
		})
	})
	r.in("mirrors", func() {
		for _, m := range s.Mirrors {
			r.in(m.Name, func() {
				r.in("to", func() {
					known(m.To)
					if slices.Contains(m.Ports, m.To) {
						r.errorf("port %s is itself mirrored: choose another", m.To)
					}
				})
				r.in("ports", func() {
					for _, name := range m.Ports {
						known(name)
					}
					if len(m.Ports) == 0 && !m.VLAN.Set {
						r.errorf("neither ports nor vlan is given: say what to copy")
					}
				})
			})
		}
	})
}

// meant is the end of an error that suggests the port with the nearest name.
func (s *Switch) meant(wrong string) string {
	best, distance := "", max(1, len(wrong)/3)+1
	for i := range s.Ports {
		if d := edits(wrong, s.Ports[i].Name); d < distance && d < len(wrong) {
			best, distance = s.Ports[i].Name, d
		}
	}
	if best == "" {
		return ""
	}
	return ": did you mean " + best + "?"
}

// port checks a port by itself.
func (r *report) port(p *Port) {
	checkObject(r, portKeys, p)
	r.rules(p)
}

// rules checks the rules between the keys of a port.
func (r *report) rules(p *Port) {
	for i := range portKeys {
		k := &portKeys[i]
		if len(k.kinds) > 0 && slices.Contains(kinds, p.Kind) && !slices.Contains(k.kinds, p.Kind) && k.print(p) != nil {
			r.in(k.name, func() {
				r.errorf("key %s is for %s ports, and %s is a %s port", k.name, k.kinds[0], p.Name, p.Kind)
			})
		}
	}
	if p.VLANMode == Trunk && p.Tag.Set {
		r.in("tag", func() {
			r.errorf("a trunk has no tag: leave it out, or use vlan_mode native-untagged or native-tagged")
		})
	}
	if p.Mode() == Access && p.Trunks != (VLANs{}) {
		r.in("trunks", func() {
			r.errorf("an access port carries only the VLAN of its tag: leave trunks out, or use vlan_mode native-untagged")
		})
	}
}
