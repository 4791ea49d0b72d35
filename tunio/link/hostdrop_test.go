package link

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
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

// nextARP reads until an ARP packet comes, and returns its operation and the last
// byte of its target address.
func nextARP(t *testing.T, fd int) (op uint16, target byte) {
	t.Helper()
	b := make([]byte, 2048)
	for {
		n, _, err := unix.Recvfrom(fd, b, 0)
		must(t, err)
		if n >= 42 && binary.BigEndian.Uint16(b[12:]) == arp {
			return binary.BigEndian.Uint16(b[20:]), b[41]
		}
	}
}

func TestHostDropLeavesFramesToPacketSocketsOnly(t *testing.T) {
	n, peer := newNamespace(t), newNamespace(t)
	n.ip(t, "link add v0 type veth peer name v0 netns "+peer.name)
	n.ip(t, "addr add 192.0.2.1/24 dev v0")
	n.ip(t, "link set v0 up")
	peer.ip(t, "link set v0 up")
	in, out := packetSocket(t, n, "v0"), packetSocket(t, peer, "v0")
	to := &unix.SockaddrLinklayer{Ifindex: peer.get(t, "v0").Index}
	var err error
	var drop interface{ Close() error }
	index, dropped := n.get(t, "v0").Index, n.get(t, "v0").Drops
	must(t, n.Do(func() error { drop, err = HostDrop(index); return err }))

	must(t, unix.Sendto(out, arpRequest(7), 0, to))
	if op, target := nextARP(t, in); op != 1 || target != 1 {
		t.Errorf("the packet socket got ARP operation %d for .%d, want the request", op, target)
	}
	if got := n.get(t, "v0").Drops; got != dropped {
		t.Errorf("drops %+v, want %+v: what is kept from the host is not lost", got, dropped)
	}
	must(t, drop.Close())
	must(t, unix.Sendto(out, arpRequest(8), 0, to))
	if op, target := nextARP(t, out); op != 2 || target != 8 {
		t.Errorf("the first answer is ARP operation %d to .%d, want one to the second request, .8", op, target)
	}
}

func TestHostDropOfNoNetdev(t *testing.T) {
	n := newNamespace(t)
	err := n.Do(func() error { _, err := HostDrop(4711); return err })
	if !errors.Is(err, unix.ENODEV) {
		t.Errorf("error %v, want ENODEV", err)
	}
}
