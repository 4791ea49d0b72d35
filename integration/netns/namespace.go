package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	vishns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Namespace is one network namespace of a lab.
type Namespace struct {
	Name string // under /run/netns

	lab    *Lab
	handle vishns.NsHandle
	links  *netlink.Handle // holds the namespace alive, so it is closed before the name goes

	mu   sync.Mutex
	jobs chan func() // guarded by mu: work for its thread; nil once closed
}

// Namespace makes a namespace with its loopback up. The name is made unique.
func (l *Lab) Namespace(name string) *Namespace {
	ns := &Namespace{Name: l.prefix + name, lab: l, handle: vishns.None()}
	l.build("make namespace", ns.Name, func() error {
		if err := ns.open(); err != nil {
			return errors.Join(err, ns.close())
		}
		l.mu.Lock()
		closed := l.closed
		if !closed {
			l.namespaces = append(l.namespaces, ns)
		}
		l.mu.Unlock()
		if closed { // Close ran in between and does not know this one
			return errors.Join(os.ErrClosed, ns.close())
		}
		return nil
	})
	ns.SetLink("lo", Link{})
	return ns
}

// open makes the namespace and the thread that lives in it.
func (ns *Namespace) open() error {
	if err := shareRunDir(); err != nil {
		return err
	}
	jobs, made := make(chan func()), make(chan error)
	spawn(func() { ns.live(jobs, made) })
	if err := <-made; err != nil {
		return err
	}
	ns.jobs = jobs
	return ns.Do(func() (err error) {
		ns.links, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
}

// live makes the namespace on its own thread, and then runs jobs there.
func (ns *Namespace) live(jobs <-chan func(), made chan<- error) {
	handle, err := vishns.NewNamed(ns.Name)
	ns.handle = handle
	made <- err
	if err != nil {
		return
	}
	for job := range jobs {
		job()
	}
}

// close ends the namespace's thread and removes its name; the kernel removes its
// devices.
func (ns *Namespace) close() error {
	ns.mu.Lock()
	jobs := ns.jobs
	ns.jobs = nil
	ns.mu.Unlock()
	if jobs != nil {
		close(jobs)
	}
	if ns.links != nil {
		ns.links.Close()
	}
	if ns.handle.IsOpen() {
		ns.handle.Close()
	}
	return removeName(ns.Name)
}

// Do runs f on the namespace's thread and returns its error. What f opens (a socket,
// /proc/thread-self/net) belongs to the namespace and may be used elsewhere afterwards. f must not
// block for long: the namespace's other work waits for it. It must return: a Goexit (t.Fatal) ends
// the thread, and then Do always fails.
func (ns *Namespace) Do(f func() error) error {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if ns.jobs == nil {
		return fmt.Errorf("netns: %s: %w", ns.Name, os.ErrClosed)
	}
	err := fmt.Errorf("netns: %s: its thread ended in Do: %w", ns.Name, os.ErrClosed)
	returned, done := false, make(chan struct{})
	ns.jobs <- func() {
		defer close(done)
		err = f()
		returned = true
	}
	<-done
	if !returned {
		ns.jobs = nil // the thread no longer receives
	}
	return err
}

// SetLink applies link to a device and sets it up.
func (ns *Namespace) SetLink(device string, link Link) {
	ns.lab.build("set up", ns.Name+" "+device, func() error {
		dev, err := ns.links.LinkByName(device)
		if err != nil {
			return err
		}
		if link.MAC != "" {
			mac, err := net.ParseMAC(link.MAC)
			if err != nil {
				return err
			}
			if err := ns.links.LinkSetHardwareAddr(dev, mac); err != nil {
				return err
			}
		}
		if link.GSOIPv4 == 0 {
			link.GSOIPv4 = link.GSO
		}
		if link.GROIPv4 == 0 {
			link.GROIPv4 = link.GRO
		}
		// gso_max_size before its IPv4 companion: setting it to 65536 or less sets
		// both (netif_set_gso_max_size). gro_max_size does the same.
		for _, s := range []struct {
			name  string
			value int
			set   func(netlink.Link, int) error
		}{
			{"mtu", link.MTU, ns.links.LinkSetMTU},
			{"gso_max_segs", link.GSOSegs, ns.links.LinkSetGSOMaxSegs},
			{"gso_max_size", link.GSO, ns.links.LinkSetGSOMaxSize},
			{"gso_ipv4_max_size", link.GSOIPv4, ns.links.LinkSetGSOIPv4MaxSize},
			{"gro_max_size", link.GRO, ns.links.LinkSetGROMaxSize},
			{"gro_ipv4_max_size", link.GROIPv4, ns.links.LinkSetGROIPv4MaxSize},
		} {
			if s.value == 0 {
				continue
			}
			if err := s.set(dev, s.value); err != nil {
				return fmt.Errorf("%s %d: %w", s.name, s.value, err)
			}
		}
		return ns.links.LinkSetUp(dev)
	})
}

// Link returns what the kernel says about a device.
func (ns *Namespace) Link(device string) (*netlink.LinkAttrs, error) {
	if err := ns.lab.Err(); err != nil {
		return nil, err
	}
	dev, err := ns.links.LinkByName(device)
	if err != nil {
		return nil, fmt.Errorf("netns: %s %s: %w", ns.Name, device, err)
	}
	return dev.Attrs(), nil
}

// DeleteLink removes a device.
func (ns *Namespace) DeleteLink(device string) {
	ns.lab.build("delete", ns.Name+" "+device, func() error {
		dev, err := ns.links.LinkByName(device)
		if err != nil {
			return err
		}
		return ns.links.LinkDel(dev)
	})
}

// Address gives a device addresses, as "10.0.0.1/24". IPv6 addresses are usable immediately,
// without duplicate address detection.
func (ns *Namespace) Address(device string, addresses ...string) {
	for _, address := range addresses {
		ns.lab.build("add address", ns.Name+" "+device+" "+address, func() error {
			dev, err := ns.links.LinkByName(device)
			if err != nil {
				return err
			}
			addr, err := netlink.ParseAddr(address)
			if err != nil {
				return err
			}
			if addr.IP.To4() == nil {
				addr.Flags |= unix.IFA_F_NODAD
			}
			return ns.links.AddrAdd(dev, addr)
		})
	}
}

// Bridge makes a Linux bridge over ports. Bridge netfilter is switched off: it
// is on by default where it is built in, costs much, and drops IPv6 super-packets
// without a jumbo option (measured on 6.18).
func (ns *Namespace) Bridge(name string, ports ...string) {
	for _, table := range []string{"iptables", "ip6tables", "arptables"} {
		ns.lab.build("switch off", "bridge netfilter", func() error {
			err := ns.writeSysctl("net.bridge.bridge-nf-call-"+table, "0")
			if errors.Is(err, os.ErrNotExist) { // no br_netfilter, nothing to switch off
				return nil
			}
			return err
		})
	}
	ns.lab.build("make bridge", ns.Name+" "+name, func() error {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name, TxQLen: -1}}
		if err := ns.links.LinkAdd(bridge); err != nil {
			return err
		}
		for _, port := range ports {
			dev, err := ns.links.LinkByName(port)
			if err != nil {
				return err
			}
			if err := ns.links.LinkSetMaster(dev, bridge); err != nil {
				return fmt.Errorf("add %s: %w", port, err)
			}
		}
		return ns.links.LinkSetUp(bridge)
	})
}

// Silent switches IPv6 off, so that the namespace's own stack sends nothing by itself. Use it for
// the middle ends of cables, and for captures.
func (ns *Namespace) Silent() {
	ns.Sysctl("net.ipv6.conf.all.disable_ipv6", "1")
	ns.Sysctl("net.ipv6.conf.default.disable_ipv6", "1")
}

// Eager makes the namespace's TCP send the greatest super-packets from the start. On a slow machine
// they would stay small (tcp_tso_autosize in net/ipv4/tcp_output.c).
func (ns *Namespace) Eager() {
	ns.Sysctl("net.ipv4.tcp_tso_rtt_log", "20") // a round trip of up to a second counts as short
	ns.Sysctl("net.ipv4.tcp_rmem", "4096 4194304 33554432")
	ns.Sysctl("net.ipv4.tcp_wmem", "4096 4194304 33554432")
}

// Sysctl sets a kernel parameter of the namespace, as "net.ipv4.tcp_ecn".
func (ns *Namespace) Sysctl(name, value string) {
	ns.lab.build("set", ns.Name+" "+name, func() error { return ns.writeSysctl(name, value) })
}

func (ns *Namespace) writeSysctl(name, value string) error {
	file := path.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
	return ns.Do(func() error { return os.WriteFile(file, []byte(value), 0) })
}

// Offloads switches a device's offloads on or off, by the kernel's feature names
// ("tx-tcp-segmentation"; TCPSegmentation and its neighbours are groups of them).
func (ns *Namespace) Offloads(device string, on bool, features ...string) {
	ns.lab.build("set offloads of", ns.Name+" "+device, func() error {
		state := "off"
		if on {
			state = "on"
		}
		args := []string{"-K", device}
		for _, f := range features {
			args = append(args, f, state)
		}
		_, err := ns.Run(context.Background(), "ethtool", args...)
		return err
	})
}

// Groups of features for Offloads, by the kernel's names
// (net/ethtool/common.c: netdev_features_strings).
var (
	// TCPSegmentation is what `ethtool -K DEV tso` switches.
	TCPSegmentation = []string{
		"tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-tcp-ecn-segmentation",
		"tx-tcp-mangleid-segmentation",
	}
	// UDPSegmentation is USO.
	UDPSegmentation = []string{"tx-udp-segmentation"}
	// TransmitChecksum is what a veth's `ethtool -K DEV tx` switches.
	TransmitChecksum = []string{"tx-checksum-ip-generic", "tx-checksum-sctp"}
)
