package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"sluice/integration/netns"
)

// swapLimit is how long one exchange may take; guests may be emulated, and busy.
const swapLimit = 90 * time.Second

// serve answers until the process is killed. The other side also reports an exchange that fails,
// since it sees the connection end.
func serve() error {
	datagrams, err := net.ListenPacket("udp", ":"+port)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				fmt.Fprintln(os.Stderr, "peer:", err)
				return
			}
			go func() {
				if err := answer(conn.(*net.TCPConn)); err != nil {
					fmt.Fprintln(os.Stderr, "peer: answer:", err)
				}
			}()
		}
	}()
	return reflect(datagrams.(*net.UDPConn))
}

// answer is one exchange; the other side first sends the number of bytes.
func answer(conn *net.TCPConn) error {
	ctx, cancel := context.WithTimeout(context.Background(), swapLimit)
	defer cancel()
	var size [8]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		conn.Close()
		return err
	}
	return netns.Swap(ctx, conn, int64(binary.BigEndian.Uint64(size[:])), false)
}

func swap(term context.Context, address string, size int64, on bool) error {
	n := 0
	for {
		if err := swapOnce(address, size); err != nil {
			return fmt.Errorf("exchange %d with %s: %w", n+1, address, err)
		}
		n++
		if !on || term.Err() != nil {
			fmt.Println(n)
			return nil
		}
	}
}

func swapOnce(address string, size int64) error {
	ctx, cancel := context.WithTimeout(context.Background(), swapLimit)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(address, port))
	if err != nil {
		return err
	}
	if _, err := conn.Write(binary.BigEndian.AppendUint64(nil, uint64(size))); err != nil {
		conn.Close()
		return err
	}
	return netns.Swap(ctx, conn.(*net.TCPConn), size, true)
}
