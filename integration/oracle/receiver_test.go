package oracle_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
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

// receiverBuffer is a socket's buffer: it holds the longest frame many times.
const receiverBuffer = 16 << 20

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	lab := netnstest.New(t)
	host := lab.Namespace("host")
	r := &receiver{tap: -1, raw4: -1, raw6: -1}
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
	host.SetLink(tapName, netns.Link{MAC: net.HardwareAddr(destination).String()})
	host.Address(tapName, "192.0.2.2/24", "2001:db8::2/64")
	netnstest.Need(t, lab.Err())
	// The kernel makes the route to an IPv6 address of its own later, in a work queue.
	for _, fam := range families {
		probe := vnettest.Super(tcp(1, 0, family(fam.v6)))
		err := netns.Until(t.Context(), fam.name+" to be received", func() (bool, error) {
			return len(r.take(t, fam.v6, probe)) > 0, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
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
			refused(t, &frames[i], err)
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
			whole := vnettest.Super(tcp(200001, 1448, family(b.v6), form(b.form)))
			if len(r.take(t, b.v6, whole)) == 0 {
				if !b.v6 {
					t.Fatal("the kernel does not take the whole")
				}
				// TestReceiverTakesTheOtherForm makes sure that it takes one of the two.
				t.Skip("this kernel's receiver does not take the form")
			}
			// Segments of 7 bytes make chunks that are just as long as they may be.
			cuts := append(cuts(b.form), cut{131070, vnet.MaxSegments, vnet.FormNone})
			for _, s := range []vnettest.Spec{
				tcp(60001, 1448), tcp(200001, 1448), tcp(400000, 1448),
				tcp(200001, 7), tcp(200002, 8),
			} {
				f := vnettest.Super(with(s, family(b.v6), form(b.form)))
				for _, c := range cuts {
					if s.GSOSize < 10 && c.maxSegs < vnet.MaxSegments {
						continue // thousands of chunks
					}
					what := fmt.Sprintf("%d bytes by %d, %+v", len(s.Payload), s.GSOSize, c)
					takesWhole(t, r, what, chunks(t, &f, c))
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
