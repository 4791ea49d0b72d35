package netns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// captureBuffer is the socket buffer of a capture, in bytes. It holds a burst of 1000 segments
	// with the kernel's overhead.
	captureBuffer = 64 << 20
	// capturePoll bounds how long a capture takes to notice that it must stop.
	capturePoll = 20 * time.Millisecond
	// vlanOffset is where a VLAN tag belongs: after both MAC addresses.
	vlanOffset = 12
	// maxFrame is longer than any frame that a kernel makes (524279 and a tag).
	maxFrame = 1 << 20
	// auxdataLen is sizeof(struct tpacket_auxdata), include/uapi/linux/if_packet.h.
	auxdataLen = 20
	// captureDrain is how long Stop waits for a pause in the traffic.
	captureDrain = time.Second
)

// Captured is one frame that a capture saw.
type Captured struct {
	Data     []byte // from the Ethernet header on, VLAN tags in-band
	Outgoing bool   // the host sent it; otherwise it came in
	// Unchecked: the kernel had not computed its transport checksum yet
	// (CHECKSUM_PARTIAL), so the field holds the pseudo-header's sum.
	Unchecked bool
}

// Capture is a packet socket on a device that sees all its frames, of both
// directions. A super-packet is one frame.
type Capture struct {
	fd    int
	keep  bool
	drain time.Duration
	stop  chan struct{}
	done  chan struct{}
	once  sync.Once

	frames []Captured // owned by the goroutine until done is closed
	max    [2]int     // by direction: in, out; same
	err    error      // same
}

// MeasureFrames records the length of the greatest frame of a device. It reads no payload, but
// costs CPU time: do not measure speed beside it.
func (ns *Namespace) MeasureFrames(device string) (*Capture, error) {
	return ns.capture(device, false)
}

// CaptureFrames keeps all frames of a device. Stop returns an error if some were lost.
func (ns *Namespace) CaptureFrames(device string) (*Capture, error) {
	return ns.capture(device, true)
}

func (ns *Namespace) capture(device string, keep bool) (*Capture, error) {
	dev, err := ns.Link(device)
	if err != nil {
		return nil, err
	}
	c := newCapture(keep)
	if err := ns.Do(func() error { return c.open(dev.Index) }); err != nil {
		return nil, fmt.Errorf("netns: capture %s %s: %w", ns.Name, device, err)
	}
	go c.run()
	ns.lab.onClose(c.end)
	return c, nil
}

func newCapture(keep bool) *Capture {
	return &Capture{
		fd: -1, keep: keep, drain: captureDrain,
		stop: make(chan struct{}), done: make(chan struct{}),
	}
}

// open makes the socket; nothing is received before it is bound.
func (c *Capture) open(index int) (err error) {
	c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			unix.Close(c.fd)
		}
	}()
	poll := unix.NsecToTimeval(capturePoll.Nanoseconds())
	err = errors.Join(
		unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, captureBuffer),
		unix.SetsockoptInt(c.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
		unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &poll),
		unix.SetsockoptPacketMreq(c.fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
			&unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_PROMISC}),
	)
	if err != nil {
		return err
	}
	// ETH_P_ALL in network byte order.
	all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	return unix.Bind(c.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index})
}

// run receives until told to stop, and then until the traffic pauses, or for captureDrain at most.
func (c *Capture) run() {
	defer close(c.done)
	defer unix.Close(c.fd)
	defer c.countLost()
	buffer := make([]byte, maxFrame)
	if !c.keep {
		buffer = buffer[:1] // the length comes from MSG_TRUNC
	}
	var aux [64]byte
	stop, drained := c.stop, (<-chan time.Time)(nil)
	for {
		select {
		case <-stop:
			stop, drained = nil, time.After(c.drain)
		case <-drained:
			if err := c.shut(); err != nil {
				c.err = err
				return
			}
		default:
		}
		n, auxLen, _, from, err := unix.Recvmsg(c.fd, buffer, aux[:], unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENETDOWN): // reported once a change
			continue
		case errors.Is(err, unix.EAGAIN):
			if stop == nil {
				return
			}
			continue
		case err != nil:
			c.err = err
			return
		}
		c.add(buffer, n, aux[:auxLen], from)
	}
}

// shut keeps new frames out of the socket; those in it stay.
func (c *Capture) shut() error {
	none := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0}
	err := unix.SetsockoptSockFprog(c.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: 1, Filter: &none})
	if err != nil {
		return fmt.Errorf("netns: shut capture: %w", err)
	}
	return nil
}

func (c *Capture) add(buffer []byte, n int, aux []byte, from unix.Sockaddr) {
	info := parseAuxdata(aux)
	if info.tag != nil {
		n += len(info.tag)
	}
	outgoing := false
	if ll, ok := from.(*unix.SockaddrLinklayer); ok {
		outgoing = ll.Pkttype == unix.PACKET_OUTGOING
	}
	direction := 0
	if outgoing {
		direction = 1
	}
	c.max[direction] = max(c.max[direction], n)
	if !c.keep {
		return
	}
	frame := slices.Clone(buffer[:min(n-len(info.tag), len(buffer))])
	if info.tag != nil && len(frame) >= vlanOffset {
		frame = slices.Insert(frame, vlanOffset, info.tag...)
	}
	c.frames = append(c.frames, Captured{frame, outgoing, info.unchecked})
}

// auxdata is what struct tpacket_auxdata says about a frame.
type auxdata struct {
	tag       []byte // TPID and TCI as on the wire, or nil
	unchecked bool
}

func parseAuxdata(control []byte) (info auxdata) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return info
	}
	for _, m := range messages {
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA ||
			len(m.Data) < auxdataLen {
			continue
		}
		// u32 status, len, snaplen; u16 mac, net, vlan_tci, vlan_tpid: native order.
		status := binary.NativeEndian.Uint32(m.Data)
		info.unchecked = status&unix.TP_STATUS_CSUMNOTREADY != 0
		if status&unix.TP_STATUS_VLAN_VALID != 0 {
			tpid := uint16(unix.ETH_P_8021Q)
			if status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
				tpid = binary.NativeEndian.Uint16(m.Data[18:])
			}
			info.tag = binary.BigEndian.AppendUint16(nil, tpid)
			tci := binary.NativeEndian.Uint16(m.Data[16:])
			info.tag = binary.BigEndian.AppendUint16(info.tag, tci)
		}
	}
	return info
}

// countLost makes lost frames an error if all had to be kept.
func (c *Capture) countLost() {
	stats, err := unix.GetsockoptTpacketStats(c.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		c.err = errors.Join(c.err, err)
	} else if c.keep && stats.Drops > 0 {
		c.err = fmt.Errorf("netns: capture lost %d of %d frames", stats.Drops, stats.Packets)
	}
}

func (c *Capture) end() {
	c.once.Do(func() { close(c.stop) })
	<-c.done
}

// Stop ends the capture once nothing has come for 20 ms, or after a second of continuing traffic.
// The capture then holds everything that came before. The other methods are valid after Stop.
func (c *Capture) Stop() error {
	c.end()
	return c.err
}

// Frames are the kept frames in the order in which they passed.
func (c *Capture) Frames() []Captured { return c.frames }

// MaxIn is the length of the greatest frame that came in, VLAN tag included.
func (c *Capture) MaxIn() int { return c.max[0] }

// MaxOut is the length of the greatest frame that was sent.
func (c *Capture) MaxOut() int { return c.max[1] }
