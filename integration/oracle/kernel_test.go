package oracle_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
	"sluice/tunio/release"
	"sluice/vnet"
	"sluice/vnet/vnettest"
)

const (
	tapName  = "tap0"
	vethName = "veth0"
	// mtu is the greatest of a tap (tun_net_init: 65535 less the Ethernet header). The
	// kernel drops single segments that are longer (is_skb_forwardable).
	mtu = 65521
	// captureBytes bounds what is written during one capture, so that a reader that is
	// not scheduled in time loses nothing.
	captureBytes = 16 << 20
	// memoryWait bounds how long a write waits for memory: a frame of 512 KiB needs
	// pages of 32 KiB.
	memoryWait = 5 * time.Second
	// markerType is an EtherType for experiments (IEEE 802, 9.2.3.5).
	markerType = 0x88b5
)

// kernel is Linux as a segmenter; see the package's documentation.
type kernel struct {
	sw  *netns.Namespace
	tap int
}

// answer is what the kernel made of one frame.
type answer struct {
	packets [][]byte
	err     error // of the write
}

func newKernel(t *testing.T) *kernel {
	t.Helper()
	lab := netnstest.New(t)
	k := &kernel{sw: lab.Namespace("sw"), tap: -1}
	far := lab.Namespace("far")
	k.sw.Silent()
	far.Silent()
	lab.Veth(k.sw, vethName, far, vethName, netns.Link{MTU: mtu})
	for _, features := range [][]string{
		netns.TCPSegmentation, netns.UDPSegmentation, netns.TransmitChecksum,
	} {
		k.sw.Offloads(vethName, false, features...)
	}
	netnstest.Need(t, lab.Err())
	netnstest.Need(t, k.sw.Do(func() (err error) {
		k.tap, err = openTap()
		return err
	}))
	t.Cleanup(func() { unix.Close(k.tap) })
	k.sw.SetLink(tapName, netns.Link{MTU: mtu})
	k.sw.Bridge("br0", tapName, vethName)
	netnstest.Need(t, lab.Err())
	return k
}

// openTap makes a tap in the calling thread's namespace. It shares nothing with
// package tunio on purpose.
func openTap() (tap int, err error) {
	tap, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	defer func() {
		if err != nil {
			unix.Close(tap)
			tap = -1
		}
	}()
	ifr, err := unix.NewIfreq(tapName)
	if err != nil {
		return -1, err
	}
	ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	return tap, errors.Join(
		unix.IoctlIfreq(tap, unix.TUNSETIFF, ifr),
		unix.IoctlSetPointerInt(tap, unix.TUNSETVNETHDRSZ, vnet.HeaderLen),
		unix.IoctlSetPointerInt(tap, unix.TUNSETVNETLE, 1),
	)
}

// inject writes f into a tap. It waits for memory.
func inject(tap int, f *vnet.Frame) error {
	header := make([]byte, vnet.HeaderLen)
	f.Hdr.Encode(header)
	b := f.AppendTo(header)
	for deadline := time.Now().Add(memoryWait); ; time.Sleep(time.Millisecond) {
		n, err := unix.Write(tap, b)
		switch {
		case err == unix.EINTR, err == unix.ENOBUFS && time.Now().Before(deadline):
			continue
		case err == nil && n != len(b):
			return fmt.Errorf("%d of %d bytes were written", n, len(b))
		}
		return err
	}
}

// wire is what the kernel makes of each frame.
func (k *kernel) wire(t testing.TB, frames ...vnet.Frame) []answer {
	t.Helper()
	var answers []answer
	for len(frames) > 0 {
		n, size := 0, 0
		for n < len(frames) && size < captureBytes {
			size += frames[n].Len()
			n++
		}
		answers = append(answers, k.wireSome(t, frames[:n])...)
		frames = frames[n:]
	}
	return answers
}

// wireSome is wire for what one capture may hold.
func (k *kernel) wireSome(t testing.TB, frames []vnet.Frame) []answer {
	t.Helper()
	capture, err := k.sw.CaptureFrames(vethName)
	netnstest.Need(t, err)
	answers := make([]answer, len(frames))
	for i := range frames {
		if answers[i].err = inject(k.tap, &frames[i]); errors.Is(answers[i].err, unix.ENOBUFS) {
			t.Fatalf("the kernel has no memory for a frame of %d bytes", frames[i].Len())
		}
		marker := marker(i)
		if err := inject(k.tap, &marker); err != nil {
			t.Fatalf("marker: %v", err)
		}
	}
	if err := capture.Stop(); err != nil {
		t.Fatal(err)
	}
	i := 0
	for _, c := range capture.Frames() {
		if !c.Outgoing || !bytes.Equal(c.Data[6:12], source) {
			continue // the namespace's own: the bridge joins multicast groups
		}
		if binary.BigEndian.Uint16(c.Data[12:]) != markerType {
			if i == len(frames) {
				t.Fatalf("behind the last marker: %x", c.Data)
			}
			if c.Unchecked {
				t.Fatalf("the kernel did not finish the checksum of %x", c.Data)
			}
			answers[i].packets = append(answers[i].packets, c.Data)
			continue
		}
		if want := marker(i); !bytes.Equal(c.Data, want.Head) {
			t.Fatalf("marker %x, want %x", c.Data, want.Head)
		}
		i++
	}
	if i != len(frames) {
		t.Fatalf("%d markers were captured, want %d", i, len(frames))
	}
	return answers
}

// packets is what the kernel makes of all frames together, none of which it may
// refuse.
func (k *kernel) packets(t testing.TB, frames ...vnet.Frame) [][]byte {
	t.Helper()
	return answered(t, frames, k.wire(t, frames...))
}

// since reports whether the kernel is of this release or later.
func since(major, minor int) bool { return release.Since(release.Current(), major, minor) }

// mayRefuse is why this kernel is right to refuse f with err, or empty.
func mayRefuse(f *vnet.Frame, err error) string {
	switch {
	case errors.Is(err, unix.EMSGSIZE) && f.Len() > vnet.LegacyGSOMaxSize && !since(6, 6):
		return "a tap takes frames of more than 17 pages since Linux 6.6 (alloc_skb_with_frags)"
	case errors.Is(err, unix.EINVAL) && f.Hdr.GSO.Type() == vnet.GSOUDPL4 && !since(6, 2):
		return "a tap takes USO since Linux 6.2"
	}
	return ""
}

// refused ends t where the kernel refuses a frame: as skipped where it is right to.
func refused(t testing.TB, f *vnet.Frame, err error) {
	t.Helper()
	if why := mayRefuse(f, err); why != "" {
		t.Skip(why)
	}
	t.Fatalf("the kernel refuses a frame with header %+v: %v", f.Hdr, err)
}

// answered is the packets of all answers. A refusal ends t.
func answered(t testing.TB, frames []vnet.Frame, answers []answer) (packets [][]byte) {
	t.Helper()
	for i, a := range answers {
		if a.err != nil {
			refused(t, &frames[i], a.err)
		}
		packets = append(packets, a.packets...)
	}
	return packets
}

// source is the address that all frames of tests come from.
var source = vnettest.Super(vnettest.Spec{}).Head[6:12]

// marker is a frame that tells where the packets of frame i end.
func marker(i int) vnet.Frame {
	b := make([]byte, 60)
	copy(b, vnettest.Super(vnettest.Spec{}).Head[:vnet.EthLen])
	binary.BigEndian.PutUint16(b[12:], markerType)
	binary.BigEndian.PutUint32(b[14:], uint32(i))
	return vnet.Frame{Head: b}
}
