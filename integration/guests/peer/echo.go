package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// echoLimit is how long datagrams may take to come back.
const echoLimit = 20 * time.Second

// gather is how long the reflector waits for more datagrams of one burst.
const gather = 20 * time.Millisecond

// reflect sends datagrams back. Those that came in one burst leave in one call, so they leave in
// the form in which they came.
func reflect(conn *net.UDPConn) error {
	var (
		burst  []byte
		size   int
		sender netip.AddrPort
	)
	buffer := make([]byte, 1<<16)
	for {
		end := time.Time{}
		if len(burst) > 0 {
			end = time.Now().Add(gather)
		}
		if err := conn.SetReadDeadline(end); err != nil {
			return err
		}
		n, from, err := conn.ReadFromUDPAddrPort(buffer)
		if err != nil && !isTimeout(err) {
			return err
		}
		// The burst ends at another sender or size, or when it exceeds what one send takes.
		if len(burst) > 0 && (err != nil || from != sender || n != size || len(burst)+n > maxBurst) {
			if err := sendBurst(conn, sender, burst, size); err != nil {
				return err
			}
			burst = burst[:0]
		}
		if err == nil {
			burst, size, sender = append(burst, buffer[:n]...), n, from
		}
	}
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// maxBurst is below what one UDP send takes: 65535 minus the headers.
const maxBurst = 64_000

// sendBurst sends bytes as datagrams of the given size. Where the kernel can cut them
// (UDP_SEGMENT), it is one system call.
func sendBurst(conn *net.UDPConn, to netip.AddrPort, burst []byte, size int) error {
	if len(burst) <= size { // size may be above the MTU, to which the kernel cannot cut
		_, err := conn.WriteToUDPAddrPort(burst, to)
		return err
	}
	control := make([]byte, unix.CmsgSpace(2))
	// struct cmsghdr: a length of 8 bytes, level, type (include/linux/socket.h).
	binary.NativeEndian.PutUint64(control, uint64(unix.CmsgLen(2)))
	binary.NativeEndian.PutUint32(control[8:], unix.SOL_UDP)
	binary.NativeEndian.PutUint32(control[12:], unix.UDP_SEGMENT)
	binary.NativeEndian.PutUint16(control[unix.CmsgLen(0):], uint16(size))
	_, _, err := conn.WriteMsgUDPAddrPort(burst, control, to)
	if !errors.Is(err, unix.EIO) { // no checksum offload: udp_send_skb refuses, up to 6.10
		return err
	}
	for i := 0; i < len(burst); i += size {
		if _, err := conn.WriteToUDPAddrPort(burst[i:min(i+size, len(burst))], to); err != nil {
			return err
		}
	}
	return nil
}

// echo sends count datagrams of a size in a burst, and wants each of them back once, whole. A
// missing one is an error: nothing may be lost here.
func echo(address string, size, count int) error {
	to, err := netip.ParseAddrPort(net.JoinHostPort(address, port))
	if err != nil {
		return err
	}
	conn, err := net.ListenUDP("udp", nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	sent := make([]byte, size*count)
	_, _ = rand.NewChaCha8([32]byte{}).Read(sent)
	if err := sendBurst(conn, to, sent, size); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(echoLimit)); err != nil {
		return err
	}
	missing := map[int]bool{}
	for i := range count {
		missing[i] = true
	}
	buffer := make([]byte, 1<<16)
	for len(missing) > 0 {
		n, _, err := conn.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return fmt.Errorf("%d datagrams of %d missing: %w", len(missing), count, err)
		}
		at := bytes.Index(sent, buffer[:n])
		if n != size || at < 0 || at%size != 0 || !missing[at/size] {
			return fmt.Errorf("a datagram of %d bytes came that was not sent, or sent once", n)
		}
		delete(missing, at/size)
	}
	return nil
}
