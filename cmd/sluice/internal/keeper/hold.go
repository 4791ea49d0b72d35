package keeper

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"sluice/tunio/link"
)

// hold takes the netdev that f describes for this switch alone: two that had it would
// double every frame.
func (p *port) hold(f *link.Facts) error {
	if p.held != nil && p.held.Index == f.Index {
		return nil
	}
	p.unhold()
	h, err := p.ns.ns.Hold(f)
	var other *link.HeldError
	if errors.As(err, &other) && other.PID == os.Getpid() {
		if o := p.keeper.holder(p.ns.ns, f.Index); o != nil {
			err = fmt.Errorf("%s is netdev %s, which is under port %s already", p.spec.Device, f.Name, o.spec.Name)
		}
	}
	if err != nil {
		return err
	}
	p.held = h
	return nil
}

func (p *port) unhold() {
	if p.held != nil {
		p.held.Close()
		p.held = nil
	}
}

// holder is the port that holds a netdev, or nil.
func (k *Keeper) holder(in *link.Namespace, index int) *port {
	i := slices.IndexFunc(k.ports, func(p *port) bool {
		return p.held != nil && p.held.Index == index && p.ns.ns.Same(in)
	})
	if i < 0 {
		return nil
	}
	return k.ports[i]
}
