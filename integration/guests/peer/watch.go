package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"sluice/integration/guests/seen"
	"sluice/vnet"
)

const (
	// window is the time that one line of watch covers.
	window = 200 * time.Millisecond
	// watchBuffer is the socket buffer, for what comes in while an emulated guest is busy.
	watchBuffer = 64 << 20
	// snap is enough of a frame for its headers.
	snap = 256
)

// watch prints what comes in on a device, as the driver delivers it if GRO is off.
func watch(term context.Context, device string) error {
	netdev, err := net.InterfaceByName(device)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	poll := unix.NsecToTimeval((window / 10).Nanoseconds())
	// ETH_P_ALL in network byte order.
	all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, watchBuffer),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &poll),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: netdev.Index}),
	)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(os.Stdout)
	for done := false; !done; {
		var frames seen.Frames
		done = term.Err() != nil // before the last window, which takes what is left
		for end := time.Now().Add(window); time.Now().Before(end); {
			if err := receive(fd, &frames); err != nil {
				return err
			}
		}
		// Reading the statistics clears them.
		stats, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
		if err != nil {
			return err
		}
		frames.Lost = int(stats.Drops)
		if err := lines.Encode(frames); err != nil {
			return err
		}
	}
	return nil
}

// receive counts a frame, if one comes soon.
func receive(fd int, frames *seen.Frames) error {
	var buffer [vnet.MinHeaderLen + snap]byte
	// With MSG_TRUNC it returns the full length.
	n, _, err := unix.Recvfrom(fd, buffer[:], unix.MSG_TRUNC)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR), errors.Is(err, unix.ENETDOWN):
		return nil
	case err != nil:
		return err
	}
	f := vnet.Frame{Head: buffer[vnet.MinHeaderLen:min(n, len(buffer))]}
	f.Hdr.Decode(buffer[:])
	frames.Add(&f, n-vnet.MinHeaderLen)
	return nil
}
