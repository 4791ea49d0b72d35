package netns

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"
)

// blockSize is the size of one write of a transfer. It is more than the greatest super-packet, so
// that TCP can fill those.
const blockSize = 1 << 20

// Exchange sends size bytes from a to b and the same number from b to a, at the same time over one
// TCP connection. It compares the SHA-256 of what was sent with that of what arrived. a connects to
// b's address.
func (l *Lab) Exchange(ctx context.Context, a, b *Namespace, address string, size int64) error {
	if err := l.exchange(ctx, a, b, address, size); err != nil {
		return fmt.Errorf("netns: exchange with %s: %w", address, err)
	}
	return nil
}

func (l *Lab) exchange(ctx context.Context, a, b *Namespace, address string, size int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	where, err := hostPort(address, 0)
	if err != nil {
		return err
	}
	var listener net.Listener
	err = b.Do(func() error { // the socket belongs to the namespace of this thread
		var config net.ListenConfig
		config.SetMultipathTCP(false)
		listener, err = config.Listen(ctx, "tcp", where)
		return err
	})
	if err != nil {
		return err
	}
	defer listener.Close()
	if deadline, ok := ctx.Deadline(); ok {
		listener.(*net.TCPListener).SetDeadline(deadline)
	}

	far := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			far <- err
			return
		}
		far <- Swap(ctx, conn.(*net.TCPConn), size, false)
	}()

	var conn net.Conn
	err = a.Do(func() error {
		// The address is literal, so Dial opens its socket on this thread.
		dialer := net.Dialer{Timeout: waitLimit}
		conn, err = dialer.DialContext(ctx, "tcp", listener.Addr().String())
		return err
	})
	if err != nil {
		listener.Close()
		return errors.Join(err, <-far)
	}
	near := Swap(ctx, conn.(*net.TCPConn), size, true)
	if near != nil {
		cancel() // or the other side would wait for data that never comes
	}
	if farErr := <-far; near == nil || !errors.Is(farErr, context.Canceled) {
		near = errors.Join(near, farErr)
	}
	return near
}

// Seeds of the two sides' data: each side knows what the other sends.
const (
	seedA = 'a'
	seedB = 'b'
)

// Swap is one side of an Exchange, for sides that are not both in a lab. It sends size bytes and
// receives as many at the same time, compares what arrived with what the other side sends, and
// closes conn. dialed is true on the side that dialed.
func Swap(ctx context.Context, conn *net.TCPConn, size int64, dialed bool) error {
	defer conn.Close()
	mine, theirs := byte(seedB), byte(seedA)
	if dialed {
		mine, theirs = theirs, mine
	}
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()

	sent := make(chan error, 1)
	go func() {
		w := struct{ io.Writer }{conn} // hides ReadFrom, which would choose its own block
		_, err := io.CopyBuffer(w, data(mine, size), make([]byte, blockSize))
		sent <- errors.Join(err, conn.CloseWrite())
	}()
	got, want := sha256.New(), sha256.New()
	r := struct{ io.Reader }{conn} // hides WriteTo, likewise
	n, err := io.CopyBuffer(got, r, make([]byte, blockSize))
	err = errors.Join(err, <-sent)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return errors.Join(cause, err)
	}
	if err != nil {
		return err
	}
	if n != size {
		return fmt.Errorf("%d bytes arrived of %d", n, size)
	}
	if _, err := io.Copy(want, data(theirs, size)); err != nil {
		return err
	}
	if g, w := got.Sum(nil), want.Sum(nil); string(g) != string(w) {
		return fmt.Errorf("SHA-256 %x arrived, %x was sent", g, w)
	}
	return nil
}

// data is size pseudo-random bytes, without a pattern that could hide a misplaced chunk.
func data(seed byte, size int64) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{seed}), size)
}
