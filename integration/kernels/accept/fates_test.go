package accept

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
	"sluice/tunio"
	"sluice/tunio/release"
	"sluice/vnet"
	"sluice/vnet/vnettest"
)

const (
	// gsoSize is the MSS of a sender with an MTU of 1500.
	gsoSize = 1400
	// receiverMAC and its addresses are those that package vnettest sends to.
	receiverMAC = "02:00:5e:10:00:02"
	receiver4   = "192.0.2.2/24"
	receiver6   = "2001:db8::2/64"
	// rcvbuf is room for a few of the greatest packets, with the kernel's overhead.
	rcvbuf = 8 << 20
	// memoryWait bounds how long a write waits for memory: a frame of 512 KiB needs
	// pages of 32 KiB.
	memoryWait = 5 * time.Second
	// markerWait is how long to wait for a marker before another one is sent.
	markerWait = 100 * time.Millisecond
	// patience bounds every wait.
	patience = 30 * time.Second
	// wide is the greatest of all limits.
	wide = vnet.MaxGSOMaxSize
)

// way is one way to a receiving netdev.
type way struct {
	t          *testing.T
	out        *tunio.Transmitter
	raw4, raw6 int // receive what got there
	markers    int // sent
}

// open makes devices and queue of a way.
func open(t *testing.T, name string) *way {
	t.Helper()
	lab := netnstest.New(t)
	near, far := lab.Namespace("near"), lab.Namespace("far")
	near.Silent()
	receiver := "eth0"
	where := near // the queue is opened in
	var dial func() ([]*tunio.Queue, error)
	switch name {
	case Tap:
		where = far
		dial = func() ([]*tunio.Queue, error) {
			return tunio.OpenTap(tunio.TapConfig{Name: receiver, Queues: 1, Create: true})
		}
	case Packet, Narrow:
		size := wide
		if name == Narrow {
			size = vnet.LegacyGSOMaxSize
		}
		lab.Veth(far, receiver, near, "veth0", netns.Link{GSO: size, MAC: receiverMAC})
		dial = func() ([]*tunio.Queue, error) { return tunio.OpenPacket("veth0", 1) }
	case Macvtap:
		lab.Veth(far, receiver, near, "veth0", netns.Link{GSO: wide, MAC: receiverMAC})
		netnstest.Need(t, lab.Err())
		_, err := near.Run(t.Context(), "ip", "link", "add", "link", "veth0", "name", "macvtap0",
			"type", "macvtap", "mode", "passthru")
		netnstest.Need(t, err)
		near.SetLink("macvtap0", netns.Link{GSO: wide})
		dial = func() ([]*tunio.Queue, error) { return tunio.OpenMacvtap("macvtap0", 1) }
	}
	netnstest.Need(t, lab.Err())
	w := &way{t: t}
	netnstest.Need(t, where.Do(func() error {
		queues, err := dial()
		if err != nil {
			return err
		}
		t.Cleanup(func() { queues[0].Close() })
		w.out = queues[0].Transmitter()
		return nil
	}))
	if name == Tap {
		far.SetLink(receiver, netns.Link{MAC: receiverMAC, GRO: wide})
	}
	far.Address(receiver, receiver4, receiver6)
	netnstest.Need(t, lab.Err())
	w.raw4, w.raw6 = rawSocket(t, far, unix.AF_INET), rawSocket(t, far, unix.AF_INET6)
	return w
}

// rawSocket receives a copy of each TCP packet that is for an address of the
// namespace.
func rawSocket(t *testing.T, ns *netns.Namespace, family int) int {
	t.Helper()
	fd := -1
	netnstest.Need(t, ns.Do(func() (err error) {
		fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		return err
	}))
	t.Cleanup(func() { unix.Close(fd) })
	tv := unix.NsecToTimeval(int64(markerWait))
	netnstest.Need(t, errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, rcvbuf),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv),
	))
	return fd
}

// send writes one frame, and waits for memory.
func (w *way) send(f vnet.Frame) error {
	for end := time.Now().Add(memoryWait); ; time.Sleep(10 * time.Millisecond) {
		_, refusal, err := w.out.WriteBatch([]vnet.Frame{f})
		if refusal != vnet.NoMemory || time.Now().After(end) {
			return err
		}
	}
}

// spec is a frame of the given length.
func spec(form string, length int) vnettest.Spec {
	s := vnettest.Spec{V6: form != IPv4, TCPFlags: vnettest.ACK, GSOSize: gsoSize}
	headers := vnet.EthLen + vnet.IPv4Len + vnet.TCPLen
	if s.V6 {
		headers += vnet.IPv6Len - vnet.IPv4Len
	}
	if s.Form = vnet.FormPlain; form == HBH {
		s.Form = vnet.FormHBH
		if length-headers+vnet.TCPLen > 0xffff {
			headers += vnet.JumboHBHLen
		}
	}
	s.Payload = vnettest.Pattern(length - headers)
	return s
}

// try sends one frame and says what happened to it.
func (w *way) try(form string, length int) string {
	w.t.Helper()
	s := spec(form, length)
	f := vnettest.Super(s)
	if f.Len() != length {
		w.t.Fatalf("a frame of %d bytes was built, not %d", f.Len(), length)
	}
	w.settle(s.V6, nil)
	if err := w.send(f); errors.Is(err, unix.EMSGSIZE) {
		return TooLong
	} else if err != nil {
		return err.Error()
	}
	got, packets := make([]byte, len(s.Payload)), 0
	n := 0
	w.settle(s.V6, func(seq int, payload []byte) {
		packets++
		n += len(payload)
		if seq <= len(got) {
			copy(got[seq:], payload)
		}
	})
	switch {
	case n == 0:
		return Lost
	case n != len(got) || !bytes.Equal(got, s.Payload):
		return fmt.Sprintf("%d of %d bytes arrive, or are not those that were sent", n, len(got))
	case packets == 1:
		return Whole
	}
	return Cut
}

// markerSeq is the sequence number of the first marker, above those of all frames.
const markerSeq = 1 << 30

// settle waits until everything that was sent has arrived or is lost, and calls each for what has
// arrived. It sends a marker, a small packet, and another one if that gets lost: a new IPv6 address
// receives nothing at first.
func (w *way) settle(v6 bool, each func(seq int, payload []byte)) {
	w.t.Helper()
	raw, skip := w.raw4, vnet.IPv4Len
	if v6 {
		raw, skip = w.raw6, 0
	}
	b := make([]byte, 1<<20)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		w.markers++
		marker := vnettest.Super(vnettest.Spec{
			V6: v6, TCPFlags: vnettest.ACK, Payload: vnettest.Pattern(64), Csum: vnettest.Full,
			Seq: uint32(markerSeq + w.markers),
		})
		if err := w.send(marker); err != nil {
			w.t.Fatalf("marker: %v", err)
		}
		for {
			n, _, err := unix.Recvfrom(raw, b, 0)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			if err != nil {
				w.t.Fatalf("receive: %v", err)
			}
			tcp := b[skip:n]
			seq := int(binary.BigEndian.Uint32(tcp[4:]))
			if seq == markerSeq+w.markers {
				return
			}
			if seq < markerSeq && each != nil {
				each(seq, tcp[vnet.TCPLen:])
			}
		}
	}
	w.t.Fatal("no small packet arrives either")
}

// fates tries all frames on all ways. What one CPU sends through a veth arrives in order
// (enqueue_to_backlog in net/core/dev.c has a queue per CPU), so no marker overtakes the frames
// before it.
func fates(t *testing.T) (all []Fate) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var may, one unix.CPUSet
	netnstest.Need(t, unix.SchedGetaffinity(0, &may))
	cpu := 0
	for !may.IsSet(cpu) {
		cpu++
	}
	one.Set(cpu)
	netnstest.Need(t, unix.SchedSetaffinity(0, &one))
	defer func() { netnstest.Need(t, unix.SchedSetaffinity(0, &may)) }()
	for _, name := range Ways {
		w := open(t, name)
		for _, form := range Forms {
			for _, length := range append([]int{Legacy}, Big...) {
				all = append(all, Fate{name, form, length, w.try(form, length)})
			}
		}
	}
	return all
}

// expected is what happens to all frames above 64 KiB, as measured on 6.1, 6.12, 6.18 and 7.3. The
// releases in which it changed come from the kernel's history (see package probe). One fact does
// not follow from the release: takesPlain says whether the receive side takes IPv6 without the
// jumbo option. From 7.0 on it must. Of 6.12, 6.12.117 does, unlike earlier ones and 6.18.44.
func expected(kernel, way, form string, takesPlain bool) string {
	since := func(major, minor int) bool { return release.Since(kernel, major, minor) }
	switch {
	case !since(6, 6): // alloc_skb_with_frags takes 17 pages
		return TooLong
	case way == Narrow && since(7, 0) && form == HBH:
		return Lost // an ordinary option to the kernel, which each segment keeps
	case way == Narrow:
		return Cut
	case form == IPv4, since(7, 0), takesPlain:
		return Whole
	case form == HBH && way == Tap:
		return Whole
	}
	// In what is sent, ipv6_gso_segment has removed the option and left the plain form.
	return Lost
}
