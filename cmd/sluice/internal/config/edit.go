package config

import (
	"fmt"
	"slices"
	"strings"
)

// AddPort returns the switch with a new last port.
func (s Switch) AddPort(p Port) (Switch, error) {
	if s.index(p.Name) >= 0 {
		return s, fmt.Errorf("there are two ports %s: give each its own name", p.Name)
	}
	s = s.Clone()
	s.Ports = append(s.Ports, p)
	return s.checked()
}

// RemovePort returns the switch without a port. It is an error while a mirror or a static address
// names the port.
func (s Switch) RemovePort(name string) (Switch, error) {
	i := s.index(name)
	if i < 0 {
		return s, s.unknown(name)
	}
	s = s.Clone()
	s.Ports = slices.Delete(s.Ports, i, i+1)
	return s.checked()
}

// SetPort returns the switch with some keys of a port changed. Settings are key=value, spelled as
// on the command line; an empty value resets a key to its default.
func (s Switch) SetPort(name string, settings ...string) (Switch, error) {
	i := s.index(name)
	if i < 0 {
		return s, s.unknown(name)
	}
	next := s.Clone()
	r := &report{path: []string{"ports", name}}
	r.set(&next.Ports[i], settings)
	r.path = nil
	r.whole(&next)
	if err := r.err(); err != nil {
		return s, err
	}
	return next, nil
}

// AddMirror is the switch with one mirror more, the last.
func (s Switch) AddMirror(m Mirror) (Switch, error) {
	if s.mirror(m.Name) >= 0 {
		return s, fmt.Errorf("there are two mirrors %s: give each its own name", m.Name)
	}
	s = s.Clone()
	s.Mirrors = append(s.Mirrors, m)
	return s.checked()
}

// RemoveMirror is the switch without a mirror, and whether there was one of that name.
func (s Switch) RemoveMirror(name string) (Switch, bool) {
	i := s.mirror(name)
	if i < 0 {
		return s, false
	}
	s = s.Clone()
	s.Mirrors = slices.Delete(s.Mirrors, i, i+1)
	return s, true
}

func (s Switch) mirror(name string) int {
	return slices.IndexFunc(s.Mirrors, func(m Mirror) bool { return m.Name == name })
}

// checked returns s if it is valid.
func (s Switch) checked() (Switch, error) { return s, s.Validate() }

func (s Switch) unknown(name string) error {
	var all []string
	for i := range s.Ports {
		all = append(all, s.Ports[i].Name)
	}
	if meant := s.meant(name); meant != "" || len(all) == 0 {
		return fmt.Errorf("there is no port %q%s", name, meant)
	}
	const most = 8
	if len(all) > most {
		all = append(all[:most], "...")
	}
	return fmt.Errorf("there is no port %q: the ports are %s", name, strings.Join(all, ", "))
}
