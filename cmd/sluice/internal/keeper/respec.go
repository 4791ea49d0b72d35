package keeper

import (
	"fmt"

	"sluice/cmd/sluice/internal/config"
)

// respec makes the port what s says, which has the same name. A port that needs other
// queues for it begins anew, with its counters; any other goes on without losing a frame.
func (p *port) respec(s config.Port, ns *namespace) {
	if err := p.sw.Configure(p.keeper.portConfig(&s)); err != nil { // also where the switch's own keys changed
		p.log.Warn("the switch refuses the port's keys: " + err.Error())
	}
	was := p.spec
	if was == s {
		return
	}
	p.told = nil // warnings may be true again
	if was.NeedsQueues(s) {
		if err := p.end(); err != nil {
			p.log.Warn("the device is let go, and something of it stays: " + err.Error())
		}
		p.forget()
		p.spec, p.ns, p.in = s, ns, nil
		p.begun, p.creates, p.exposed, p.hostUse = false, false, false, ""
		p.plain = p.keeper.log.With("port", s.Name, "device", s.Device)
		p.called("")
		return
	}
	p.spec = s
	if was.Host != s.Host {
		p.unhide()
		p.exposed, p.hostUse = false, ""
	}
	if err := p.resize(was); err != nil {
		p.warnOnce("the device does not take what is asked for: " + err.Error())
	}
}

// resize makes the sizes of the port's netdev what they would be if the port had had its
// present keys from the beginning.
func (p *port) resize(was config.Port) error {
	s := p.spec
	sizes := was.GSOMaxSize != s.GSOMaxSize || was.GSOIPv4MaxSize != s.GSOIPv4MaxSize || was.GSOMaxSegs != s.GSOMaxSegs
	mtu := was.MTU != s.MTU && s.MTU != 0 && p.made != 0
	if p.queues == nil || p.parked || !sizes && !mtu {
		return nil
	}
	if p.keeper.locked {
		return errLocked
	}
	if err := p.restore(); err != nil {
		return fmt.Errorf("put back its sizes: %w", err)
	}
	f, err := p.ns.ns.GetIndex(p.index)
	if err != nil {
		return err
	}
	if mtu {
		if err := p.ns.ns.SetMTU(f.Name, s.MTU); err != nil {
			return err
		}
	}
	_, err = p.raise(f)
	return err
}
