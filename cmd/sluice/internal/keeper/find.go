package keeper

import (
	"errors"
	"os"

	"sluice/cmd/sluice/internal/config"
	"sluice/tunio/link"
	"sluice/vnet"
)

// find returns what now holds of the netdev that the port has, by whatever name (same),
// or else of the one that has the name of its device.
func (p *port) find() (f *link.Facts, same bool, err error) {
	f, err = p.had()
	if !errors.Is(err, os.ErrNotExist) {
		return f, true, err
	}
	f, err = p.ns.ns.Get(p.spec.Device)
	return f, false, err
}

// had finds the netdev that the port has, or had last, where that is in the port's
// namespace.
func (p *port) had() (*link.Facts, error) {
	ns := p.ns.ns
	if p.spec.Kind == config.Tap && p.queues != nil {
		// Its queues work on when it is moved away and back, and may then be another index's.
		for range 3 { // it may be renamed in between
			name, in, err := p.queues[0].Device()
			if errors.Is(err, vnet.ErrGone) {
				return nil, os.ErrNotExist
			}
			if err != nil { // no privilege to ask
				break
			}
			here := ns.Is(in)
			in.Close()
			if !here {
				return nil, os.ErrNotExist
			}
			if f, err := ns.Get(name); !errors.Is(err, os.ErrNotExist) {
				return f, err
			}
		}
	}
	if p.index == 0 || p.parked {
		return nil, os.ErrNotExist
	}
	f, err := ns.GetIndex(p.index)
	switch {
	case err != nil:
		return nil, err
	// Without a queue that works on, another netdev may have got the index meanwhile.
	case (p.queues == nil || p.gone != nil) && f.Name != p.netdev,
		p.spec.Kind == config.Macvtap && f.Kind != "macvtap":
		return nil, os.ErrNotExist
	}
	return f, nil
}

// renamed takes in a new name of the port's netdev, and tells of another netdev that has
// got the old one.
func (p *port) renamed(f *link.Facts) {
	if f.Name != p.netdev {
		p.called(f.Name)
		p.log.Info("the device was renamed to " + f.Name + ": the port stays with it")
	}
	if f.Name == p.spec.Device {
		return
	}
	if other, err := p.ns.ns.Get(p.spec.Device); err == nil && other.Index != f.Index {
		p.warnOnce("another netdev is called " + p.spec.Device + " now: the port stays with " + f.Name +
			" while that is there")
	}
}

// called notes the name of the port's netdev, for the log and the summary: the device may
// be an altname, and the netdev may be renamed. It is empty while there is none.
func (p *port) called(name string) {
	p.netdev, p.log = name, p.plain
	if p.alias() {
		p.log = p.plain.With("netdev", name)
	}
}

// alias reports whether the port's netdev has another name than its device.
func (p *port) alias() bool { return p.netdev != "" && p.netdev != p.spec.Device }

// outlives reports whether the port's TAP is elsewhere, and the netdev that f describes,
// which has its name now, is nothing that could take its place.
func (p *port) outlives(f *link.Facts) bool {
	return p.spec.Kind == config.Tap && p.queues != nil && !p.queues[0].Gone() && (f.Tun == nil || !f.Tun.Tap)
}
