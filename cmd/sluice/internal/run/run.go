package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"time"

	"sluice/cmd/sluice/internal/config"
	"sluice/dataplane"
	"sluice/dataplane/summary"
	"sluice/tunio/link"
	"sluice/tunio/probe"
	"sluice/vnet"
)

// Options are what `sluice run` was asked to do.
type Options struct {
	Ports []config.Port
	Log   *slog.Logger
	Ready func() // called once, when every port is attached

	// Ask asks for the ports' state and counters as they are. Frames that are under way
	// are in some of the counters and not yet in others.
	Ask    <-chan os.Signal
	Answer func(*summary.Summary)
}

// interval is how often devices are looked at without a reason.
const interval = time.Second

// Run switches frames between the ports until ctx is done. It returns the ports'
// state and counters as they were at the end, whatever the error, if the switch
// ran at all.
func Run(ctx context.Context, o Options) (_ *summary.Summary, err error) {
	r := &runner{
		log:   o.Log,
		sw:    dataplane.New(dataplane.Options{OnWorker: pinner()}),
		probe: probe.Run(),
		wake:  make(chan struct{}, 1),
		names: map[string]*namespace{},
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.open(o.Ports); err != nil {
		return nil, err
	}
	if !r.probe.Probed {
		r.log.Warn("this kernel was not probed: going by its release", "release", r.probe.Release, "why", r.probe.Why)
	}
	o.Ready()
	r.loop(ctx, o)
	r.quiesce()
	for _, p := range r.ports {
		p.advise(time.Now())
	}
	return r.summary(), nil
}

// runner owns the switch, the ports and the namespaces they live in.
type runner struct {
	log   *slog.Logger
	sw    *dataplane.Switch
	probe probe.Result
	ports []*port
	names map[string]*namespace // by name; "" is the process's own
	wake  chan struct{}         // something may have changed
}

// open attaches every port.
func (r *runner) open(specs []config.Port) error {
	own, err := r.namespace("")
	if err != nil {
		return err
	}
	// A worker's system calls are long enough for the scheduler to take its
	// processor away; with one to spare for each and two for the rest it gets one
	// back at once. Measured: about 15 % with four workers.
	workers := 0
	for _, s := range specs {
		workers += s.Queues
	}
	runtime.GOMAXPROCS(workers + 2)
	for _, s := range specs {
		ns, err := r.namespace(s.Netns)
		if err != nil {
			return fmt.Errorf("port %s: %w", s.Name, err)
		}
		sp, err := r.sw.AddPort(dataplane.PortConfig{
			Name: s.Name, Oversize: s.Oversize, ForwardReserved: s.Reserved == config.ReservedForward,
		})
		if err != nil {
			return err
		}
		p := &port{
			spec: s, sw: sp, own: own, ns: ns,
			abilities: &r.probe,
			plain:     r.log.With("port", s.Name, "device", s.Device),
			holder:    r.holder,
		}
		p.called("")
		r.ports = append(r.ports, p)
		err = p.begin()
		switch {
		case errors.Is(err, os.ErrPermission):
			return fmt.Errorf("port %s: %w; `sluice run --help` lists what each part needs", s.Name, err)
		case err != nil:
			return fmt.Errorf("port %s: %w", s.Name, err)
		}
	}
	return nil
}

// namespace opens the namespace of that name and follows it, once.
func (r *runner) namespace(name string) (*namespace, error) {
	if n := r.names[name]; n != nil {
		return n, nil
	}
	n := &namespace{name: name, wake: r.wake}
	if err := n.open(); err != nil {
		return nil, err
	}
	r.names[name] = n
	return n, nil
}

// loop keeps ports and devices together until ctx is done.
func (r *runner) loop(ctx context.Context, o Options) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.sw.Tick()
		case <-r.wake:
		case e := <-r.sw.Events():
			r.event(e)
		case <-o.Ask:
			for _, p := range r.ports {
				p.last = p.state()
			}
			o.Answer(r.summary())
		}
		for _, n := range r.names {
			n.follow()
		}
		for _, p := range r.ports {
			p.follow()
		}
	}
}

// event takes in what a worker noticed.
func (r *runner) event(e dataplane.Event) {
	for _, p := range r.ports {
		if p.sw != e.Port {
			continue
		}
		switch e.Kind {
		case dataplane.EventGone:
			if slices.Contains(p.queues, e.Queue.(queue).Queue) { // else it is of an earlier attachment
				p.gone = cmp.Or(e.Err, vnet.ErrGone)
			}
		case dataplane.EventLatched:
			p.log.Warn("the kernel refuses a GSO type: such frames leave as segments, and it is tried again every minute",
				"gso", gsoName(e.GSO), "release", r.probe.Release)
		case dataplane.EventLearnt:
			p.log.Warn("the kernel takes no write as long as the limits say: cutting to less", "max_write", e.Size)
		case dataplane.EventFailed:
			p.failed(e.Err)
		case dataplane.EventFlaps:
			p.log.Warn("a MAC address comes in here and at another port in turn: two hosts have it "+
				"(QEMU gives each guest the same one, but for mac=), or there is a loop",
				"mac", e.MAC, "vlan", e.VID, "other", e.Other.Name())
		}
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

// quiesce keeps the ports' state as it is, and ends the traffic: the counters agree with
// each other when nothing is under way.
func (r *runner) quiesce() {
	for _, p := range r.ports {
		p.last = p.state()
	}
	r.sw.Halt()
}

// summary is the ports' last state, and their counters.
func (r *runner) summary() *summary.Summary {
	s := &summary.Summary{Ports: []summary.Port{}}
	for _, p := range r.ports {
		s.Ports = append(s.Ports, p.summary())
	}
	return s
}

// close undoes what open did, in the opposite order.
func (r *runner) close() error {
	var errs []error
	for i := len(r.ports) - 1; i >= 0; i-- {
		if err := r.ports[i].end(); err != nil {
			errs = append(errs, fmt.Errorf("port %s: %w", r.ports[i].spec.Name, err))
		}
	}
	r.sw.Close()
	for _, n := range r.names {
		n.close()
	}
	return errors.Join(errs...)
}

// namespace is a namespace that ports live in, for as long as its name means it.
type namespace struct {
	name    string
	wake    chan<- struct{}
	ns      *link.Namespace // nil while there is none of the name
	watcher *link.Watcher
	uses    map[int]string // link.HostUses, once this look has asked; else nil
}

// open opens the namespace and begins to follow its netdevs.
func (n *namespace) open() (err error) {
	ns, err := link.OpenNamespace(n.name)
	if err != nil {
		return err
	}
	w, err := ns.Watch()
	if err != nil {
		ns.Close()
		return err
	}
	n.ns, n.watcher = ns, w
	go func() {
		for range w.Events() {
			select {
			case n.wake <- struct{}{}:
			default:
			}
		}
	}()
	return nil
}

// follow lets go of a namespace that was deleted, since who holds it keeps it and
// its netdevs alive, and opens one that was made again.
func (n *namespace) follow() {
	n.uses = nil
	if n.ns != nil && !n.ns.Alive() {
		n.close()
	}
	if n.ns == nil {
		_ = n.open() // there is none yet: its ports say so
	}
}

// hostUses is what the host's own stack needs netdevs for, asked once for all ports.
func (n *namespace) hostUses() (_ map[int]string, err error) {
	if n.uses == nil {
		n.uses, err = n.ns.HostUses()
	}
	return n.uses, err
}

func (n *namespace) close() {
	if n.ns != nil {
		n.watcher.Close()
		n.ns.Close()
		n.ns, n.watcher = nil, nil
	}
}
