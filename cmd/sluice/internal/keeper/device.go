package keeper

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"sluice/cmd/sluice/internal/config"
	"sluice/dataplane"
	"sluice/tunio"
	"sluice/tunio/link"
	"sluice/vnet"
)

// queue makes a *tunio.Queue a dataplane.Queue.
type queue struct{ *tunio.Queue }

func (q queue) Transmitter() dataplane.Transmitter { return q.Queue.Transmitter() }

// begin attaches the port for the first time, creating what is missing. It does nothing to
// a port that has begun.
func (p *port) begin() error {
	if p.begun {
		return nil
	}
	p.tried = time.Now()
	err := p.first()
	switch {
	case err == nil:
		p.begun, p.unhad = true, nil
		p.follow()
		return nil
	case errors.Is(err, os.ErrPermission):
		err = fmt.Errorf("%w; `sluice run --help` lists what each part needs", err)
	}
	p.forget()
	p.unhad = err
	return err
}

// first is the part of begin that can fail.
func (p *port) first() error {
	if p.keeper.locked {
		return errLocked
	}
	if p.ns.ns == nil {
		return p.ns.err
	}
	facts, err := p.ns.ns.Get(p.spec.Device)
	switch {
	case err == nil:
		if err := p.checkLower(facts); err != nil {
			return err
		}
		if err := p.hold(facts); err != nil {
			return err
		}
		if err := p.hide(facts); err != nil {
			return err
		}
		_, err = p.attach(facts)
		return err
	case !errors.Is(err, os.ErrNotExist):
		return err
	case p.spec.Kind == config.Tap, p.spec.Lower != "":
		p.creates = true
		return p.create()
	case p.spec.Kind == config.Macvtap:
		return fmt.Errorf("%w; to have it created over a netdev add lower=NETDEV", err)
	}
	return fmt.Errorf("%w; `ip link` lists those that there are", err)
}

// create makes the device, which is missing, and attaches the port.
func (p *port) create() error {
	if p.spec.Kind == config.Tap {
		return p.createTap()
	}
	return p.createMacvtap()
}

// checkLower reports a macvtap that is over another netdev than the one asked for.
func (p *port) checkLower(f *link.Facts) error {
	if p.spec.Lower == "" || f.LowerElsewhere {
		return nil
	}
	lower, err := p.ns.ns.Get(p.spec.Lower)
	if err != nil {
		return err
	}
	if f.Kind == "macvtap" && f.Lower != lower.Index {
		return fmt.Errorf("%s exists, and not over %s: leave lower= out to use it as it is, or `ip link del %s`",
			p.spec.Device, p.spec.Lower, p.spec.Device)
	}
	return nil
}

// createTap makes the TAP and attaches the port. It is made in the process's own
// namespace and moved: a descriptor opened in another would keep that namespace,
// and the TAP, alive after `ip netns del`.
func (p *port) createTap() error {
	name := p.spec.Device
	moves := !p.ns.ns.Same(p.keeper.own().ns)
	if moves {
		name = fmt.Sprintf("sluice%d", os.Getpid())
	}
	var queues []*tunio.Queue
	err := p.keeper.own().ns.Do(func() (err error) {
		queues, err = tunio.OpenTap(tunio.TapConfig{Name: name, Queues: p.spec.Queues, Create: true})
		return err
	})
	if err != nil {
		return err
	}
	if moves {
		if err := p.keeper.own().ns.Move(name, p.ns.ns, p.spec.Device); err != nil {
			closeQueues(queues)
			return err
		}
	}
	return p.adopt(queues)
}

// createMacvtap makes the macvtap and attaches the port.
func (p *port) createMacvtap() (err error) {
	ns := p.ns.ns
	lower, err := ns.Get(p.spec.Lower)
	if err != nil {
		return err
	}
	if err := ns.CreateMacvtap(p.spec.Device, p.spec.Lower); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ns.Delete(p.spec.Device))
		}
	}()
	// A new macvtap begins with 64 KiB, whatever is under it.
	_, err = ns.SetSizes(p.spec.Device, link.Sizes{
		GSOMaxSize: lower.GSOMaxSize, GSOIPv4MaxSize: lower.GSOIPv4MaxSize, GSOMaxSegs: lower.GSOMaxSegs,
	})
	if err != nil {
		return err
	}
	queues, err := tunio.OpenMacvtap(p.spec.Device, p.spec.Queues)
	if err != nil {
		return err
	}
	return p.adopt(queues)
}

// adopt takes over the queues of a netdev that was just created: it gets the MTU
// that was asked for, goes up, and the port is attached to it.
func (p *port) adopt(queues []*tunio.Queue) (err error) {
	defer func() {
		if err != nil {
			p.unhold()
			closeQueues(queues)
			p.made = 0
		}
	}()
	ns := p.ns.ns
	if p.spec.MTU != 0 {
		if err := ns.SetMTU(p.spec.Device, p.spec.MTU); err != nil {
			return err
		}
	}
	if err := ns.SetUp(p.spec.Device); err != nil {
		return err
	}
	facts, err := ns.Get(p.spec.Device)
	if err != nil {
		return err
	}
	if err := p.hold(facts); err != nil {
		return err
	}
	p.made = facts.Index
	if facts, err = p.raise(facts); err != nil {
		return err
	}
	return p.use(queues, facts)
}

// attach opens the netdev that f describes, which the port holds, and puts it under the
// port. It returns what then holds of the netdev.
func (p *port) attach(f *link.Facts) (_ *link.Facts, err error) {
	p.called(f.Name)
	if f, err = p.raise(f); err != nil {
		return nil, err
	}
	if p.parked {
		return f, p.use(p.queues, f)
	}
	var queues []*tunio.Queue
	switch p.spec.Kind {
	case config.Tap:
		err = p.ns.ns.Do(func() (err error) {
			queues, err = tunio.OpenTap(tunio.TapConfig{Name: f.Name, Queues: p.spec.Queues})
			return err
		})
		if err != nil && p.spec.Netns != "" { // where the command that the error tells is to be typed
			err = fmt.Errorf("in network namespace %s: %w", p.spec.Netns, err)
		}
	case config.Packet:
		queues, err = tunio.OpenPacket(f.Name, p.spec.Queues)
	case config.Macvtap:
		queues, err = tunio.OpenMacvtap(f.Name, p.spec.Queues)
	}
	if err != nil {
		return nil, err
	}
	// Who opens a TAP gives it its carrier.
	now, err := p.ns.ns.Get(f.Name)
	if err == nil && now.Index != f.Index {
		err = fmt.Errorf("%s was replaced while it was being opened", f.Name)
	}
	if err == nil {
		err = p.use(queues, now)
	}
	if err != nil {
		closeQueues(queues)
		return nil, err
	}
	return now, nil
}

// use puts queues, opened on the netdev that f describes, under the port.
func (p *port) use(queues []*tunio.Queue, f *link.Facts) error {
	limits, err := p.limits(f)
	if err != nil {
		return err
	}
	p.warnLess(limits, f)
	qs := make([]dataplane.Queue, len(queues))
	for i, q := range queues {
		qs[i] = queue{q}
	}
	if err := p.sw.Attach(qs, limits, carries(f)); err != nil {
		return err
	}
	p.called(f.Name)
	p.lost += p.linkDrops() // of a tap that was away
	p.queues, p.index, p.in, p.base, p.seen = queues, f.Index, p.ns.ns, f.Drops, f.Drops
	p.gone, p.parked = nil, false
	return nil
}

// raise sets the netdev's sizes to those asked for where that raises them, and
// returns what then holds.
func (p *port) raise(f *link.Facts) (*link.Facts, error) {
	s, have := p.spec, f.Sizes
	var want link.Sizes
	up := func(want *int, asked, has int) {
		if asked > has {
			*want = asked
		}
	}
	if s.Kind == config.Tap {
		up(&want.GROMaxSize, s.GSOMaxSize, have.GROMaxSize)
		up(&want.GROIPv4MaxSize, s.GSOIPv4MaxSize, have.GROIPv4MaxSize)
	} else {
		up(&want.GSOMaxSize, s.GSOMaxSize, have.GSOMaxSize)
		up(&want.GSOIPv4MaxSize, s.GSOIPv4MaxSize, have.GSOIPv4MaxSize)
		up(&want.GSOMaxSegs, s.GSOMaxSegs, have.GSOMaxSegs)
	}
	if want == (link.Sizes{}) || p.keeper.locked { // then warnLess tells
		return f, nil
	}
	c, err := p.ns.ns.SetSizes(f.Name, want)
	if f.Index != p.made && c.Before != c.After {
		p.changes = append(p.changes, change{p.ns.ns, c})
	}
	if err != nil {
		return nil, err
	}
	return p.ns.ns.GetIndex(f.Index)
}

// warnLess warns, once, of a limit that is lower than the one asked for: the kernel
// did not grant it, or a macvtap's lower netdev has a lower one.
func (p *port) warnLess(l vnet.Limits, f *link.Facts) {
	s := p.spec
	if l.GSOMaxSize >= s.GSOMaxSize && l.GSOIPv4MaxSize >= s.GSOIPv4MaxSize && l.GSOMaxSegs >= s.GSOMaxSegs {
		return
	}
	args := []any{
		"gso_max_size", l.GSOMaxSize, "gso_ipv4_max_size", l.GSOIPv4MaxSize, "gso_max_segs", l.GSOMaxSegs,
		"tso_max_size", f.TSOMaxSize, "tso_max_segs", f.TSOMaxSegs,
	}
	if s.Kind == config.Macvtap {
		args = append(args, "hint", "the lower netdev's limits hold too: raise those with `ip link set`")
	}
	p.warnOnce("the device takes less than was asked for: using what it takes", args...)
}

// limits are what the port takes, from what the device takes and what the command
// line says: the smaller of both.
func (p *port) limits(f *link.Facts) (vnet.Limits, error) {
	var l vnet.Limits
	switch p.spec.Kind {
	case config.Tap:
		l = link.TapLimits(f, p.keeper.probe.Tap)
	case config.Packet:
		l = link.PacketLimits(f, p.keeper.probe.Packet)
	case config.Macvtap:
		var lower *link.Facts
		if !f.LowerElsewhere {
			var err error
			if lower, err = p.ns.ns.GetIndex(f.Lower); err != nil {
				return l, err
			}
		}
		l = link.MacvtapLimits(f, lower, p.keeper.probe.Packet)
	}
	s := p.spec
	lower(&l.GSOMaxSize, s.GSOMaxSize)
	lower(&l.GSOIPv4MaxSize, ipv4MaxSize(&s))
	lower(&l.GSOMaxSegs, s.GSOMaxSegs)
	lower(&l.MTU, s.MTU)
	switch s.Offload {
	case config.OffloadFull:
		l.Csum, l.TSO4, l.TSO6, l.USO = true, true, true, true
	case config.OffloadCsum:
		l.Csum, l.TSO4, l.TSO6, l.USO = true, false, false, false
	case config.OffloadNone:
		l.Csum, l.TSO4, l.TSO6, l.USO = false, false, false, false
	}
	p.granted = l
	return l, nil
}

// ipv4MaxSize is the limit that the keys set for IPv4, or 0. Without one of its own it
// goes along with gso_max_size as in the kernel (netif_set_gso_max_size).
func ipv4MaxSize(s *config.Port) int {
	if s.GSOIPv4MaxSize == 0 && s.GSOMaxSize <= vnet.LegacyGSOMaxSize {
		return s.GSOMaxSize
	}
	return s.GSOIPv4MaxSize
}

// lower lowers limit to bound, where there is one.
func lower(limit *int, bound int) {
	if bound != 0 {
		*limit = min(*limit, bound)
	}
}

// release takes the device from under the port and closes it.
func (p *port) release() {
	p.unhide()
	if p.queues != nil {
		p.sw.Detach()
		p.lost += p.queueDrops() + p.linkDrops()
		p.base = p.seen
		closeQueues(p.queues)
		p.queues, p.gone, p.parked = nil, nil, false
	}
	p.unhold()
}

// forget is release of a device that is not the port's any more.
func (p *port) forget() {
	p.release()
	p.index = 0
	p.called("")
}

// end releases the device, removes it if it is ours, and puts back what was changed
// on it if it is not.
func (p *port) end() error {
	p.release()
	if p.keeper.locked { // seal told
		return nil
	}
	errs := []error{p.restore()}
	// A tap went with its descriptors. A macvtap of the same name may be another's, and
	// ours may have another name.
	if p.made != 0 && p.spec.Kind == config.Macvtap { // in the process's own namespace
		f, err := p.ns.ns.GetIndex(p.made)
		if err == nil && f.Kind == "macvtap" {
			err = p.ns.ns.Delete(f.Name)
		}
		if !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	p.made = 0
	return errors.Join(errs...)
}

// restore puts back what was changed on netdevs that are not ours.
func (p *port) restore() error {
	var errs []error
	for _, c := range slices.Backward(p.changes) {
		if c.ns == p.ns.ns { // else it is gone, with its netdevs
			errs = append(errs, c.ns.Restore(c.Change))
		}
	}
	p.changes = nil
	return errors.Join(errs...)
}

func closeQueues(queues []*tunio.Queue) {
	for _, q := range queues {
		q.Close()
	}
}
