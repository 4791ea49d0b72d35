package link

import (
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/tunio/release"
)

const arp = 0x0806

// arpRequest asks who has 192.0.2.1, from the address 192.0.2.from.
func arpRequest(from byte) []byte {
	b := make([]byte, 60)
	copy(b, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, from, 8, 6})
	copy(b[14:], []byte{0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, from, 192, 0, 2, from})
	copy(b[38:], []byte{192, 0, 2, 1})
	return b
}

// nextARP reads until an ARP packet comes.
func nextARP(t *testing.T, fd int) (op uint16, sender, target byte) {
	t.Helper()
	b := make([]byte, 2048)
	for {
		n, _, err := unix.Recvfrom(fd, b, 0)
		must(t, err)
		if n >= 42 && binary.BigEndian.Uint16(b[12:]) == arp {
			return binary.BigEndian.Uint16(b[20:]), b[31], b[41]
		}
	}
}

// dropped is a netdev under test: in receives on it beside the host, out sends from its peer.
type dropped struct {
	drop    io.Closer
	in, out int
	to      *unix.SockaddrLinklayer
}

func (d *dropped) ask(t *testing.T, from byte) {
	t.Helper()
	must(t, unix.Sendto(d.out, arpRequest(from), 0, d.to))
}

// check sends requests while the drop holds, which in must see and the host must not answer, and
// again after Close.
func (d *dropped) check(t *testing.T) {
	t.Helper()
	// When the second has arrived, the first has passed the whole receive path.
	for _, from := range []byte{7, 8} {
		d.ask(t, from)
		for sender := byte(0); sender != from; {
			_, sender, _ = nextARP(t, d.in)
		}
	}
	must(t, d.drop.Close())
	d.ask(t, 9)
	if op, sender, target := nextARP(t, d.out); op != 2 || sender != 1 || target < 8 {
		t.Errorf("ARP operation %d of .%d to .%d, want no answer to those up to .7", op, sender, target)
	}
}

// needTCX ends a test on a kernel without tcx, after HostDrop reported that.
func needTCX(t *testing.T) {
	t.Helper()
	if release.Since(release.Current(), 6, 6) {
		return
	}
	if _, err := HostDrop(1); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("error %v, want errors.ErrUnsupported", err)
	}
	t.Skip("tcx came with Linux 6.6")
}

func TestHostDropLeavesFramesToPacketSocketsOnly(t *testing.T) {
	needTCX(t)
	n, peer := newNamespace(t), newNamespace(t)
	n.ip(t, "link add v0 type veth peer name v0 netns "+peer.name)
	n.ip(t, "addr add 192.0.2.1/24 dev v0")
	n.ip(t, "link set v0 up")
	peer.ip(t, "link set v0 up")
	d := dropped{
		in: packetSocket(t, n, "v0"), out: packetSocket(t, peer, "v0"),
		to: &unix.SockaddrLinklayer{Ifindex: peer.get(t, "v0").Index},
	}
	f := n.get(t, "v0")
	must(t, n.Do(func() (err error) { d.drop, err = HostDrop(f.Index); return err }))
	d.check(t)
	if got := n.get(t, "v0").Drops; got != f.Drops {
		t.Errorf("drops %+v, want %+v: what is kept from the host is not lost", got, f.Drops)
	}
}

func TestHostDropGoesAlongWithAMovedNetdev(t *testing.T) {
	needTCX(t)
	n, peer, third := newNamespace(t), newNamespace(t), newNamespace(t)
	n.ip(t, "link add v0 type veth peer name v0 netns "+peer.name)
	peer.ip(t, "link set v0 up")
	index := n.get(t, "v0").Index
	var d dropped
	must(t, n.Do(func() (err error) { d.drop, err = HostDrop(index); return err }))
	must(t, n.Move("v0", third, "v0"))
	third.ip(t, "addr add 192.0.2.1/24 dev v0")
	third.ip(t, "link set v0 up")
	d.in, d.out = packetSocket(t, third, "v0"), packetSocket(t, peer, "v0")
	d.to = &unix.SockaddrLinklayer{Ifindex: peer.get(t, "v0").Index}
	// The peer drops what it sends until the kernel's link watch saw its carrier.
	ready := []unix.PollFd{{Fd: int32(d.in), Events: unix.POLLIN}}
	for deadline := time.Now().Add(20 * time.Second); ; {
		d.ask(t, 6)
		if n, err := unix.Poll(ready, 10); n > 0 && err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no frame arrives")
		}
	}
	d.check(t)
}

func TestHostDropOfNoNetdev(t *testing.T) {
	needTCX(t)
	n := newNamespace(t)
	err := n.Do(func() error { _, err := HostDrop(4711); return err })
	if !errors.Is(err, unix.ENODEV) {
		t.Errorf("error %v, want ENODEV", err)
	}
}
