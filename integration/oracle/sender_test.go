package oracle_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
	"sluice/offload"
	"sluice/vnet"
)

// senderGSO is the sender's gso_max_size: below the lengths for which a tap finds no
// memory (see TestSegmentBig).
const senderGSO = 389120

// TestSegmentOfWhatAKernelSends takes super-packets from a real TCP sender, so that
// the rules do not rest on package vnettest's idea of one.
func TestSegmentOfWhatAKernelSends(t *testing.T) {
	lab := netnstest.New(t)
	a, b := lab.Namespace("a"), lab.Namespace("b")
	mac := net.HardwareAddr(source).String() // which wire looks for
	lab.Veth(a, "eth0", b, "eth0", netns.Link{GSO: senderGSO, MAC: mac})
	a.Address("eth0", "10.0.0.1/24", "fd00::1/64")
	b.Address("eth0", "10.0.0.2/24", "fd00::2/64")
	a.Eager()
	netnstest.Need(t, lab.Err())

	const each = 6 // super-packets of above 64 KiB, and of others
	k := newKernel(t)
	for _, c := range []struct{ name, address string }{
		{"IPv4", "10.0.0.2"}, {"IPv6", "fd00::2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			socket, err := listen(b, "eth0")
			netnstest.Need(t, err)
			defer unix.Close(socket)
			if err := lab.Exchange(t.Context(), a, b, c.address, 16<<20); err != nil {
				t.Fatal(err)
			}
			var big, small int
			for big < each || small < each {
				f, ok := receive(t, socket)
				if !ok {
					break
				}
				kind := &small
				if f.Len() > vnet.LegacyGSOMaxSize {
					kind = &big
				}
				if kind == &big && !since(6, 6) {
					continue // it sends IPv6 ones, and a tap does not take them
				}
				if f.Hdr.GSO == vnet.GSONone || *kind == each {
					continue
				}
				*kind++
				_, p, d := parse(&f)
				if d != vnet.Keep {
					t.Fatalf("header %+v: dropped: %v", f.Hdr, d)
				}
				sameChunks(t, k, &f, []cut{
					{vnet.MaxFrame, vnet.MaxSegments, offload.BigForm(&f, &p)},
					{vnet.LegacyGSOMaxSize - 1, vnet.MaxSegments, vnet.FormNone},
					{4000, vnet.MaxSegments, vnet.FormNone},
				})
			}
			if big == 0 && since(6, 6) || small == 0 {
				t.Errorf("%d super-packets above 64 KiB and %d others; want some", big, small)
			}
		})
	}
}

// listenBuffer holds the first super-packets of a transfer until it is over.
const listenBuffer = 16 << 20

// listen opens a packet socket that sees what a device receives, with its
// virtio-net headers. It shares nothing with package tunio on purpose.
func listen(ns *netns.Namespace, device string) (socket int, err error) {
	dev, err := ns.Link(device)
	if err != nil {
		return -1, err
	}
	err = ns.Do(func() (err error) {
		const kind = unix.SOCK_RAW | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
		socket, err = unix.Socket(unix.AF_PACKET, kind, 0)
		if err != nil {
			return err
		}
		// ETH_P_ALL in network byte order.
		all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		err = errors.Join(
			unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, listenBuffer),
			unix.SetsockoptInt(socket, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
			unix.SetsockoptInt(socket, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Index}),
		)
		if err != nil {
			unix.Close(socket)
		}
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("listen on %s: %w", device, err)
	}
	return socket, nil
}

// receive is the next frame that waits in the socket, if there is one.
func receive(t *testing.T, socket int) (f vnet.Frame, ok bool) {
	t.Helper()
	b := make([]byte, vnet.MinHeaderLen+vnet.MaxFrame)
	n, err := unix.Read(socket, b)
	if errors.Is(err, unix.EAGAIN) {
		return f, false
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Hdr.Decode(b[:n])
	f.Head = b[vnet.MinHeaderLen:n]
	return f, true
}
