package keeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"time"

	"sluice/cmd/sluice/internal/config"
	"sluice/dataplane"
	"sluice/dataplane/summary"
	"sluice/tunio/probe"
)

// Options are what a keeper begins with.
type Options struct {
	Config config.Switch
	// Strict makes a port that cannot be had at the start an error of Run. Else it is down,
	// with its reason, and tried again.
	Strict bool
	Log    *slog.Logger
	// Probe is what the kernel is known to take; nil has Run try it.
	Probe *probe.Result
	// Lock says that Ready gives up the privileges to open devices and to change netdevs.
	Lock  bool
	Ready func() error // called once, when every port was tried; an error ends Run
}

// interval is how often devices are looked at without a reason.
const interval = time.Second

// Keeper makes a switch and its devices agree with the desired state. Run runs it; the
// other methods may be called from any goroutine, as soon as New has returned.
type Keeper struct {
	strict bool
	known  *probe.Result // Options.Probe
	lock   bool
	ready  func() error
	log    *slog.Logger
	sw     *dataplane.Switch
	probe  probe.Result
	events *events

	calls chan func() // what others want done by Run's goroutine
	ended chan struct{}

	// What follows belongs to Run's goroutine.

	want     config.Switch
	revision uint64 // of want: how often it changed
	ports    []*port
	retired  *summary.Port         // the counters of ports that were removed; nil before the first
	names    map[string]*namespace // by name; "" is the process's own
	locked   bool                  // no device can be opened or changed any more
	wake     chan struct{}         // something may have changed
}

// New makes a keeper, and a switch without ports.
func New(o Options) *Keeper {
	return &Keeper{
		strict: o.Strict, known: o.Probe, lock: o.Lock, ready: o.Ready, log: o.Log, want: o.Config,
		sw:     dataplane.New(dataplane.Options{OnWorker: pinner(), FDBSize: o.Config.FDB.Size}),
		events: newEvents(),
		calls:  make(chan func()),
		ended:  make(chan struct{}),
		wake:   make(chan struct{}, 1),
		names:  map[string]*namespace{},
	}
}

// Run keeps devices and ports together until ctx is done. It returns the ports' state and
// counters as they were at the end, whatever the error, if the switch ran at all.
func (k *Keeper) Run(ctx context.Context) (_ *summary.Summary, err error) {
	defer close(k.ended)
	defer func() { err = errors.Join(err, k.close()) }()
	if k.known != nil {
		k.probe = *k.known
	} else {
		k.probe = probe.Run()
	}
	if err := k.own().err; err != nil {
		return nil, err
	}
	if err := unbuilt(k.want); err != nil {
		return nil, err
	}
	if err := k.reconcile(); err != nil && k.strict {
		return nil, err
	}
	if !k.probe.Probed {
		k.log.Warn("this kernel was not probed: going by its release", "release", k.probe.Release, "why", k.probe.Why)
	}
	k.seal()
	if err := k.ready(); err != nil {
		return nil, err
	}
	k.loop(ctx)
	k.quiesce()
	for _, p := range k.ports {
		p.advise(time.Now())
	}
	return k.summary(), nil
}

// loop keeps ports and devices together until ctx is done.
func (k *Keeper) loop(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			k.sw.Tick()
		case <-k.wake:
		case e := <-k.sw.Events():
			k.event(e)
		case f := <-k.calls:
			f()
			continue // what it changed it has seen to
		}
		k.follow()
	}
}

// follow makes every port agree with its device.
func (k *Keeper) follow() {
	for _, n := range k.names {
		n.follow()
	}
	for _, p := range k.ports {
		p.follow()
		p.notice()
	}
}

// ErrEnded says that the switch has ended, or is ending.
var ErrEnded = errors.New("the switch has ended")

// do has Run's goroutine call f, and waits for it.
func (k *Keeper) do(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case k.calls <- func() { defer close(done); f() }:
		<-done // f waits for nobody
		return nil
	case <-k.ended:
		return ErrEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reconcile makes the switch what want says: it removes, changes and adds ports. Ports that
// stay as they are notice nothing. The error is that of the first port that cannot be had.
func (k *Keeper) reconcile() error {
	if err := k.sw.Configure(k.switchConfig()); err != nil {
		return err
	}
	for _, p := range slices.Backward(k.ports) {
		if _, ok := k.want.Port(p.spec.Name); !ok {
			k.remove(p)
		}
	}
	k.ports = slices.DeleteFunc(k.ports, func(p *port) bool { return p.removed })
	// A worker's system calls are long enough for the scheduler to take its
	// processor away; with one to spare for each and two for the rest it gets one
	// back at once. Measured: about 15 % with four workers.
	workers := 0
	for _, s := range k.want.Ports {
		workers += s.Queues
	}
	runtime.GOMAXPROCS(workers + 2)

	ports := make([]*port, 0, len(k.want.Ports))
	for _, s := range k.want.Ports {
		p := k.named(s.Name)
		if p == nil {
			var err error
			if p, err = k.add(s); err != nil {
				return err
			}
		} else {
			p.respec(s, k.namespace(s.Netns))
		}
		ports = append(ports, p)
	}
	k.ports = ports
	var first error
	for _, p := range k.ports { // only now: a device may have gone from one port to another
		if err := p.begin(); err != nil && first == nil {
			first = fmt.Errorf("port %s: %w", p.spec.Name, err)
		}
	}
	k.forgetNamespaces()
	k.entries()
	return first
}

// named is the port of that name, or nil.
func (k *Keeper) named(name string) *port {
	for _, p := range k.ports {
		if p.spec.Name == name {
			return p
		}
	}
	return nil
}

// add adds a port, without a device yet.
func (k *Keeper) add(s config.Port) (*port, error) {
	sw, err := k.sw.AddPort(k.portConfig(&s))
	if err != nil {
		return nil, err
	}
	p := &port{
		keeper: k, spec: s, sw: sw, ns: k.namespace(s.Netns),
		plain: k.log.With("port", s.Name, "device", s.Device),
	}
	p.called("")
	k.tell(Event{Kind: PortAdded, Port: s.Name, Text: "port " + s.Name + " is added"})
	return p, nil
}

// remove removes a port, and keeps what it counted: the laws of conservation are about all
// ports that there were.
func (k *Keeper) remove(p *port) {
	p.last = p.state()
	if err := p.end(); err != nil {
		p.log.Warn("the port is removed, and something of it stays: " + err.Error())
	}
	p.removed = true
	last := p.summary()
	if k.retired == nil {
		k.retired = &summary.Port{}
	}
	k.retired.Add(&last)
	p.sw.Remove()
	k.tell(Event{Kind: PortRemoved, Port: p.spec.Name, Text: "port " + p.spec.Name + " is removed"})
}

// tell adds an event.
func (k *Keeper) tell(e Event) { k.events.add(e) }

// event takes in what a worker noticed.
func (k *Keeper) event(e dataplane.Event) {
	for _, p := range k.ports {
		if p.sw == e.Port {
			p.event(e)
		}
	}
}

// quiesce keeps the ports' state as it is, and ends the traffic: the counters agree with
// each other when nothing is under way.
func (k *Keeper) quiesce() {
	for _, p := range k.ports {
		p.last = p.state()
	}
	k.sw.Halt()
}

// summary is the ports' last state, and their counters.
func (k *Keeper) summary() *summary.Summary {
	s := &summary.Summary{Ports: []summary.Port{}}
	for _, p := range k.ports {
		s.Ports = append(s.Ports, p.summary())
	}
	if k.retired != nil {
		s.Retired = &summary.Port{} // a copy: the caller keeps it
		s.Retired.Add(k.retired)
	}
	return s
}

// close undoes what Run did, in the opposite order.
func (k *Keeper) close() error {
	var errs []error
	for _, p := range slices.Backward(k.ports) {
		if err := p.end(); err != nil {
			errs = append(errs, fmt.Errorf("port %s: %w", p.spec.Name, err))
		}
	}
	k.sw.Close()
	for _, n := range k.names {
		n.close()
	}
	return errors.Join(errs...)
}
