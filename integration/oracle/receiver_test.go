package oracle_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// receiver is Linux as a host: a tap with the addresses that vnettest's frames go
// to, and raw sockets, which get whole super-packets as IP hands them to TCP. It
// answers what the segmenter does not look at: the lengths in IP headers, by which
// ip_rcv and ipv6_rcv trim a packet, and IPv4's header checksum.
type receiver struct {
	tap  int
	raw4 int // gets packets, from the IP header on
	raw6 int // gets what is behind the IPv6 headers
}

// receiverBuffer holds what one call of take writes.
const receiverBuffer = 16 << 20

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	lab := netnstest.New(t)
	host := lab.Namespace("host")
	r := &receiver{}
	netnstest.Need(t, lab.Err())
	raw := func(family int) (fd int, err error) {
		const kind = unix.SOCK_RAW | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
		if fd, err = unix.Socket(family, kind, unix.IPPROTO_TCP); err != nil {
			return -1, err
		}
		return fd, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiverBuffer)
	}
	err := host.Do(func() error {
		var errTap, err4, err6 error
		r.tap, errTap = openTap()
		r.raw4, err4 = raw(unix.AF_INET)
		r.raw6, err6 = raw(unix.AF_INET6)
		return errors.Join(errTap, err4, err6)
	})
	t.Cleanup(func() {
		for _, fd := range []int{r.tap, r.raw4, r.raw6} {
			unix.Close(fd)
		}
	})
	netnstest.Need(t, err)
	destination := vnettest.Super(vnettest.Spec{}).Head[:6]
	mac := fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", destination[0], destination[1],
		destination[2], destination[3], destination[4], destination[5])
	host.SetLink(tapName, netns.Link{MAC: mac})
	host.Address(tapName, "192.0.2.2/24", "2001:db8::2/64")
	netnstest.Need(t, lab.Err())
	return r
}

// take is what the raw socket gets of each frame. Delivery is over when a write
// returns.
func (r *receiver) take(t *testing.T, v6 bool, frames ...vnet.Frame) (packets [][]byte) {
	t.Helper()
	socket := r.raw4
	if v6 {
		socket = r.raw6
	}
	buffer := make([]byte, vnet.MaxFrame)
	for i := range frames {
		if err := inject(r.tap, &frames[i]); err != nil {
			t.Fatalf("the kernel refuses frame %d, header %+v: %v", i, frames[i].Hdr, err)
		}
		for {
			n, err := unix.Read(socket, buffer)
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			packets = append(packets, bytes.Clone(buffer[:n]))
		}
	}
	return packets
}

// sent is what a receiver should get of f.
func sent(f *vnet.Frame) []byte {
	p := network(f)
	if p.V6 {
		return f.AppendTo(nil)[p.L4:]
	}
	return f.AppendTo(nil)[p.L3:]
}

func TestReceiverTakesChunksWhole(t *testing.T) {
	r := newReceiver(t)
	for _, b := range bigForms {
		t.Run(b.name, func(t *testing.T) {
			for _, n := range []int{60001, 200001, 400000} {
				f := vnettest.Super(tcp(n, 1448, family(b.v6), form(b.form)))
				if n > 65535 && len(r.take(t, b.v6, f)) == 0 {
					// Linux 7.0 changed which form of IPv6 its receiver takes.
					if b.v6 {
						t.Skip("this kernel's receiver does not take the form")
					}
					t.Fatalf("the kernel does not take the whole of %d bytes", n)
				}
				for _, c := range cuts(b.form) {
					takesWhole(t, r, fmt.Sprintf("%d bytes, %+v", n, c),
						resegment(t, &f, c.maxLen, c.maxSegs, c.form))
				}
			}
		})
	}
}

func TestReceiverTakesTheOtherForm(t *testing.T) {
	r := newReceiver(t)
	taken := 0
	for _, to := range []vnet.Form{vnet.FormHBH, vnet.FormPlain} {
		// The kernel takes one of the forms: the test's own frame tells which.
		own := vnettest.Super(tcp(200001, 1440, family(true), form(to)))
		if len(r.take(t, true, own)) == 0 {
			continue
		}
		taken++
		for _, from := range []vnet.Form{vnet.FormHBH, vnet.FormPlain} {
			f := vnettest.Super(tcp(200001, 1440, family(true), form(from)))
			takesWhole(t, r, fmt.Sprintf("%v to %v", from, to), []vnet.Frame{reform(t, &f, to)})
		}
	}
	if taken == 0 {
		t.Error("the kernel takes neither form")
	}
}

// takesWhole fails t where the receiver does not get what was sent.
func takesWhole(t *testing.T, r *receiver, what string, frames []vnet.Frame) {
	t.Helper()
	got := r.take(t, network(&frames[0]).V6, frames...)
	for i := range max(len(frames), len(got)) {
		if i >= len(got) || i >= len(frames) {
			t.Errorf("%s: %d frames arrived of %d", what, len(got), len(frames))
			return
		}
		if want := sent(&frames[i]); !bytes.Equal(got[i], want) {
			t.Errorf("%s: frame %d arrived with %d bytes, want %d; the first that differs is %d",
				what, i, len(got[i]), len(want), firstByte(got[i], want))
			return
		}
	}
}
