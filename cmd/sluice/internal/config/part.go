package config

import (
	"bytes"
	"fmt"

	"sluice/vnet"
)

// MaxVLAN is the greatest VLAN that a tag can hold (IEEE 802.1Q, 9.6).
const MaxVLAN = maxVLAN

// ParseMAC reads the MAC address of a host, such as 52:54:00:00:00:0a.
func ParseMAC(s string) (vnet.MAC, error) {
	v, err := macs{}.read(scalar(text, s))
	if err != nil {
		return 0, err
	}
	return v, macs{}.check(v)
}

// ParsePortJSON reads one port: its keys as in a document, and its name. The error is
// Errors.
func ParsePortJSON(data []byte) (Port, error) {
	r := &report{}
	p := newPort()
	if n := r.part(data); n != nil {
		p.Name = r.take(n, "name")
		readObject(r, n, portKeys, &p)
		if err := names.check(p.Name); err != nil {
			r.in("name", func() { r.errorf("%v", err) })
		}
		r.port(&p)
	}
	return p, r.err()
}

// MarshalJSON is the port as ParsePortJSON reads it.
func (p Port) MarshalJSON() ([]byte, error) {
	n := &node{kind: object}
	n.add("name", scalar(text, p.Name))
	n.pairs = append(n.pairs, printObject(portKeys, &p).pairs...)
	var b bytes.Buffer
	writeJSON(&b, n, "")
	return b.Bytes(), nil
}

// SetPortJSON is the switch with some keys of a port changed: those of a JSON object, where
// null takes a key back to its default. Text is also read as the command line spells it.
func (s Switch) SetPortJSON(name string, data []byte) (Switch, error) {
	i := s.index(name)
	if i < 0 {
		return s, s.unknown(name)
	}
	next := s.Clone()
	p := &next.Ports[i]
	r := &report{}
	if n := r.part(data); n != nil {
		given := &node{kind: object, pos: n.pos}
		for _, kv := range n.pairs {
			k := find(portKeys, kv.key)
			if k != nil && kv.value.kind == null {
				k.reset(p)
				continue
			}
			if kv.value.kind == text {
				kv.value.kind = untyped
			}
			given.pairs = append(given.pairs, kv)
		}
		readObject(r, given, portKeys, p)
		r.root = nil // places of what follows are not in data
		r.whole(&next)
	}
	if err := r.err(); err != nil {
		return s, err
	}
	return next, nil
}

// ParseEntryJSON reads a static address. The error is Errors.
func ParseEntryJSON(data []byte) (e Entry, err error) {
	r := &report{}
	reset(entryKeys, &e)
	if n := r.part(data); n != nil {
		readObject(r, n, entryKeys, &e)
		checkObject(r, entryKeys, &e)
	}
	return e, r.err()
}

// ParseMirrorJSON reads one mirror: its keys as in a document, and its name. The error is
// Errors.
func ParseMirrorJSON(data []byte) (m Mirror, err error) {
	r := &report{}
	reset(mirrorKeys, &m)
	if n := r.part(data); n != nil {
		m.Name = r.take(n, "name")
		readObject(r, n, mirrorKeys, &m)
		if err := names.check(m.Name); err != nil {
			r.in("name", func() { r.errorf("%v", err) })
		}
		checkObject(r, mirrorKeys, &m)
	}
	return m, r.err()
}

// part parses JSON that is not a whole document.
func (r *report) part(data []byte) *node {
	switch bad := firstInvalid(data); {
	case len(data) > MaxDocument:
		r.errorf("it is longer than %d bytes", MaxDocument)
		return nil
	case bad >= 0:
		r.at(newLines(data).at(bad), "the text is not UTF-8")
		return nil
	}
	n := r.json(data)
	if n != nil && n.kind != object {
		r.errorf("%v", want(n, "an object with keys"))
		return nil
	}
	r.root = n
	return n
}

// take takes a text out of an object.
func (r *report) take(n *node, key string) string {
	for i, kv := range n.pairs {
		if kv.key != key {
			continue
		}
		n.pairs = append(n.pairs[:i:i], n.pairs[i+1:]...)
		if kv.value.kind != text {
			r.in(key, func() { r.errorf("%v", want(kv.value, fmt.Sprintf("a %s", key))) })
		}
		return kv.value.text
	}
	return ""
}
