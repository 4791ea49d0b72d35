package run

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"sluice/cmd/sluice/internal/portspec"
	"sluice/dataplane"
	"sluice/tunio"
	"sluice/tunio/link"
	"sluice/tunio/probe"
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
	exposed bool            // nothing can keep them from it: the kernel has no tcx
	hostUse string          // what the host needs them for, as logged last
	made    int             // index of the netdev that is ours to remove, or 0
	changes []change        // to netdevs that are not ours
	gone    error           // why the queues are of no use, as a worker found
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
		p.park("the device is in another namespace")
		return
	case errors.Is(err, os.ErrNotExist):
		p.release()
		p.say("the device is gone")
		return
	case err != nil:
		p.say(err.Error())
		return
	}
	switch replaced := p.queues != nil && p.replaced(f); {
	case replaced && p.outlives(f):
		p.park("the device is elsewhere, and what has its name is no TAP")
		return
	case replaced:
		p.release()
	case p.gone != nil:
		p.warnOnce("a queue failed, and the device is opened again: " + p.gone.Error())
		p.release()
	}
	p.hideAgain(f)
	if p.queues == nil || p.parked {
		if f, err = p.attach(f); err != nil {
			p.unhide()
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
	} else {
		p.index, p.seen = f.Index, f.Drops
	}
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
	p.advise()
	switch {
	case !f.Up:
		p.say(fmt.Sprintf("the device is down; try: %s link set %s up", p.ip(), p.spec.Device))
	case !f.Carrier && f.Tun != nil:
		p.say("the device has no carrier: nobody has the TAP open")
	case !f.Carrier:
		p.say("the device has no carrier: its other end is down")
	default:
		p.say(up)
	}
}

// park takes a TAP that is elsewhere, and works on there, from under the port. Closing
// its queues could delete it, and what is sent there is not for this switch.
func (p *port) park(why string) {
	p.sw.Detach()
	p.parked = true
	p.say(why)
}

// outlives reports whether the port's TAP is elsewhere, and the netdev that f describes,
// which has its name now, is nothing that could take its place.
func (p *port) outlives(f *link.Facts) bool {
	return p.spec.Kind == portspec.Tap && !p.queues[0].Gone() && (f.Tun == nil || !f.Tun.Tap)
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
