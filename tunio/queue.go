package tunio

import (
	"cmp"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sluice/vnet"
)

// kind is what a queue's descriptor is.
type kind uint8

const (
	kindTap kind = iota
	kindPacket
	kindMacvtap
	kindAdopted
)

const (
	// MaxBatch is the greatest number of frames that ReadBatch returns.
	MaxBatch = 64

	// alignment of the slots in the arena: a cache line.
	alignment = 64
	// slotLen is the room that a read needs: the longest frame, its header, and at least one more
	// byte, so that a longer frame is recognised.
	slotLen = (vnet.HeaderLen + vnet.MaxFrame + 1 + alignment - 1) &^ (alignment - 1)
	// arenaLen holds five frames of 389120 bytes, or 24 of a tap.
	arenaLen = 2 << 20

	// receiveBuffer holds some forty frames of 389120 bytes, a TCP window's worth. What does not
	// fit while the worker is busy is lost.
	receiveBuffer = 16 << 20
	// sendBuffer holds some ten; the default of 208 KiB does not hold one. It is smaller because
	// the frames in it delay those that follow: 3 ms at 10 Gbit/s.
	sendBuffer = 4 << 20
)

// Offloads is the work that the kernel may leave to a queue's reader.
type Offloads struct {
	Csum bool // checksums: NeedsCsum
	TSO4 bool // GSOTCPv4
	TSO6 bool // GSOTCPv6
	ECN  bool // TSO with CWR set
	USO  bool // GSOUDPL4
}

// Queue is a descriptor that one worker reads. See the package's Ownership and
// Concurrency.
type Queue struct {
	fd        int
	kind      kind
	name      string // of the device, for errors
	headerLen int
	offloads  Offloads
	lock      int // macvtap: descriptor that holds the device's lock; else -1

	arena []byte // mmap'ed
	// wentDown says that a read answered ENETDOWN, which it does only once, and that ReadBatch has
	// not asked for the device's state since.
	wentDown bool
	receive  receiver
	polls    [2]unix.PollFd // fd, wakeup
	timeout  unix.Timespec

	mu          sync.Mutex
	wakeup      int    // eventfd; closed under mu
	closed      bool   // guarded by mu
	kernelDrops uint64 // guarded by mu
}

// newQueue makes a queue of fd. If it fails, fd stays the caller's.
func newQueue(fd int, k kind, name string, headerLen int, o Offloads) (_ *Queue, err error) {
	wakeup, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, &OpError{"make eventfd for", name, err, ""}
	}
	arena, err := unix.Mmap(-1, 0, arenaLen,
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		unix.Close(wakeup)
		return nil, &OpError{"map memory for", name, err, ""}
	}
	q := &Queue{
		fd: fd, kind: k, name: name, headerLen: headerLen, offloads: o, lock: -1,
		arena: arena, wakeup: wakeup,
		polls: [2]unix.PollFd{
			{Fd: int32(fd), Events: unix.POLLIN},
			{Fd: int32(wakeup), Events: unix.POLLIN},
		},
	}
	q.receive.wire()
	return q, nil
}

// Adopt makes a queue of a descriptor that was opened elsewhere: one that moves a header of
// headerLen bytes and a frame in each read and write, as a tap does, or a SOCK_SEQPACKET socket.
// The descriptor becomes the queue's and is made non-blocking; if Adopt fails it stays the
// caller's.
func Adopt(fd int, name string, headerLen int) (*Queue, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, &OpError{"adopt", name, err, ""}
	}
	return newQueue(fd, kindAdopted, name, headerLen, Offloads{true, true, true, true, true})
}

// Offloads is the work that the kernel may leave to the reader: for a tap and a macvtap what it
// granted, for a packet socket everything, since that shows frames as they cross the device.
func (q *Queue) Offloads() Offloads { return q.offloads }

// HeaderLen is the length of the virtio-net header on the queue.
func (q *Queue) HeaderLen() int { return q.headerLen }

// Close releases the descriptors and the arena. A second call does nothing.
func (q *Queue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil
	}
	q.closed = true
	err := unix.Close(q.fd)
	unix.Close(q.wakeup)
	if q.lock >= 0 {
		unix.Close(q.lock)
	}
	unix.Munmap(q.arena)
	q.arena = nil
	q.receive.unwire()
	if err != nil {
		return &OpError{"close", q.name, err, ""}
	}
	return nil
}

// closeAll closes what an Open function has made so far.
func closeAll(queues []*Queue) {
	for _, q := range queues {
		q.Close()
	}
}

// Wake ends the current ReadBatch, or the next one if none is running.
func (q *Queue) Wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		// EAGAIN only means that 2^64-2 calls are already pending.
		unix.Write(q.wakeup, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// KernelDrops is the number of frames that the kernel dropped in front of a
// packet socket since it was opened, and 0 for other kinds.
func (q *Queue) KernelDrops() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.kind == kindPacket && !q.closed {
		// Each read resets the kernel's counter (packet_getsockopt).
		s, err := unix.GetsockoptTpacketStats(q.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
		if err == nil {
			q.kernelDrops += uint64(s.Drops)
		}
	}
	return q.kernelDrops
}

// Gone reports whether the device was deleted. The queue is then useless. After a move to another
// namespace, a tap's or macvtap's queue still works.
func (q *Queue) Gone() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return true
	case q.kind == kindTap:
		// Without a device the kernel answers only TUNSETIFF (__tun_chr_ioctl, drivers/net/tun.c).
		return unix.IoctlIfreq(q.fd, unix.TUNGETIFF, new(unix.Ifreq)) == unix.EBADFD
	}
	return q.state() == vnet.ErrGone
}

// Device reports the present name and network namespace of a tap's device. The caller closes the
// namespace file. The error is vnet.ErrGone if the device was deleted. It needs CAP_NET_ADMIN in
// that namespace.
func (q *Queue) Device() (name string, ns *os.File, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return "", nil, vnet.ErrGone
	}
	ifr := new(unix.Ifreq)
	err = unix.IoctlIfreq(q.fd, unix.TUNGETIFF, ifr)
	fd := -1
	if err == nil {
		fd, err = unix.IoctlRetInt(q.fd, unix.TUNGETDEVNETNS)
	}
	switch {
	case err == unix.EBADFD: // see Gone
		return "", nil, vnet.ErrGone
	case err != nil:
		return "", nil, &OpError{"find", q.name, err, ""}
	}
	return ifr.Name(), os.NewFile(uintptr(fd), "network namespace of "+q.name), nil
}

// ReadBatch resets b and fills it with what is there; if nothing is, it waits. It returns with
// frames or counted discards, after wait (negative: no bound) or after Wake. vnet.ErrDown comes as
// soon as a packet socket's device goes down, and then after each wait until it is up. vnet.ErrGone
// and any other error are final. Frames are in one piece and borrow the arena until the next call.
func (q *Queue) ReadBatch(b *vnet.Batch, wait time.Duration) error {
	b.Reset()
	var timeout *unix.Timespec
	if wait >= 0 {
		q.timeout = unix.NsecToTimespec(int64(wait))
		timeout = &q.timeout // ppoll writes the remaining time to it
	}
	for failed := false; ; {
		if q.wentDown { // or was: the device may be up again
			q.wentDown = false
			if err := q.state(); err != nil {
				return err
			}
		}
		reads, err := q.drain(b)
		if reads > 0 {
			return nil // an error comes again, or is remembered in wentDown
		}
		if err != nil {
			return err
		}
		if q.wentDown {
			continue
		}
		if failed {
			// Poll reported an error that read does not see. With a packet socket, a transmitter
			// has fetched it.
			if err := q.state(); err != nil || q.kind != kindPacket {
				return cmp.Or(err, vnet.ErrGone)
			}
		}
		var ready bool
		ready, failed, err = q.poll(timeout)
		if err != nil {
			return err
		}
		if !ready {
			return q.state()
		}
	}
}

// drain reads without waiting until the descriptor is empty, or b or the arena
// full. reads counts the frames and the discards.
func (q *Queue) drain(b *vnet.Batch) (reads int, err error) {
	free := q.arena
	for reads < MaxBatch && !b.Full() && len(free) >= slotLen {
		buf := free[:slotLen]
		n, truncated, errno := q.read(buf)
		switch errno {
		case 0:
		case unix.EAGAIN:
			return reads, nil
		case unix.EINTR:
			continue
		case unix.ENETDOWN:
			q.wentDown = true
			return reads, nil
		case unix.EINVAL:
			// The frame is lost: virtio_net_hdr_from_skb has no value for its GSO type, SCTP's for
			// example.
			reads++
			b.Discarded[vnet.DropUnsupportedGSO]++
			continue
		default:
			return reads, q.readError(errno)
		}
		if n == 0 && q.hungUp() {
			return reads, vnet.ErrGone
		}
		reads++
		if d := q.deliver(b, buf[:min(n, slotLen)], truncated || n >= slotLen); d != vnet.Keep {
			b.Discarded[d]++
			continue
		}
		free = free[(n+alignment-1)&^(alignment-1):]
	}
	return reads, nil
}

// deliver adds the header and the frame in buf to b.
func (q *Queue) deliver(b *vnet.Batch, buf []byte, truncated bool) vnet.Drop {
	if truncated {
		return vnet.DropTruncated
	}
	if len(buf) < q.headerLen {
		return vnet.DropBadHeader
	}
	var h vnet.Header
	h.Decode(buf)
	frame := buf[q.headerLen:]
	if q.kind == kindPacket {
		if t := q.receive.tag(); t.valid {
			var d vnet.Drop
			if frame, d = t.insert(buf, q.headerLen, &h); d != vnet.Keep {
				return d
			}
		}
	}
	f := b.Next()
	f.Hdr = h
	f.Head = frame[:len(frame):len(frame)]
	f.Body = nil
	return vnet.Keep
}

// poll waits for something to read. After timeout or Wake, it reports that nothing is ready. failed
// reports an error or a hang-up on the descriptor.
func (q *Queue) poll(timeout *unix.Timespec) (ready, failed bool, err error) {
	if err := ppoll(q.polls[:], timeout); err != nil {
		return false, false, &OpError{"poll", q.name, err, ""}
	}
	if q.polls[1].Revents != 0 {
		var count [8]byte
		unix.Read(q.wakeup, count[:])
		return false, false, nil
	}
	const failure = unix.POLLERR | unix.POLLHUP | unix.POLLNVAL
	return q.polls[0].Revents != 0, q.polls[0].Revents&failure != 0, nil
}

// hungUp reports whether an adopted socket's peer has closed it: its reads then
// return 0, as they do for an empty message.
func (q *Queue) hungUp() bool {
	if q.kind != kindAdopted {
		return false
	}
	p := [1]unix.PollFd{{Fd: int32(q.fd)}}
	return ppoll(p[:], new(unix.Timespec)) == nil && p[0].Revents&unix.POLLHUP != 0
}

// state asks whether the device behind the queue is up: nil, vnet.ErrDown or vnet.ErrGone. Taps are
// not asked: their reads answer EBADFD, and whether they are down cannot be read from another
// namespace.
func (q *Queue) state() error {
	switch q.kind {
	case kindPacket:
		return packetState(q.fd)
	case kindMacvtap:
		return macvtapState(q.fd)
	}
	return nil
}

// ppoll waits for an event, at most timeout (nil: for ever). Signals, such as the runtime's own, do
// not end it: the kernel writes the remaining time to timeout (poll_select_finish, fs/select.c).
func ppoll(polls []unix.PollFd, timeout *unix.Timespec) error {
	for {
		if _, err := unix.Ppoll(polls, timeout, nil); err != unix.EINTR {
			return err
		}
	}
}
