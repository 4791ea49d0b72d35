package config

import (
	"fmt"
	"strings"
)

// ParsePort reads the command line's spelling of a port, NAME=KIND:DEVICE[,key=value...].
// Its errors name the argument.
func ParsePort(arg string) (Port, error) {
	r := &report{file: "-p " + arg}
	p, err := parseArg(r, arg)
	if err != nil {
		r.errorf("%v", err)
	}
	return p, r.err()
}

func parseArg(r *report, arg string) (Port, error) {
	p := newPort()
	head, keys, more := strings.Cut(arg, ",")
	name, rest, ok := strings.Cut(head, "=")
	kind, device, ok2 := strings.Cut(rest, ":")
	switch {
	case !ok || !ok2:
		return p, fmt.Errorf("want NAME=KIND:DEVICE[,key=value...], for example a=packet:veth0")
	case name == "":
		return p, fmt.Errorf("the port has no name: want NAME=%s", rest)
	}
	if err := names.check(name); err != nil {
		return p, err
	}
	p.Name = name
	n := &node{kind: object}
	n.add("kind", scalar(untyped, kind))
	n.add("device", scalar(untyped, device))
	if more && keys != "" {
		for _, kv := range strings.Split(keys, ",") {
			key, value, ok := strings.Cut(kv, "=")
			if !ok || value == "" {
				return p, fmt.Errorf("%q is not key=value; lists are joined by +, such as trunks=10+20-30", kv)
			}
			n.add(key, scalar(untyped, value))
		}
	}
	readObject(r, n, portKeys, &p)
	r.port(&p)
	return p, nil
}

// String is the command line's spelling of the port, which ParsePort reads.
func (p Port) String() string {
	arg := p.Name + "=" + string(p.Kind) + ":" + p.Device
	for _, kv := range printObject(portKeys, &p).pairs {
		if kv.key != "kind" && kv.key != "device" {
			arg += "," + kv.key + "=" + kv.value.spell()
		}
	}
	return arg
}

// set reads key=value arguments into a port. An empty value means the default.
func (r *report) set(p *Port, settings []string) {
	given := &node{kind: object}
	for _, s := range settings {
		name, value, ok := strings.Cut(s, "=")
		k := find(portKeys, name)
		switch {
		case !ok:
			r.at(pos{}, "%q is not key=value", s)
		case value == "" && k != nil:
			k.reset(p)
		default:
			given.add(name, scalar(untyped, value))
		}
	}
	readObject(r, given, portKeys, p)
}
