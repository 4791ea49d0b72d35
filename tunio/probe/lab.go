package probe

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sluice/tunio"
	"sluice/vnet"
)

const (
	// bigPayload is just too long for 64 KiB.
	bigPayload = 70000
	// marker is the least length of the small packets that follow each try: when the marker has
	// arrived and the packet has not, the packet is lost.
	marker = 200
	// markerWait is how long to wait for a marker before another is sent. Unless the machine is
	// busy, the kernel delivers it within the call that sends it.
	markerWait = 10 * time.Millisecond
	// patience bounds the whole wait for a marker.
	patience = 2 * time.Second
	// retries is how often a write is repeated for which the kernel had no memory.
	retries = 5
	// rcvbuf is room for a few of the greatest packets, with the kernel's overhead.
	rcvbuf = 8 << 20
)

// lab is the calling thread's network namespace, with raw sockets that see what passed the IP
// layer's receive side, and a netlink socket.
type lab struct {
	netlink *netlink.Handle
	v4, v6  raw
}

// raw receives a copy of each TCP and UDP packet of one family that is for an address
// of the namespace. Its descriptors are -1 where the kernel does not have the family.
type raw struct{ tcp, udp int }

func newLab() (_ *lab, err error) {
	l := &lab{v4: raw{-1, -1}, v6: raw{-1, -1}}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.netlink, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, err
	}
	if err = l.v4.open(unix.AF_INET); err != nil {
		return nil, fmt.Errorf("open raw socket: %w", err)
	}
	if err = l.v6.open(unix.AF_INET6); err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
		return nil, fmt.Errorf("open raw IPv6 socket: %w", err)
	}
	return l, nil
}

func (r *raw) open(family int) (err error) {
	if r.tcp, err = rawSocket(family, unix.IPPROTO_TCP); err == nil {
		r.udp, err = rawSocket(family, unix.IPPROTO_UDP)
	}
	return err
}

func rawSocket(family, protocol int) (_ int, err error) {
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return -1, err
	}
	tv := unix.NsecToTimeval(int64(markerWait))
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, rcvbuf),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv),
	)
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (l *lab) close() {
	if l.netlink != nil {
		l.netlink.Close()
	}
	for _, fd := range []int{l.v4.tcp, l.v4.udp, l.v6.tcp, l.v6.udp} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// way is a port's device, opened, and the netdevs around it, which are up. close
// removes them.
type way struct {
	q        *tunio.Queue
	receiver netlink.Link // what is written to q arrives here, and what is sent through it comes to q
	close    func()
}

// tap makes a TAP, which ends with its queue.
func (l *lab) tap() (_ *way, err error) {
	const name = "tap0"
	queues, err := tunio.OpenTap(tunio.TapConfig{Name: name, Queues: 1, Create: true})
	if err != nil {
		return nil, err
	}
	w := &way{q: queues[0], close: func() { queues[0].Close() }}
	defer w.closeUnless(&err)
	if w.receiver, err = l.netlink.LinkByName(name); err != nil {
		return nil, err
	}
	return w, l.netlink.LinkSetUp(w.receiver)
}

// packet makes a veth with a packet socket on one end. The other one receives.
func (l *lab) packet() (*way, error) {
	return l.veth(func(near netlink.Link) ([]*tunio.Queue, error) {
		return tunio.OpenPacket(near.Attrs().Name, 1)
	})
}

// macvtap makes a macvtap over one end of a veth. The other one receives.
func (l *lab) macvtap() (*way, error) {
	return l.veth(func(near netlink.Link) ([]*tunio.Queue, error) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.ParentIndex = "macvtap0", near.Attrs().Index
		m := &netlink.Macvtap{Macvlan: netlink.Macvlan{
			LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_PASSTHRU,
		}}
		if err := l.netlink.LinkAdd(m); err != nil { // it goes with the veth
			return nil, fmt.Errorf("make macvtap: %w", err)
		}
		if err := errors.Join(l.greatest(m), l.netlink.LinkSetUp(m)); err != nil {
			return nil, err
		}
		return tunio.OpenMacvtap(attrs.Name, 1)
	})
}

// veth makes a veth that takes the greatest super-packets, and opens a queue on its
// near end.
func (l *lab) veth(open func(near netlink.Link) ([]*tunio.Queue, error)) (_ *way, err error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "veth0"
	near := &netlink.Veth{LinkAttrs: attrs, PeerName: "veth1"}
	if err := l.netlink.LinkAdd(near); err != nil {
		return nil, fmt.Errorf("make veth: %w", err)
	}
	w := &way{}
	w.close = func() {
		if w.q != nil {
			w.q.Close()
		}
		l.netlink.LinkDel(near)
	}
	defer w.closeUnless(&err)
	if w.receiver, err = l.netlink.LinkByName(near.PeerName); err != nil {
		return nil, err
	}
	// The peer first: a netdev that comes up without a carrier drops what is sent until the
	// kernel's link watch has run.
	for _, end := range []netlink.Link{w.receiver, near} {
		if err := errors.Join(l.greatest(end), l.netlink.LinkSetUp(end)); err != nil {
			return nil, err
		}
	}
	queues, err := open(near)
	if err != nil {
		return nil, err
	}
	w.q = queues[0]
	return w, nil
}

// greatest raises the limits of what a netdev sends. A kernel before 6.3 ignores the attribute for
// IPv4.
func (l *lab) greatest(link netlink.Link) error {
	return errors.Join(
		l.netlink.LinkSetGSOMaxSize(link, vnet.MaxGSOMaxSize),
		l.netlink.LinkSetGSOIPv4MaxSize(link, vnet.MaxGSOMaxSize),
	)
}

func (w *way) closeUnless(err *error) {
	if *err != nil {
		w.close()
	}
}

// try fills in what happens to super-packets that are written to a port.
func (l *lab) try(k *Kind, w *way) error {
	k.HeaderLen = w.q.HeaderLen()
	t := trial{out: w.q.Transmitter(), dst: w.receiver.Attrs().HardwareAddr}
	if err := t.begin(l, w.receiver, false); err != nil {
		return err
	}
	max, err := t.maxWrite()
	if err != nil {
		return err
	}
	k.MaxWrite = max
	if k.Out.IPv4, k.IPv4, err = t.longest(shape{}, max); err != nil {
		return err
	}
	if err := t.begin(l, w.receiver, true); err != nil {
		return fmt.Errorf("IPv6: %w", err)
	}
	var plain, hbh bool
	k.Out.Plain, plain, err = t.longest(shape{v6: true, form: vnet.FormPlain}, max)
	if err == nil {
		k.Out.HBH, hbh, err = t.longest(shape{v6: true, form: vnet.FormHBH}, max)
	}
	// Plain comes first: from 7.0 on the kernel treats this hop-by-hop header like any other, and
	// copies it to every segment that it may cut later.
	switch {
	case err != nil:
		return fmt.Errorf("IPv6: %w", err)
	case plain:
		k.IPv6 = vnet.FormPlain
	case hbh:
		k.IPv6 = vnet.FormHBH
	}
	return nil
}

// trial is one way to send, and where it ends.
type trial struct {
	out *tunio.Transmitter
	dst net.HardwareAddr
	v6  bool

	tcp, udp sink // where packets arrive
	markers  int  // sent
}

// sink is where packets arrive.
type sink interface {
	// next returns the length, as measure gives it, of the next packet that has arrived, and its
	// GSO type if known. The error is unix.EAGAIN if there is none.
	next() (n int, gso *vnet.GSO, err error)
	measure(s *shape) int
}

// begin switches to IPv4 or IPv6: it gives the receiving netdev an address and waits until packets
// for it arrive.
func (t *trial) begin(l *lab, receiver netlink.Link, v6 bool) error {
	from, address, flags := &l.v4, receiver4, 0
	if v6 {
		from, address = &l.v6, receiver6
		flags = unix.IFA_F_NODAD // there is no neighbour that could have the address
	}
	if from.tcp < 0 {
		return unix.EAFNOSUPPORT
	}
	t.v6, t.tcp, t.udp = v6, rawSink(from.tcp), rawSink(from.udp)
	addr, err := netlink.ParseAddr(address.String())
	if err != nil {
		return err
	}
	addr.Flags = flags
	if err := l.netlink.AddrAdd(receiver, addr); err != nil {
		return fmt.Errorf("add address %s: %w", address, err)
	}
	_, err = t.arrived(shape{})
	return err
}

// rawSink is a raw socket.
type rawSink int

func (fd rawSink) next() (int, *vnet.GSO, error) {
	for {
		n, _, err := unix.Recvfrom(int(fd), nil, unix.MSG_TRUNC) // the length, and no data
		if !errors.Is(err, unix.EINTR) {
			return n, nil, err
		}
	}
}

func (rawSink) measure(s *shape) int { return s.received() }

// send writes one frame. The error is the kernel's.
func (t *trial) send(s shape) error {
	_, _, err := t.out.WriteBatch([]vnet.Frame{s.build(t.dst)})
	if err != nil {
		return fmt.Errorf("write a frame of %d bytes: %w", s.n, err)
	}
	return nil
}

// maxWrite is the length of the longest frame that is not refused as too long, up to vnet.MaxFrame.
// A lack of memory does not count: it may pass.
func (t *trial) maxWrite() (int, error) {
	taken, refused := legacyMaxFrame, vnet.MaxFrame+1
	for try := vnet.MaxFrame; refused-taken > 1; try = (taken + refused) / 2 {
		switch err := t.send(shape{n: try}); {
		case err == nil, noMemory(err):
			taken = try
		case errors.Is(err, unix.EMSGSIZE):
			refused = try
		default:
			return 0, err
		}
	}
	_, err := t.arrived(shape{})
	return taken, err
}

func noMemory(err error) bool { return errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM) }

// sizes are lengths to try between one just above 64 KiB and the longest. Those from 516097 to
// 520192 are left out, because the kernel never has memory for them (18 page fragments, measured on
// 6.18).
var sizes = []int{131072, 262144, 400000, 500000}

// longest tries ever longer packets of this shape, up to max bytes, until one does not reach the
// receiver whole. n is the length of the longest that did; all says that every one did.
func (t *trial) longest(s shape, max int) (n int, all bool, err error) {
	small := s
	small.form, small.n = vnet.FormNone, legacyMaxFrame
	if ok, err := t.passes(small); !ok || err != nil {
		return 0, false, err
	}
	n = legacyMaxFrame
	least := s.headers() + bigPayload
	if max < least {
		return n, false, nil
	}
	for _, s.n = range slices.Concat([]int{least}, sizes, []int{max}) {
		if s.n > max {
			continue
		}
		ok, err := t.passes(s)
		switch {
		case noMemory(err) && s.n > least:
			continue // memory is fragmented: this says nothing about the shape
		case errors.Is(err, unix.ENOMEM):
			return n, false, nil // the answer of a packet socket if the kernel cannot cut it
		case !ok || err != nil:
			return n, false, err
		}
		n = s.n
	}
	return n, true, nil
}

// passes reports whether a packet of this shape reaches the receiver whole.
func (t *trial) passes(s shape) (bool, error) {
	err := t.send(s)
	for i := 0; noMemory(err) && i < retries; i++ {
		err = t.send(s)
	}
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EMSGSIZE):
		return false, nil
	case err != nil:
		return false, err
	}
	return t.arrived(s)
}

// arrived reports whether a packet of this shape is among those that were sent so far and arrived.
// It sends a marker after them, and another one if that gets lost: a new IPv6 address receives
// nothing until a kernel worker has run (addrconf_dad_work in net/ipv6/addrconf.c).
func (t *trial) arrived(s shape) (found bool, err error) {
	want := t.tcp.measure(&s)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		t.markers++ // each has a different length
		m := shape{v6: t.v6, n: marker + t.markers}
		if err := t.send(m); err != nil {
			return false, err
		}
		for {
			n, gso, err := t.tcp.next()
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			switch {
			case err != nil:
				return false, err
			case n == t.tcp.measure(&m):
				if s.udp && t.udp != t.tcp {
					return t.holds(t.udp, want)
				}
				return found, nil
			case n == want && (gso == nil || *gso == s.gso()):
				found = true
			}
		}
	}
	return false, errors.New("no small packet arrives either")
}

// holds empties a sink and reports whether a packet of this length was in it.
func (t *trial) holds(from sink, length int) (found bool, err error) {
	for {
		n, _, err := from.next()
		if errors.Is(err, unix.EAGAIN) {
			return found, nil
		}
		if err != nil {
			return false, err
		}
		found = found || n == length
	}
}
