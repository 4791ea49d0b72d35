package keeper

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"sluice/cmd/sluice/internal/config"
	"sluice/dataplane"
	"sluice/tunio"
	"sluice/tunio/link"
	"sluice/vnet"
)

// port is a port of the switch and the device that the command line names for it.
type port struct {
	keeper *Keeper
	spec   config.Port
	sw     *dataplane.Port
	ns     *namespace   // the device's
	plain  *slog.Logger // with the names that the configuration has
	log    *slog.Logger // and the netdev's own, where that is another

	begun   bool // the device was had once
	removed bool

	queues  []*tunio.Queue  // open while the port is attached
	index   int             // of the netdev that they are, or were last, open on; or 0,
	netdev  string          // its name,
	in      *link.Namespace // and its namespace
	held    *link.Hold      // says that the netdev is taken; may be nil
	creates bool            // the device was missing at first: it is Sluice's to make
	missed  time.Time       // since when it could be made again, or when that failed
	unmade  error           // why it cannot be
	host    io.Closer       // keeps frames from the host's stack; may be nil
	exposed bool            // nothing can keep them from it: the kernel has no tcx
	hostUse string          // what the host needs them for, as logged last
	made    int             // index of the netdev that is ours to remove, or 0
	changes []change        // to netdevs that are not ours
	gone    error           // why the queues are of no use, as a worker found
	parked  bool            // the queues are open, and not under the port
	refused time.Time       // when the first of the last attempts to attach failed
	said    string          // the state that was logged last,
	since   time.Time       // when it began
	tried   time.Time       // when begin was tried last,
	unhad   error           // and why it failed; nil if it did not
	told    map[string]bool
	loop    loopWatch
	watch   dropWatch

	granted vnet.Limits         // what netdev and keys grant
	limited vnet.Limits         // what the port took when it was last noticed
	dropped [vnet.NumDrops]bool // reasons that were told of

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

// follow makes the port agree with its device.
func (p *port) follow() {
	if !p.begun {
		if time.Since(p.tried) >= interval {
			_ = p.begin()
		}
		if p.unhad != nil {
			p.say(p.unhad.Error())
		}
		return
	}
	if p.ns.ns == nil {
		p.say("its namespace is gone")
		p.forget()
		p.missed = time.Time{}
		return
	}
	if p.in != nil && p.in != p.ns.ns {
		p.forget() // the namespace was deleted, and made again
		p.in, p.missed = nil, time.Time{}
	}
	f, same, err := p.find()
	switch {
	case errors.Is(err, os.ErrNotExist):
		if f = p.missing(); f == nil {
			return
		}
	case err != nil:
		p.say(err.Error())
		return
	case !same && p.outlives(f):
		p.park("the device is elsewhere, and what has its name is no TAP")
		return
	case !same:
		if p.queues != nil && !p.parked {
			p.say(deviceGone) // and here is another
		}
		p.forget()
	case p.gone != nil:
		p.warnOnce("a queue failed, and the device is opened again: " + p.gone.Error())
		p.release()
	}
	p.missed, p.unmade = time.Time{}, nil
	if p.keeper.locked && p.queues == nil {
		p.say(errLocked.Error())
		return
	}
	if err := p.hold(f); err != nil {
		if p.queues != nil { // of a tap that has come back
			p.park(err.Error())
		} else {
			p.refuse(err)
		}
		return
	}
	p.hideAgain(f)
	if p.queues == nil || p.parked {
		if f, err = p.attach(f); err != nil {
			p.unhide()
			p.unhold()
			p.refuse(err)
			return
		}
	} else {
		p.renamed(f)
		p.index, p.seen = f.Index, f.Drops
	}
	p.refused = time.Time{}
	limits, err := p.limits(f)
	switch {
	case errors.Is(err, os.ErrNotExist): // a macvtap goes with its lower netdev
		p.say(deviceGone)
		p.forget()
		return
	case err != nil:
		p.say(err.Error())
		return
	}
	p.sw.SetLimits(limits)
	p.sw.SetUp(carries(f))
	p.advise(time.Now())
	switch {
	case !f.Up:
		p.say(fmt.Sprintf("the device is down; try: %s link set %s up", p.ip(), f.Name))
	case !f.Carrier && f.Tun != nil:
		p.say("the device has no carrier: nobody has the TAP open")
	case !f.Carrier:
		p.say("the device has no carrier: its other end is down")
	default:
		p.say(up)
	}
}

// refuse says why the port's device cannot be had. A new device may still be in its
// maker's hands: `ip tuntap add` has it open for a moment.
func (p *port) refuse(err error) {
	if p.refused.IsZero() {
		p.refused = time.Now()
	}
	if time.Since(p.refused) >= interval/2 {
		p.say(err.Error())
	}
}

// deviceGone is the state of a port whose device is neither here nor elsewhere.
const deviceGone = "the device is gone"

// missing deals with a device that is not there. It returns what holds of one that it has
// made, or nil.
func (p *port) missing() *link.Facts {
	if p.spec.Kind != config.Packet && p.queues != nil && !p.queues[0].Gone() {
		p.park("the device is in another namespace")
		return nil
	}
	p.release()
	if f := p.remake(); f != nil {
		return f
	}
	why := deviceGone
	if p.unmade != nil {
		why += ", and cannot be made again: " + p.unmade.Error()
	}
	p.say(why)
	p.forget()
	return nil
}

// remake makes again what Sluice had made. It waits until that has been possible for a
// while: who deletes a device to put another in its place is not disturbed.
func (p *port) remake() *link.Facts {
	if !p.creates || p.keeper.locked {
		return nil
	}
	if p.spec.Lower != "" {
		if _, err := p.ns.ns.Get(p.spec.Lower); errors.Is(err, os.ErrNotExist) {
			p.missed, p.unmade = time.Time{}, nil
			return nil
		}
	}
	switch {
	case p.missed.IsZero():
		p.missed = time.Now()
		return nil
	case time.Since(p.missed) < interval:
		return nil
	}
	// Also a failure makes netlink events, at which it would be tried for ever.
	p.missed = time.Now()
	if p.unmade = p.create(); p.unmade != nil {
		return nil
	}
	f, err := p.ns.ns.GetIndex(p.index)
	if err != nil { // it went at once
		return nil
	}
	p.log.Info("the device was gone, and is made again")
	return f
}

// park takes a tap or macvtap that works on elsewhere, or is another's, from under the port.
// Closing a tap's queues could delete it, and what is sent there is not for this switch.
func (p *port) park(why string) {
	p.unhide()
	p.sw.Detach()
	p.parked = true
	p.unhold()
	p.say(why)
}

// ip is the command ip in the port's namespace.
func (p *port) ip() string {
	switch {
	case p.spec.Netns == "":
		return "ip"
	case strings.Contains(p.spec.Netns, "/"):
		return "nsenter --net=" + p.spec.Netns + " ip"
	}
	return "ip -n " + p.spec.Netns
}

// carries reports whether what is sent to the netdev gets anywhere. A netdev that is
// up may have no carrier: a veth whose peer is down, a TAP that nobody has open.
func carries(f *link.Facts) bool { return f.Up && f.Carrier }

const up = "up"

// say logs the port's state when it is another than the last.
func (p *port) say(state string) {
	if p.said == state {
		return
	}
	p.said, p.since = state, time.Now()
	if state == up {
		p.log.Info("port is up")
		p.tell(Event{Kind: PortUp, Text: "port " + p.spec.Name + " is up"})
		return
	}
	p.log.Warn("port is down", "why", state)
	p.tell(Event{Kind: PortDown, Text: "port " + p.spec.Name + " is down: " + state})
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

// tell adds an event about the port.
func (p *port) tell(e Event) {
	e.Port = p.spec.Name
	p.keeper.tell(e)
}

// failed tells of an errno of a write, once each.
func (p *port) failed(err error) {
	p.warnOnce("writes fail and are counted as io_error: " + err.Error())
}
