package netns

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink"
)

// labs counts the labs of this process, for unique names.
var labs atomic.Uint32

// Lab owns namespaces and the processes in them.
type Lab struct {
	prefix  string // start of its namespaces' names
	entered bool   // self counts it until it has closed

	mu         sync.Mutex
	err        error        // guarded by mu: the first error of a method that builds
	closed     bool         // guarded by mu
	namespaces []*Namespace // guarded by mu
	stops      []func()     // guarded by mu: end processes and captures
}

// New makes an empty lab. The name only helps a reader of /run/netns.
func New(name string) *Lab {
	sweep()
	maker, err := self.enter()
	l := &Lab{prefix: fmt.Sprintf("%s-%s%d-", maker, name, labs.Add(1)), entered: err == nil}
	if err != nil {
		l.err = fmt.Errorf("netns: make lab: %w", err)
	}
	return l
}

// Err is the first error of a method that builds, or nil.
func (l *Lab) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// build runs one step of building unless an earlier one failed, and keeps its
// error as "op object: cause".
func (l *Lab) build(op, object string, step func() error) {
	if l.Err() != nil {
		return
	}
	if err := step(); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.err == nil {
			l.err = fmt.Errorf("netns: %s %s: %w", op, object, err)
		}
	}
}

// onClose registers stop for Close, which may already have run.
func (l *Lab) onClose(stop func()) {
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.stops = append(l.stops, stop)
	}
	l.mu.Unlock()
	if closed {
		stop()
	}
}

// Close ends every process and removes every namespace of the lab.
func (l *Lab) Close() error {
	l.mu.Lock()
	leaves := l.entered && !l.closed
	l.closed = true
	if l.err == nil {
		l.err = fmt.Errorf("netns: lab: %w", os.ErrClosed)
	}
	namespaces, stops := l.namespaces, l.stops
	l.namespaces, l.stops = nil, nil
	l.mu.Unlock()

	for _, stop := range slices.Backward(stops) { // end processes before their files go
		stop()
	}
	var errs []error
	for _, ns := range namespaces {
		errs = append(errs, ns.close())
	}
	err := errors.Join(errs...)
	if leaves && err == nil { // what could not be removed must be found by a sweep
		self.leave()
	}
	return err
}

// Link is the setup of one end of a cable. Zero values keep the kernel's defaults. Sizes are in
// bytes, as the kernel compares them: a super-packet is shorter than the limit, Ethernet header
// included.
type Link struct {
	MTU     int
	GSO     int // gso_max_size; a TCP socket routed over the link sends up to this
	GSOIPv4 int // gso_ipv4_max_size; the same as GSO unless given
	GSOSegs int // gso_max_segs
	GRO     int // gro_max_size
	GROIPv4 int // gro_ipv4_max_size; the same as GRO unless given
	MAC     string
}

// Veth makes a cable between device aName in a and bName in b, both ends up and
// set up as link says. SetLink changes one end.
func (l *Lab) Veth(a *Namespace, aName string, b *Namespace, bName string, link Link) {
	l.build("make veth", aName+" - "+bName, func() error {
		return a.links.LinkAdd(&netlink.Veth{
			// TxQLen -1 keeps the kernel's default; 0 would mean none.
			LinkAttrs:     netlink.LinkAttrs{Name: aName, TxQLen: -1},
			PeerName:      bName,
			PeerTxQLen:    -1,
			PeerNamespace: netlink.NsFd(int(b.handle)),
		})
	})
	a.SetLink(aName, link)
	if link.MAC != "" { // two ends cannot share one address
		link.MAC = ""
	}
	b.SetLink(bName, link)
}
