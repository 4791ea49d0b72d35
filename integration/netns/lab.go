package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	vishns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	// runDir is where iproute2 keeps the names of namespaces.
	runDir = "/run/netns"
	// namePrefix starts the name of every namespace made here, and of every temporary
	// directory: sluice-PID-LABORATORY-NAME, sluice-PID-WHAT-RANDOM.
	namePrefix = "sluice-"
)

// labs counts the laboratories of this process, to keep their names apart.
var labs atomic.Uint32

// Lab owns namespaces and what runs in them.
type Lab struct {
	prefix string // of the names of its namespaces

	mu         sync.Mutex
	err        error        // guarded by mu: the first error of a method that builds
	closed     bool         // guarded by mu
	namespaces []*Namespace // guarded by mu
	stops      []func()     // guarded by mu: end processes and captures
}

// New makes an empty laboratory. The name only helps a reader of /run/netns.
func New(name string) *Lab {
	sweep()
	return &Lab{prefix: fmt.Sprintf("%s%d-%s%d-", namePrefix, os.Getpid(), name, labs.Add(1))}
}

// TempDir makes a temporary directory that the caller removes, or the next New or
// TempDir of any process if the caller's is killed. The word says what it is for.
func TempDir(word string) (string, error) {
	sweep()
	return os.MkdirTemp("", fmt.Sprintf("%s%d-%s-*", namePrefix, os.Getpid(), word))
}

// sweep removes the namespaces and directories of makers that are dead: killed, or
// ended by a test's timeout. An error leaves them to the next sweep.
func sweep() {
	for _, name := range orphans(runDir) {
		_ = vishns.DeleteNamed(name)
	}
	for _, name := range orphans(os.TempDir()) {
		_ = os.RemoveAll(filepath.Join(os.TempDir(), name))
	}
}

// orphans are the names in a directory that were given by processes which are dead.
func orphans(dir string) (names []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), namePrefix)
		pid, err := strconv.Atoi(strings.SplitN(rest, "-", 2)[0])
		if ours && err == nil && unix.Kill(pid, 0) == unix.ESRCH {
			names = append(names, e.Name())
		}
	}
	return names
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

// onClose registers stop for Close, which may have happened already.
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

// Close ends every process and removes every namespace of the laboratory.
func (l *Lab) Close() error {
	l.mu.Lock()
	l.closed = true
	if l.err == nil {
		l.err = fmt.Errorf("netns: laboratory: %w", os.ErrClosed)
	}
	namespaces, stops := l.namespaces, l.stops
	l.namespaces, l.stops = nil, nil
	l.mu.Unlock()

	for _, stop := range slices.Backward(stops) { // a process ends before its file goes
		stop()
	}
	var errs []error
	for _, ns := range namespaces {
		errs = append(errs, ns.close())
	}
	return errors.Join(errs...)
}

// Link is how one end of a cable is set up. Zero values keep the kernel's
// defaults. Sizes are in bytes, as the kernel compares them: a super-packet is
// shorter than the limit, Ethernet header included.
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
	if link.MAC != "" { // one address cannot be both ends'
		link.MAC = ""
	}
	b.SetLink(bName, link)
}
