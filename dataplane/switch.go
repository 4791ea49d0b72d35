package dataplane

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice/vnet"
)

// PortConfig is a port's configuration. Everything except Name may change: see Configure.
type PortConfig struct {
	Name     string
	Oversize Oversize
	// ForwardReserved floods what comes in for 01:80:c2:00:00:0x. Without it, and for
	// vnet.PauseMAC always, such frames are dropped.
	ForwardReserved bool

	VLAN     VLAN
	Isolated bool // no frame goes from an isolated port to another
	// MACLimit is the greatest number of addresses that are learnt behind the port; one more
	// replaces its oldest. 0 means as many as the switch has room for.
	MACLimit int
	// StormLimit is the greatest number of frames from the port that are flooded per second, to
	// group and to unknown addresses. 0 means any number.
	StormLimit int
}

func (c *PortConfig) check() error {
	if int(c.Oversize) >= len(oversizeNames) {
		return fmt.Errorf("oversize policy %d does not exist", c.Oversize)
	}
	if c.MACLimit < 0 {
		return fmt.Errorf("MAC limit %d: use 0 (no limit) or more", c.MACLimit)
	}
	if c.StormLimit < 0 || c.StormLimit > math.MaxUint32 {
		return fmt.Errorf("storm limit %d: use 0 (no limit) to %d", c.StormLimit, uint32(math.MaxUint32))
	}
	return c.VLAN.check()
}

// Config is the switch's configuration. The zero value is the default.
type Config struct {
	// Ageing is how long an address is remembered after its last frame, in seconds: 10 to 1000000
	// (IEEE 802.1Q, table 8-6), or 0, which means 300.
	Ageing Tick
	// MACLimit is the greatest number of addresses that the switch knows, up to Options.FDBSize, or
	// 0, which means FDBSize. One more replaces the oldest of the port that has the most.
	MACLimit int
}

func (c *Config) check(size int) error {
	switch {
	case c.Ageing != 0 && (c.Ageing < minAgeing || c.Ageing > maxAgeing):
		return fmt.Errorf("ageing time %d: use %d to %d seconds", c.Ageing, minAgeing, maxAgeing)
	case c.MACLimit < 0 || c.MACLimit > size:
		return fmt.Errorf("MAC limit %d: the forwarding database has room for %d", c.MACLimit, size)
	}
	return nil
}

// Port is identity, counters, forwarding entries and limits. It outlives the
// queues under it: a device may go and come back.
type Port struct {
	sw   *Switch
	id   PortID
	name string

	lost   atomic.Uint32 // lostDown or lostGone: what an event has reported about the device
	failed atomic.Bool   // an event has reported a failed write
	storm  storm

	// The following fields are guarded by sw.mu.

	config   PortConfig
	vlan     *vlanRules  // of config
	limits   vnet.Limits // as given to SetLimits or Attach
	maxWrite int         // learnt from refusals since Attach; 0 if nothing was
	latches  [numGSOKinds]latch
	up       bool
	queues   []Queue
	workers  []*worker
	rx       []*rxCounters // by queue index
	tx       []*txCounters // by worker slot
}

// gsoKind numbers the GSO types that an egress may be latched off.
type gsoKind uint8

const (
	kindTCPv4 gsoKind = iota
	kindTCPv6
	kindUDPL4
	numGSOKinds
)

// kindOf is the kind of a GSO type that Header.Check accepts.
func kindOf(g vnet.GSO) gsoKind {
	switch g.Type() {
	case vnet.GSOTCPv4:
		return kindTCPv4
	case vnet.GSOTCPv6:
		return kindTCPv6
	}
	return kindUDPL4
}

// latch keeps a GSO type from a port whose kernel refuses it.
type latch struct {
	until Tick // exclusive; 0 when not latched
	told  bool
}

// latchTime is how long a port stays latched off a GSO type before it is tried
// again.
const latchTime Tick = 60

// EventKind is the kind of an event.
type EventKind uint8

// Events.
const (
	EventDown     EventKind = iota // the port's device is down
	EventGone                      // the port's queues are useless
	EventLatched                   // the kernel refuses a GSO type; reported once per port and type
	EventLearnt                    // the port takes shorter writes than its limits say
	EventFailed                    // a write failed with an unknown errno; reported once
	EventFlaps                     // a MAC address is heard on two ports in turn; at most one event a minute
	EventMoved                     // a MAC address is heard on a new port; a few events a second
	EventFDBFull                   // an address replaced another, or found no room; at most one event a minute and port
	EventMACLimit                  // the same, for the port's own limit
)

// Event is something that a worker noticed and that an operator or supervisor should see. Events
// are few: traffic cannot cause one per frame.
type Event struct {
	Port *Port
	Kind EventKind
	// Queue is the one that was read or written. It shows whether the event is about the port's
	// current queues: the event may be handled after the port was attached again.
	Queue Queue
	GSO   vnet.GSO // EventLatched
	Size  int      // EventLearnt: the greatest write; EventFDBFull, EventMACLimit: the limit
	Err   error    // EventGone, EventFailed: what the read or the write answered

	// EventFlaps, EventMoved: the address was heard on Other, and then on Port. With
	// EventFDBFull and EventMACLimit it is the one that was heard on Port.
	MAC   vnet.MAC
	VID   uint16
	Other *Port
}

// view is what workers know about a port. It is immutable.
type view struct {
	port     *Port
	limits   vnet.Limits
	oversize Oversize
	up       bool
	queues   []Queue

	vlan       *vlanRules
	isolated   bool
	stormLimit uint32 // 0: none

	forwardReserved bool
}

// snapshot is what workers share. It is immutable.
type snapshot struct {
	views []*view // by PortID; nil where there is no port
}

// Switch forwards frames between ports.
type Switch struct {
	options Options

	fdb    *FDB
	snap   atomic.Pointer[snapshot]
	tick   atomic.Uint32
	began  time.Time
	events chan Event

	// changing is held during all of Attach, Detach, Remove, Port.Configure, SetUp and Halt, so
	// that none of them misses a worker that another is just stopping. It is taken before mu.
	changing sync.Mutex

	mu     sync.Mutex
	ports  []*Port // guarded by mu; by PortID
	slots  []bool  // guarded by mu; worker slots in use
	config Config  // guarded by mu
}

// Options of a switch.
type Options struct {
	// OnWorker, if set, is called at the start of each worker on its own thread, which ends with
	// the worker. Numbers begin at 0, differ between workers that run at the same time, and are
	// reused.
	OnWorker func(n int)

	// FDBSize is how many addresses the forwarding database has room for, at most MaxFDBSize. 0
	// means DefaultFDBSize.
	FDBSize int
}

// New makes a switch without ports.
func New(o Options) *Switch {
	const pending = 64 // events; further ones are lost while nobody reads
	s := &Switch{options: o, fdb: newFDB(o.FDBSize), began: time.Now(), events: make(chan Event, pending)}
	s.snap.Store(&snapshot{})
	return s
}

// Events delivers what workers report. Events that are not read in time are lost.
func (s *Switch) Events() <-chan Event { return s.events }

func (s *Switch) tell(e Event) {
	select {
	case s.events <- e:
	default:
	}
}

// Ports are the switch's ports in the order of their IDs.
func (s *Switch) Ports() []*Port {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.ports), func(p *Port) bool { return p == nil })
}

// AddPort adds a port without queues, which is down.
func (s *Switch) AddPort(c PortConfig) (*Port, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("add port %s: %w", c.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := -1
	for i, p := range s.ports {
		switch {
		case p == nil && id < 0:
			id = i
		case p != nil && p.name == c.Name:
			return nil, fmt.Errorf("add port %s: a port with this name exists", c.Name)
		}
	}
	if id < 0 {
		id = len(s.ports)
		s.ports = append(s.ports, nil)
	}
	if id > int(^PortID(0)) {
		return nil, fmt.Errorf("add port %s: %d ports is the maximum", c.Name, int(^PortID(0))+1)
	}
	p := &Port{sw: s, id: PortID(id), name: c.Name, config: c, vlan: c.VLAN.rules()}
	s.ports[id] = p
	s.fdb.SetLimit(p.id, c.MACLimit)
	s.publish()
	return p, nil
}

// Remove detaches the port and removes it from the switch.
func (p *Port) Remove() {
	s := p.sw
	s.changing.Lock()
	defer s.changing.Unlock()
	p.detach()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ports[p.id] == p {
		s.fdb.Remove(p.id)
		s.ports[p.id] = nil
		s.publish()
	}
}

// Config is the port's configuration.
func (p *Port) Config() PortConfig {
	p.sw.mu.Lock()
	defer p.sw.mu.Unlock()
	return p.config
}

// Configure changes the port's configuration, except its name. No frame is lost. Addresses stay
// known, except those, static ones included, in VLANs that the port no longer carries. When it
// returns, every worker uses c. An error changes nothing.
func (p *Port) Configure(c PortConfig) error {
	s := p.sw
	if err := c.check(); err != nil {
		return fmt.Errorf("configure port %s: %w", p.name, err)
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	was := p.config
	switch {
	case s.ports[p.id] != p:
		s.mu.Unlock()
		return fmt.Errorf("configure port %s: it was removed", p.name)
	case c.Name != p.name:
		s.mu.Unlock()
		return fmt.Errorf("configure port %s: it cannot be called %s: add another port", p.name, c.Name)
	case c == was:
		s.mu.Unlock()
		return nil
	}
	p.config = c
	if c.VLAN != was.VLAN {
		p.vlan = c.VLAN.rules()
	}
	s.fdb.SetLimit(p.id, c.MACLimit)
	s.publish()
	rules, workers := p.vlan, s.workersLocked()
	s.mu.Unlock()
	for _, w := range workers {
		w.quiesce() // from its next batch on it learns nothing that does not fit
	}
	if c.VLAN != was.VLAN {
		s.fdb.Keep(p.id, rules.carry)
	}
	return nil
}

// Config is the switch's configuration.
func (s *Switch) Config() Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config
}

// Configure changes the switch's configuration. Addresses stay known, except those that are now too
// old or too many. An error changes nothing.
func (s *Switch) Configure(c Config) error {
	if err := c.check(s.fdb.size); err != nil {
		return fmt.Errorf("configure switch: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config = c
	s.fdb.Configure(cmp.Or(c.Ageing, defaultAgeing), cmp.Or(c.MACLimit, s.fdb.size))
	return nil
}

// publish makes a new snapshot of the ports. The caller holds mu.
func (s *Switch) publish() {
	snap := &snapshot{views: make([]*view, len(s.ports))}
	now := Tick(s.tick.Load())
	for i, p := range s.ports {
		if p == nil {
			continue
		}
		v := &view{
			port: p, limits: p.limits, oversize: p.config.Oversize,
			up: p.up && len(p.queues) > 0, queues: p.queues,
			vlan: p.vlan, isolated: p.config.Isolated, stormLimit: uint32(p.config.StormLimit),
			forwardReserved: p.config.ForwardReserved,
		}
		if p.maxWrite > 0 {
			v.limits.MaxWrite = min(v.limits.MaxWrite, p.maxWrite)
		}
		off := func(k gsoKind) bool { return p.latches[k].until > now }
		v.limits.TSO4 = v.limits.TSO4 && !off(kindTCPv4)
		v.limits.TSO6 = v.limits.TSO6 && !off(kindTCPv6)
		v.limits.USO = v.limits.USO && !off(kindUDPL4)
		snap.views[i] = v
	}
	s.snap.Store(snap)
}

// Attach puts queues under the port, brings it up if up is set, and starts one worker for each
// queue. The port must have none. The caller closes the queues, after Detach.
func (p *Port) Attach(queues []Queue, l vnet.Limits, up bool) error {
	s := p.sw
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ports[p.id] != p:
		return fmt.Errorf("attach port %s: it was removed", p.name)
	case len(p.queues) > 0:
		return fmt.Errorf("attach port %s: it is attached", p.name)
	case len(queues) == 0:
		return errors.New("attach port " + p.name + ": no queues")
	}
	p.queues, p.limits, p.up = slices.Clone(queues), l, up
	p.maxWrite = 0
	p.lost.Store(lostNot)
	p.failed.Store(false)
	s.publish()
	for i, q := range p.queues {
		if i == len(p.rx) {
			p.rx = append(p.rx, new(rxCounters))
		}
		w := newWorker(s, p, q, p.rx[i], s.takeSlot())
		p.workers = append(p.workers, w)
		go w.run()
	}
	return nil
}

// takeSlot finds a free worker slot. The caller holds mu.
func (s *Switch) takeSlot() int {
	i := slices.Index(s.slots, false)
	if i < 0 {
		i = len(s.slots)
		s.slots = append(s.slots, false)
	}
	s.slots[i] = true
	return i
}

// Detach takes the queues away from the port and forgets the addresses that were learnt behind it.
// When it returns, no worker uses them. It does nothing to a port without queues.
func (p *Port) Detach() {
	p.sw.changing.Lock()
	defer p.sw.changing.Unlock()
	p.detach()
}

// detach is Detach with changing held.
func (p *Port) detach() {
	s := p.sw
	s.mu.Lock()
	workers := p.workers
	p.queues, p.workers, p.up = nil, nil, false
	s.publish()
	others := s.workersLocked()
	s.mu.Unlock()

	for _, w := range workers {
		w.stop()
	}
	for _, w := range others {
		w.quiesce()
	}
	s.fdb.Forget(p.id)

	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range workers {
		s.slots[w.slot] = false
	}
}

func (s *Switch) workersLocked() []*worker {
	var all []*worker
	for _, p := range s.ports {
		if p != nil {
			all = append(all, p.workers...)
		}
	}
	return all
}

// SetLimits changes what the port takes, from each worker's next batch on.
func (p *Port) SetLimits(l vnet.Limits) {
	p.sw.mu.Lock()
	defer p.sw.mu.Unlock()
	if p.limits != l {
		p.limits = l
		p.sw.publish()
	}
}

// SetUp sets the port up or down. Nothing is sent to a port that is down, the addresses that were
// learnt behind it are forgotten, and no new ones are learnt there. Frames that it had received are
// still forwarded.
func (p *Port) SetUp(up bool) {
	s := p.sw
	s.changing.Lock()
	defer s.changing.Unlock()
	p.lost.Store(lostNot)
	s.mu.Lock()
	changed := p.up != up
	if changed {
		p.up = up
		s.publish()
	}
	workers := p.workers
	s.mu.Unlock()
	if !changed || up {
		return
	}
	for _, w := range workers {
		w.quiesce() // from its next batch on it learns nothing
	}
	s.fdb.Forget(p.id)
}

// Name is the port's name.
func (p *Port) Name() string { return p.name }

// Up reports whether the port has queues and its device is up.
func (p *Port) Up() bool { return p.view().up }

// Limits are what the port takes now, including what was learnt from refusals by the kernel. Those
// of a removed port are zero.
func (p *Port) Limits() vnet.Limits { return p.view().limits }

// view is what workers know about the port, which is nothing after Remove.
func (p *Port) view() *view {
	if v := p.sw.snap.Load().views[p.id]; v != nil && v.port == p {
		return v
	}
	return &view{}
}

// Stats are the port's counters.
func (p *Port) Stats() Stats {
	p.sw.mu.Lock()
	defer p.sw.mu.Unlock()
	var s Stats
	for _, c := range p.rx {
		s.addRx(c)
	}
	for _, c := range p.tx {
		if c != nil {
			s.addTx(c)
		}
	}
	return s
}

// Tick tells the switch the time. Call it about once a second: it ages forwarding entries and ends
// latches.
func (s *Switch) Tick() { s.advance(Tick(time.Since(s.began) / time.Second)) }

// advance sets the clock to now.
func (s *Switch) advance(now Tick) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick.Store(uint32(now))
	s.fdb.Expire(now)
	ended := false
	for _, p := range s.ports {
		if p == nil {
			continue
		}
		for k := range p.latches {
			if l := &p.latches[k]; l.until > 0 && l.until <= now {
				l.until = 0
				ended = true
			}
		}
	}
	if ended {
		s.publish()
	}
}

// Halt ends the forwarding: what was read is written, and nothing more is read. Ports stay
// attached. When it returns no batch is in flight.
func (s *Switch) Halt() {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	workers := s.workersLocked()
	s.mu.Unlock()
	for _, w := range workers {
		w.stop()
	}
}

// Close removes every port.
func (s *Switch) Close() {
	for _, p := range s.Ports() {
		p.Remove()
	}
}

// latchOff keeps a GSO type from the port for latchTime.
func (p *Port) latchOff(q Queue, g vnet.GSO) {
	s := p.sw
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &p.latches[kindOf(g)]
	l.until = Tick(s.tick.Load()) + latchTime
	s.publish()
	if !l.told {
		l.told = true
		s.tell(Event{Port: p, Kind: EventLatched, Queue: q, GSO: g.Type()})
	}
}

// learnMaxWrite lowers the port's greatest write to n.
func (p *Port) learnMaxWrite(q Queue, n int) {
	s := p.sw
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.maxWrite != 0 && p.maxWrite <= n {
		return
	}
	p.maxWrite = n
	s.publish()
	s.tell(Event{Port: p, Kind: EventLearnt, Queue: q, Size: n})
}

// What a port's workers have reported about its device.
const (
	lostNot uint32 = iota
	lostDown
	lostGone
)

// lose reports that the port's device is down, and that it is gone, each once until the port is set
// up or attached again.
func (p *Port) lose(q Queue, gone bool, err error) {
	level, e := lostDown, Event{Port: p, Kind: EventDown, Queue: q}
	if gone {
		level, e = lostGone, Event{Port: p, Kind: EventGone, Queue: q, Err: err}
	}
	for {
		was := p.lost.Load()
		if was >= level {
			return
		}
		if p.lost.CompareAndSwap(was, level) {
			p.sw.tell(e)
			return
		}
	}
}

// fail reports a write that failed for an unknown reason, once until the port is attached again.
func (p *Port) fail(q Queue, err error) {
	if !p.failed.Swap(true) {
		p.sw.tell(Event{Port: p, Kind: EventFailed, Queue: q, Err: err})
	}
}

// txCounters are those of the worker in slot.
func (p *Port) txCounters(slot int) *txCounters {
	p.sw.mu.Lock()
	defer p.sw.mu.Unlock()
	for len(p.tx) <= slot {
		p.tx = append(p.tx, nil)
	}
	if p.tx[slot] == nil {
		p.tx[slot] = new(txCounters)
	}
	return p.tx[slot]
}
