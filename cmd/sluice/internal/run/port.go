package run

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"sluice/cmd/sluice/internal/portspec"
	"sluice/dataplane"
	"sluice/summary"
	"sluice/tunio"
	"sluice/tunio/link"
	"sluice/tunio/probe"
	"sluice/vnet"
)

// port is a port of the switch and the device that the command line names for it.
type port struct {
	spec      portspec.Port
	sw        *dataplane.Port
	own, ns   *namespace // the process's, and the device's
	abilities *probe.Result
	log       *slog.Logger

	queues  []*tunio.Queue  // open while the port is attached
	index   int             // of the netdev that they were opened on,
	in      *link.Namespace // and its namespace
	host    io.Closer       // keeps frames from the host's stack; may be nil
	made    int             // index of the netdev that is ours to remove, or 0
	changes []change        // to netdevs that are not ours
	gone    bool            // a worker found the queues to be of no use
	parked  bool            // the queues are open, and not under the port
	refused time.Time       // when the first of the last attempts to attach failed
	said    string          // the state that was logged last
	told    map[string]bool

	lost uint64     // kernel drops of earlier attachments
	base link.Drops // what the netdev had dropped at attach,
	seen link.Drops // and when it was last looked at
	last state
}

// change is one to put back at the end.
type change struct {
	ns *link.Namespace
	link.Change
}

// state is what a summary says about a port besides its counters.
type state struct {
	up          bool
	limits      vnet.Limits
	kernelDrops uint64
}

// queue makes a *tunio.Queue a dataplane.Queue.
type queue struct{ *tunio.Queue }

func (q queue) Transmitter() dataplane.Transmitter { return q.Queue.Transmitter() }

// begin attaches the port for the first time, creating what is missing.
func (p *port) begin() (err error) {
	facts, err := p.ns.ns.Get(p.spec.Device)
	switch {
	case err == nil:
		if err := p.checkLower(facts); err != nil {
			return err
		}
		err = p.attach(facts)
	case !errors.Is(err, os.ErrNotExist):
		return err
	case p.spec.Kind == portspec.Tap:
		err = p.createTap()
	case p.spec.Kind == portspec.Macvtap && p.spec.Lower != "":
		err = p.createMacvtap()
	case p.spec.Kind == portspec.Macvtap:
		return fmt.Errorf("%w; to have it created over a netdev add lower=NETDEV", err)
	default:
		return fmt.Errorf("%w; `ip link` lists those that there are", err)
	}
	if err != nil {
		return err
	}
	p.follow()
	return nil
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
	moves := !p.ns.ns.Same(p.own.ns)
	if moves {
		name = fmt.Sprintf("sluice%d", os.Getpid())
	}
	var queues []*tunio.Queue
	err := p.own.ns.Do(func() (err error) {
		queues, err = tunio.OpenTap(tunio.TapConfig{Name: name, Queues: p.spec.Queues, Create: true})
		return err
	})
	if err != nil {
		return err
	}
	if moves {
		if err := p.own.ns.Move(name, p.ns.ns, p.spec.Device); err != nil {
			closeQueues(queues)
			return err
		}
	}
	return p.adopt(queues)
}

// createMacvtap makes the macvtap and attaches the port.
func (p *port) createMacvtap() error {
	ns := p.ns.ns
	lower, err := ns.Get(p.spec.Lower)
	if err != nil {
		return err
	}
	if err := ns.CreateMacvtap(p.spec.Device, p.spec.Lower); err != nil {
		return err
	}
	facts, err := ns.Get(p.spec.Device)
	if err != nil {
		return errors.Join(err, ns.Delete(p.spec.Device))
	}
	p.made = facts.Index
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
			closeQueues(queues)
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
	p.made = facts.Index
	return p.use(queues, facts)
}

// attach opens an existing device and puts it under the port.
func (p *port) attach(f *link.Facts) (err error) {
	if f.Name != p.spec.Device {
		return fmt.Errorf("%s is an altname of %s: that is what the port's device has to be",
			p.spec.Device, f.Name)
	}
	if p.parked {
		return p.use(p.queues, f)
	}
	var queues []*tunio.Queue
	switch p.spec.Kind {
	case portspec.Tap:
		err = p.ns.ns.Do(func() (err error) {
			queues, err = tunio.OpenTap(tunio.TapConfig{Name: p.spec.Device, Queues: p.spec.Queues})
			return err
		})
		if err != nil && p.spec.Netns != "" { // where the command that the error tells is to be typed
			err = fmt.Errorf("in network namespace %s: %w", p.spec.Netns, err)
		}
	case portspec.Packet:
		queues, err = tunio.OpenPacket(p.spec.Device, p.spec.Queues)
	case portspec.Macvtap:
		queues, err = tunio.OpenMacvtap(p.spec.Device, p.spec.Queues)
	}
	if err != nil {
		return err
	}
	if err := p.use(queues, f); err != nil {
		p.unhide()
		closeQueues(queues)
		return err
	}
	return nil
}

// use puts queues, opened on the netdev that f describes, under the port.
func (p *port) use(queues []*tunio.Queue, f *link.Facts) error {
	f, err := p.raise(f)
	if err != nil {
		return err
	}
	if p.spec.Kind == portspec.Packet {
		if err := p.hide(f); err != nil {
			return err
		}
	}
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
	p.lost += p.linkDrops() // of a tap that was away
	p.queues, p.index, p.in, p.base, p.seen = queues, f.Index, p.ns.ns, f.Drops, f.Drops
	p.gone, p.parked = false, false
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
	if s.Kind == portspec.Tap {
		up(&want.GROMaxSize, s.GSOMaxSize, have.GROMaxSize)
		up(&want.GROIPv4MaxSize, s.GSOIPv4MaxSize, have.GROIPv4MaxSize)
	} else {
		up(&want.GSOMaxSize, s.GSOMaxSize, have.GSOMaxSize)
		up(&want.GSOIPv4MaxSize, s.GSOIPv4MaxSize, have.GSOIPv4MaxSize)
		up(&want.GSOMaxSegs, s.GSOMaxSegs, have.GSOMaxSegs)
	}
	if want == (link.Sizes{}) {
		return f, nil
	}
	c, err := p.ns.ns.SetSizes(s.Device, want)
	if f.Index != p.made && c.Before != c.After {
		p.changes = append(p.changes, change{p.ns.ns, c})
	}
	if err != nil {
		return nil, err
	}
	return p.ns.ns.Get(s.Device)
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
	if s.Kind == portspec.Macvtap {
		args = append(args, "hint", "the lower netdev's limits hold too: raise those with `ip link set`")
	}
	p.warnOnce("the device takes less than was asked for: using what it takes", args...)
}

// hide keeps what the netdev receives from the host's own stack, unless that would
// cut the host off from something it uses.
func (p *port) hide(f *link.Facts) error {
	if p.spec.Host == portspec.HostKeep {
		return nil
	}
	if p.spec.Host == portspec.HostAuto {
		address, err := p.ns.ns.HasAddress(f.Name)
		if err != nil {
			return err
		}
		if address || f.Master != 0 {
			p.warnOnce("the host's own stack sees the frames too, since the netdev has an address or a master: " +
				"host=drop keeps them from it, host=keep silences this")
			return nil
		}
	}
	var host io.Closer
	err := p.ns.ns.Do(func() (err error) {
		host, err = link.HostDrop(f.Index)
		return err
	})
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		p.warnOnce("the host's own stack sees the frames too: " + err.Error())
		return nil
	case err != nil:
		return fmt.Errorf("%w; try: sudo, or host=keep, which does without", err)
	}
	p.host = host
	return nil
}

// limits are what the port takes, from what the device takes and what the command
// line says: the smaller of both.
func (p *port) limits(f *link.Facts) (vnet.Limits, error) {
	var l vnet.Limits
	switch p.spec.Kind {
	case portspec.Tap:
		l = link.TapLimits(f, p.abilities.Tap)
	case portspec.Packet:
		l = link.PacketLimits(f, p.abilities.Packet)
	case portspec.Macvtap:
		var lower *link.Facts
		if !f.LowerElsewhere {
			var err error
			if lower, err = p.ns.ns.GetIndex(f.Lower); err != nil {
				return l, err
			}
		}
		l = link.MacvtapLimits(f, lower, p.abilities.Packet)
	}
	s := p.spec
	ipv4 := s.GSOIPv4MaxSize
	if ipv4 == 0 && s.GSOMaxSize <= vnet.LegacyGSOMaxSize {
		ipv4 = s.GSOMaxSize // as the kernel couples them
	}
	lower(&l.GSOMaxSize, s.GSOMaxSize)
	lower(&l.GSOIPv4MaxSize, ipv4)
	lower(&l.GSOMaxSegs, s.GSOMaxSegs)
	lower(&l.MTU, s.MTU)
	switch s.Offload {
	case portspec.OffloadFull:
		l.Csum, l.TSO4, l.TSO6, l.USO = true, true, true, true
	case portspec.OffloadCsum:
		l.Csum, l.TSO4, l.TSO6, l.USO = true, false, false, false
	case portspec.OffloadNone:
		l.Csum, l.TSO4, l.TSO6, l.USO = false, false, false, false
	}
	return l, nil
}

// lower lowers limit to bound, where there is one.
func lower(limit *int, bound int) {
	if bound != 0 {
		*limit = min(*limit, bound)
	}
}

// follow makes the port agree with its device.
func (p *port) follow() {
	if p.ns.ns == nil {
		p.release()
		p.say("its namespace is gone")
		return
	}
	if p.queues != nil && p.in != p.ns.ns {
		p.release() // the namespace was deleted, and made again at once
	}
	f, err := p.ns.ns.Get(p.spec.Device)
	switch {
	case errors.Is(err, os.ErrNotExist) && p.spec.Kind == portspec.Tap &&
		p.queues != nil && !p.queues[0].Gone():
		// Moved to another namespace, where it works on. Closing its queues could delete
		// it, and what is sent there is not for this switch.
		p.sw.Detach()
		p.parked = true
		p.say("the device is in another namespace")
		return
	case errors.Is(err, os.ErrNotExist):
		p.release()
		p.say("the device is gone")
		return
	case err != nil:
		p.say(err.Error())
		return
	}
	if p.queues != nil && (p.gone || p.replaced(f)) {
		p.release()
	}
	if p.queues == nil || p.parked {
		if err := p.attach(f); err != nil {
			// A new device may still be in its maker's hands: `ip tuntap add` has it
			// open for a moment.
			if p.refused.IsZero() {
				p.refused = time.Now()
			}
			if time.Since(p.refused) >= interval/2 {
				p.say(err.Error())
			}
			return
		}
		p.refused = time.Time{}
	}
	p.index, p.seen = f.Index, f.Drops
	limits, err := p.limits(f)
	switch {
	case errors.Is(err, os.ErrNotExist): // a macvtap goes with its lower netdev
		p.release()
		p.say("the device is gone")
		return
	case err != nil:
		p.say(err.Error())
		return
	}
	p.sw.SetLimits(limits)
	p.sw.SetUp(carries(f))
	switch {
	case !f.Up:
		p.say("the device is down")
	case !f.Carrier:
		p.say("the device has no carrier")
	default:
		p.say(up)
	}
}

// carries reports whether what is sent to the netdev gets anywhere. A netdev that is
// up may have no carrier: a veth whose peer is down, a TAP that nobody has open.
func carries(f *link.Facts) bool { return f.Up && f.Carrier }

// replaced reports whether the netdev that f describes, which has the device's name,
// is another than the queues were opened on.
func (p *port) replaced(f *link.Facts) bool {
	switch {
	case f.Index == p.index && !p.parked:
		return false
	case p.spec.Kind != portspec.Tap:
		return true
	}
	// A tap that was moved away and back has another index, and its queues work on.
	// While it is away its name may be another's.
	name, ns, err := p.queues[0].Device()
	if err != nil {
		return true
	}
	defer ns.Close()
	return name != p.spec.Device || !p.ns.ns.Is(ns)
}

const up = "up"

// say logs the port's state when it is another than the last.
func (p *port) say(state string) {
	if p.said == state {
		return
	}
	p.said = state
	if state == up {
		p.log.Info("port is up")
		return
	}
	p.log.Warn("port is down", "why", state)
}

// warnOnce logs a warning the first time it is given.
func (p *port) warnOnce(msg string, args ...any) {
	if p.told[msg] {
		return
	}
	if p.told == nil {
		p.told = map[string]bool{}
	}
	p.told[msg] = true
	p.log.Warn(msg, args...)
}

// failed tells of an errno of a write, once each.
func (p *port) failed(err error) {
	p.warnOnce("writes fail and are counted as io_error: " + err.Error())
}

// release takes the device from under the port and closes it.
func (p *port) release() {
	if p.queues == nil {
		return
	}
	p.sw.Detach()
	p.lost += p.queueDrops() + p.linkDrops()
	p.base = p.seen
	closeQueues(p.queues)
	p.queues, p.gone, p.parked = nil, false, false
	p.unhide()
}

func (p *port) unhide() {
	if p.host != nil {
		p.host.Close()
		p.host = nil
	}
}

func (p *port) queueDrops() (n uint64) {
	for _, q := range p.queues {
		n += q.KernelDrops()
	}
	return n
}

// linkDrops is what the netdev has dropped from the attach to the last look.
func (p *port) linkDrops() uint64 {
	s, b := p.seen, p.base
	return s.Rx - b.Rx + s.Tx - b.Tx + s.RxMissed - b.RxMissed
}

// state is the port's state now.
func (p *port) state() state {
	if p.queues != nil && p.ns.ns != nil {
		// Another netdev may have the name by now.
		if f, err := p.ns.ns.Get(p.spec.Device); err == nil && f.Index == p.index {
			p.seen = f.Drops
		}
	}
	return state{
		up: p.sw.Up(), limits: p.sw.Limits(),
		kernelDrops: p.lost + p.queueDrops() + p.linkDrops(),
	}
}

// end releases the device, removes it if it is ours, and puts back what was changed
// on it if it is not.
func (p *port) end() error {
	p.release()
	p.unhide()
	var errs []error
	for _, c := range slices.Backward(p.changes) {
		if c.ns == p.ns.ns { // else it is gone, with its netdevs
			errs = append(errs, c.ns.Restore(c.Change))
		}
	}
	p.changes = nil
	// A tap went with its descriptors. A macvtap of the same name may be another's.
	if p.made != 0 && p.spec.Kind == portspec.Macvtap { // in the process's own namespace
		f, err := p.ns.ns.Get(p.spec.Device)
		if err == nil && f.Index == p.made {
			err = p.ns.ns.Delete(p.spec.Device)
		}
		if !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	p.made = 0
	return errors.Join(errs...)
}

// summary is the port's part of the summary, with the state in p.last.
func (p *port) summary() summary.Port {
	c, l := p.sw.Stats(), p.last.limits
	return summary.Port{
		Name: p.spec.Name, Kind: string(p.spec.Kind), Device: p.spec.Device, Up: p.last.up,
		Limits: summary.Limits{
			GSOMaxSize: l.GSOMaxSize, GSOIPv4MaxSize: l.GSOIPv4MaxSize, GSOMaxSegs: l.GSOMaxSegs, MTU: l.MTU,
			Csum: l.Csum, TSO4: l.TSO4, TSO6: l.TSO6, USO: l.USO,
			IPv6Form: l.IPv6Form.String(), MaxWrite: l.MaxWrite,
		},
		RX: summary.RX{Frames: c.RxFrames, Bytes: c.RxBytes, Copies: c.RxCopies, MaxFrame: c.RxMaxFrame},
		TX: summary.TX{
			Offered: c.TxOffered, Frames: c.TxFrames, Bytes: c.TxBytes, MaxFrame: c.TxMaxFrame,
			Resegmented: c.Resegmented, Chunks: c.Chunks, Segmented: c.Segmented, Segments: c.Segments,
			Retried: c.Retried, CsumCompleted: c.CsumCompleted,
		},
		Drops:       summary.Drops{Ingress: drops(&c.IngressDrops), Egress: drops(&c.EgressDrops)},
		KernelDrops: p.last.kernelDrops,
	}
}

// drops are the reasons that occurred.
func drops(counts *[vnet.NumDrops]uint64) map[string]uint64 {
	m := map[string]uint64{}
	for d, n := range counts {
		if n != 0 {
			m[vnet.Drop(d).String()] = n
		}
	}
	return m
}

func closeQueues(queues []*tunio.Queue) {
	for _, q := range queues {
		q.Close()
	}
}

// gsoName is the kernel's name of a GSO type.
func gsoName(g vnet.GSO) string {
	switch g.Type() {
	case vnet.GSOTCPv4:
		return "tcpv4"
	case vnet.GSOTCPv6:
		return "tcpv6"
	}
	return "udp_l4"
}
