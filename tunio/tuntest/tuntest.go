// Package tuntest is a device for tests that need no privilege: one end of a seqpacket socketpair
// is a tunio.Queue, with a tap's framing (each message is a header and a frame); the other belongs
// to the test.
//
// # Units
//
// As in package vnet; headers are vnet.HeaderLen bytes.
//
// # Ownership
//
// New closes both ends with the test. Whatever reads the queue or writes through its transmitters
// must have stopped by then: stop it in a Cleanup that is registered after New.
//
// # Concurrency
//
// A Peer may be used by one writer and one reader at a time.
//
// # Trust
//
// WriteRaw sends anything, well-formed or not: that is what it is for.
package tuntest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/tunio"
	"sluice/vnet"
)

// patience bounds each wait of a Peer. Only a failing test waits that long.
const patience = 20 * time.Second

// bufferLen is the sockets' buffer size: room for several of the longest messages.
const bufferLen = 4 << 20

// ErrClosed says that the Peer or its other end is closed.
var ErrClosed = errors.New("tuntest: closed")

// Peer is the test's end of the device.
type Peer struct {
	fd    int
	close sync.Once
	buf   []byte
}

// New makes a device. Both ends close with the test.
func New(t testing.TB) (*tunio.Queue, *Peer) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, bufferLen) != nil {
			// Bounded by net.core.wmem_max: 4 MiB, on older kernels 208 KiB.
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, bufferLen)
		}
	}
	limit := unix.NsecToTimeval(int64(patience))
	unix.SetsockoptTimeval(fds[1], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit)
	unix.SetsockoptTimeval(fds[1], unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit)
	q, err := tunio.Adopt(fds[0], "tuntest", vnet.HeaderLen)
	if err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		t.Fatal(err)
	}
	p := &Peer{fd: fds[1], buf: make([]byte, vnet.HeaderLen+vnet.MaxFrame+1)}
	t.Cleanup(func() {
		p.Close()
		unix.Close(p.fd)
		q.Close()
	})
	return q, p
}

// Close hangs up: the queue is gone, and a Read or Write under way ends with
// ErrClosed.
func (p *Peer) Close() { p.close.Do(func() { unix.Shutdown(p.fd, unix.SHUT_RDWR) }) }

// Write lets the device receive a frame. It waits for room.
func (p *Peer) Write(f *vnet.Frame) error {
	msg := make([]byte, vnet.HeaderLen, vnet.HeaderLen+f.Len())
	f.Hdr.Encode(msg)
	return p.WriteRaw(f.AppendTo(msg))
}

// WriteRaw lets the device receive a message as it is, header included.
func (p *Peer) WriteRaw(msg []byte) error {
	for {
		err := unix.Sendto(p.fd, msg, unix.MSG_NOSIGNAL, nil)
		switch err {
		case unix.EINTR:
			continue
		case unix.EPIPE, unix.ECONNRESET:
			return ErrClosed
		}
		return err
	}
}

// Read waits for a frame that was written to the device. The frame is the
// caller's.
func (p *Peer) Read() (vnet.Frame, error) {
	msg, err := p.ReadRaw()
	if err != nil {
		return vnet.Frame{}, err
	}
	if len(msg) < vnet.HeaderLen {
		return vnet.Frame{}, errors.New("tuntest: a message without a whole header")
	}
	f := vnet.Frame{Head: msg[vnet.HeaderLen:]}
	f.Hdr.Decode(msg)
	return f, nil
}

// ReadRaw waits for a message that was written to the device, header included. It
// is the caller's.
func (p *Peer) ReadRaw() ([]byte, error) { return p.recv(0) }

// Empty reports whether nothing more was written to the device.
func (p *Peer) Empty() bool {
	_, err := p.recv(unix.MSG_DONTWAIT | unix.MSG_PEEK)
	return err == unix.EAGAIN
}

func (p *Peer) recv(flags int) ([]byte, error) {
	for {
		n, _, err := unix.Recvfrom(p.fd, p.buf, flags)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, err
		case n == 0:
			return nil, ErrClosed
		}
		return append([]byte(nil), p.buf[:n]...), nil
	}
}
