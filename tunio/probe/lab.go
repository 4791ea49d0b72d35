package probe

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sluice/tunio"
	"sluice/vnet"
)

const (
	// bigPayload is one that just does not fit 64 KiB any more.
	bigPayload = 70000
	// marker is the least length of the small packets that follow each try: when one
	// has arrived and the other has not, the other is lost.
	marker = 200
	// markerWait is the wait for a marker, which the kernel delivers within the call
	// that sends it, but for a busy machine, before another is sent.
	markerWait = 10 * time.Millisecond
	// patience bounds the wait for any marker at all.
	patience = 2 * time.Second
	// retries of a write for which the kernel had no memory.
	retries = 5
	// rcvbuf is room for a few of the greatest packets, with the kernel's overhead.
	rcvbuf = 8 << 20
)

// lab is the calling thread's network namespace: raw sockets that see what passed
// the IP layer's receive side, and a netlink socket.
type lab struct {
	netlink *netlink.Handle
	raw4    int
	raw6    int // -1 where the kernel has no IPv6
}

func newLab() (_ *lab, err error) {
	l := &lab{raw4: -1, raw6: -1}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.netlink, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, err
	}
	if l.raw4, err = rawSocket(unix.AF_INET); err != nil {
		return nil, fmt.Errorf("open raw socket: %w", err)
	}
	l.raw6, err = rawSocket(unix.AF_INET6)
	if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
		return nil, fmt.Errorf("open raw IPv6 socket: %w", err)
	}
	return l, nil
}

// rawSocket receives a copy of each TCP packet that is for an address of the
// namespace.
func rawSocket(family int) (_ int, err error) {
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
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
	for _, fd := range []int{l.raw4, l.raw6} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// tryTap tries what is written to a TAP, which ends with its queue.
func (l *lab) tryTap(a *Ability) error {
	const name = "tap0"
	queues, err := tunio.OpenTap(tunio.TapConfig{Name: name, Queues: 1, Create: true})
	if err != nil {
		return err
	}
	defer queues[0].Close()
	tap, err := l.netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return l.try(a, queues[0], tap)
}

// tryPacket tries what a packet socket sends through one end of a veth, and what
// reaches the other.
func (l *lab) tryPacket(a *Ability) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "veth0"
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: "veth1"}
	if err := l.netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("make veth: %w", err)
	}
	defer l.netlink.LinkDel(pair)
	// A kernel before 6.3 ignores the attribute for IPv4.
	err := errors.Join(
		l.netlink.LinkSetGSOMaxSize(pair, vnet.MaxGSOMaxSize),
		l.netlink.LinkSetGSOIPv4MaxSize(pair, vnet.MaxGSOMaxSize),
	)
	if err != nil {
		return err
	}
	peer, err := l.netlink.LinkByName(pair.PeerName)
	if err != nil {
		return err
	}
	queues, err := tunio.OpenPacket(attrs.Name, 1)
	if err != nil {
		return err
	}
	defer queues[0].Close()
	// The peer first: a netdev that comes up while it has no carrier drops what is
	// sent until the kernel's link watch has been there.
	return l.try(a, queues[0], peer, pair)
}

// try gives the receiving netdev an address, sets it and then the others up, and
// replaces in a what writes to q show.
func (l *lab) try(a *Ability, q *tunio.Queue, receiver netlink.Link, others ...netlink.Link) error {
	for _, link := range append([]netlink.Link{receiver}, others...) {
		if err := l.netlink.LinkSetUp(link); err != nil {
			return err
		}
	}
	t := trial{out: q.Transmitter(), dst: receiver.Attrs().HardwareAddr}
	if err := t.begin(l, receiver, false); err != nil {
		return err
	}
	max, err := t.maxWrite()
	if err != nil {
		return err
	}
	ok, err := t.carries(shape{}, max)
	if err != nil {
		return err
	}
	a.MaxWrite, a.IPv4 = max, ok
	if err := t.begin(l, receiver, true); err != nil {
		return fmt.Errorf("IPv6: %w", err)
	}
	form, err := t.form(max)
	if err != nil {
		return fmt.Errorf("IPv6: %w", err)
	}
	a.IPv6 = form
	return nil
}

// trial is one way to send, and where it ends.
type trial struct {
	out *tunio.Transmitter
	dst net.HardwareAddr
	raw int  // the socket that receives,
	v6  bool // and its family

	markers int // sent
}

// begin turns to IPv4 or IPv6: it gives the receiving netdev an address and waits
// until packets for it arrive.
func (t *trial) begin(l *lab, receiver netlink.Link, v6 bool) error {
	t.raw, t.v6 = l.raw4, v6
	address, flags := receiver4, 0
	if v6 {
		t.raw = l.raw6
		address, flags = receiver6, unix.IFA_F_NODAD // there is no neighbour to ask whether it is taken
	}
	if t.raw < 0 {
		return unix.EAFNOSUPPORT
	}
	addr, err := netlink.ParseAddr(address.String())
	if err != nil {
		return err
	}
	addr.Flags = flags
	if err := l.netlink.AddrAdd(receiver, addr); err != nil {
		return fmt.Errorf("add address %s: %w", address, err)
	}
	_, err = t.arrived(0)
	return err
}

// send writes one frame. The error is the kernel's.
func (t *trial) send(s shape) error {
	_, _, err := t.out.WriteBatch([]vnet.Frame{s.build(t.dst)})
	if err != nil {
		return fmt.Errorf("write a frame of %d bytes: %w", s.n, err)
	}
	return nil
}

// maxWrite is the length of the longest frame that is not refused as too long,
// up to vnet.MaxFrame. No memory is another matter: it may be there next time.
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
	_, err := t.arrived(0)
	return taken, err
}

func noMemory(err error) bool { return errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM) }

// form is the form in which IPv6 packets reach the receiver. Plain comes first: from
// 7.0 on the kernel takes the hop-by-hop header for one like any other, and copies
// it to every segment that it may have to cut later.
func (t *trial) form(max int) (vnet.Form, error) {
	for _, form := range []vnet.Form{vnet.FormPlain, vnet.FormHBH} {
		if ok, err := t.carries(shape{v6: true, form: form}, max); ok || err != nil {
			return form, err
		}
	}
	return vnet.FormNone, nil
}

// carries reports whether packets of this shape reach the receiver whole, one just
// above 64 KiB and one of max bytes.
func (t *trial) carries(s shape, max int) (bool, error) {
	least := s.headers() + bigPayload
	if max < least {
		return false, nil
	}
	for _, s.n = range []int{least, max} {
		err := t.send(s)
		for i := 0; noMemory(err) && i < retries; i++ {
			err = t.send(s)
		}
		switch {
		case noMemory(err) && s.n == max:
			continue // fragmented memory says nothing about the shape
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOMEM):
			return false, nil // a packet socket says ENOMEM to what the kernel cannot cut
		case err != nil:
			return false, err
		}
		if ok, err := t.arrived(s.received()); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// arrived reports whether a packet of this length, as the raw socket counts, is
// among those that were sent until now. It sends a marker behind them, and another
// one if that gets lost: a new IPv6 address receives nothing until a kernel worker
// has been there (addrconf_dad_work in net/ipv6/addrconf.c).
func (t *trial) arrived(length int) (found bool, err error) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		t.markers++ // each has a length of its own
		s := shape{v6: t.v6, n: marker + t.markers}
		if err := t.send(s); err != nil {
			return false, err
		}
		for {
			n, _, err := unix.Recvfrom(t.raw, nil, unix.MSG_TRUNC) // the length, and no data
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			switch {
			case errors.Is(err, unix.EINTR):
			case err != nil:
				return false, err
			case n == s.received():
				return found, nil
			case n == length:
				found = true
			}
		}
	}
	return false, errors.New("no small packet arrives either")
}
