package link

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	// ownPath is the process's own namespace. /proc/1/ns/net is not readable without
	// CAP_SYS_PTRACE, and a thread may be in another one during a Do.
	ownPath = "/proc/self/ns/net"
	// namedDir is where `ip netns add` puts names (iproute2's NETNS_RUN_DIR).
	namedDir = "/run/netns"
	// netlinkTimeout bounds a netlink request. The kernel answers within the system call, except
	// that it may wait for the rtnl lock.
	netlinkTimeout = 10 * time.Second
)

// Namespace is an open network namespace.
type Namespace struct {
	name string // as given; empty for the process's own
	path string
	fd   netns.NsHandle

	route   *netlink.Handle
	ethtool *ethtool
}

// OpenNamespace opens the process's own namespace for an empty name, the namespace at a path for a
// name with a slash, and otherwise the one that `ip netns` knows by this name. The error is
// os.ErrNotExist if there is none.
func OpenNamespace(name string) (_ *Namespace, err error) {
	n := &Namespace{name: name, fd: netns.None()}
	switch {
	case name == "":
		n.path = ownPath
	case strings.Contains(name, "/"):
		n.path = name
	default:
		n.path = filepath.Join(namedDir, name)
	}
	defer func() {
		if err != nil {
			n.Close()
			err = fmt.Errorf("open network namespace %s: %w", n, err)
		}
	}()
	fd, err := unix.Open(n.path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, os.ErrNotExist) && name != "" && n.path != name {
		return nil, fmt.Errorf("%w; `ip netns add %s` makes it", err, name)
	}
	if err != nil {
		return nil, err
	}
	n.fd = netns.NsHandle(fd)
	// A plain file is what remains of an `ip netns` name whose mount got lost.
	if kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE); err != nil || kind != unix.CLONE_NEWNET {
		return nil, fmt.Errorf("%s is not a network namespace: %w", n.path, unix.EINVAL)
	}
	err = n.Do(func() (err error) {
		if n.route, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return err
		}
		if err := n.route.SetSocketTimeout(netlinkTimeout); err != nil {
			return err
		}
		n.ethtool, err = newEthtool()
		return err
	})
	return n, err
}

// String is the namespace's name for messages.
func (n *Namespace) String() string {
	if n.name == "" {
		return "of the process"
	}
	return n.name
}

// Do runs fn on a locked OS thread inside the namespace. A thread that cannot be moved back is not
// used again. fn must not start goroutines that rely on the namespace. It needs CAP_SYS_ADMIN,
// except in the process's own namespace.
func (n *Namespace) Do(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		err := errors.New("the function that ran inside did not return")
		defer func() { done <- err }() // also where fn ends in runtime.Goexit
		err = n.do(fn)
	}()
	return <-done
}

// do is Do on a goroutine that may die with its thread.
func (n *Namespace) do(fn func() error) error {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	if home.Equal(n.fd) {
		defer runtime.UnlockOSThread()
		return fn()
	}
	if err := netns.Set(n.fd); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %s: %w", n, hint(err, "CAP_SYS_ADMIN"))
	}
	defer func() {
		if netns.Set(home) == nil { // else the thread ends with this goroutine
			runtime.UnlockOSThread()
		}
	}()
	return fn()
}

// Alive reports whether the name still refers to this namespace. A namespace that was deleted, and
// perhaps made again, lives on while it is held open: only the name shows that it is gone.
func (n *Namespace) Alive() bool {
	if n.name == "" {
		return true
	}
	var named, held unix.Stat_t
	if unix.Stat(n.path, &named) != nil || unix.Fstat(int(n.fd), &held) != nil {
		return false
	}
	return named.Dev == held.Dev && named.Ino == held.Ino
}

// Same reports whether both are one namespace.
func (n *Namespace) Same(o *Namespace) bool { return n.fd.Equal(o.fd) }

// Is reports whether the namespace file ns stands for this namespace.
func (n *Namespace) Is(ns *os.File) bool { return n.fd.Equal(netns.NsHandle(ns.Fd())) }

// Close releases the namespace. Its Watchers are closed by their owners.
func (n *Namespace) Close() error {
	if n.route != nil {
		n.route.Close()
	}
	if n.ethtool != nil {
		n.ethtool.close()
	}
	if !n.fd.IsOpen() {
		return nil
	}
	return n.fd.Close()
}

// fail adds to err what was tried, on which netdev and where. It is nil if err is nil.
func (n *Namespace) fail(op, netdev string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.ENODEV) { // deleted after it was looked up
		err = noNetdev{}
	}
	where := ""
	if n.name != "" {
		where = " in network namespace " + n.name
	}
	return fmt.Errorf("%s %s%s: %w", op, netdev, where, hint(err, "CAP_NET_ADMIN"))
}

// noNetdev is the cause of an error about a netdev that does not exist.
type noNetdev struct{}

func (noNetdev) Error() string        { return "no such netdev" }
func (noNetdev) Is(target error) bool { return target == os.ErrNotExist }

// hint names the capability that was missing.
func hint(err error, capability string) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w (needs %s)", err, capability)
	}
	return err
}

// socket opens a netlink socket in the calling thread's namespace.
func socket(protocol int) (*nl.NetlinkSocket, error) {
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), protocol)
	if err != nil {
		return nil, err
	}
	tv := unix.NsecToTimeval(int64(netlinkTimeout))
	if err := errors.Join(s.SetSendTimeout(&tv), s.SetReceiveTimeout(&tv)); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}
