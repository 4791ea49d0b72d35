package tunio

import (
	"time"

	"golang.org/x/sys/unix"

	"sluice/vnet"
)

// maxPieces is the number of iovecs of a Transmitter: the kernel's UIO_MAXIOV
// (include/uapi/linux/uio.h), the most that one frame may have. A batch with more
// is written in several calls.
const maxPieces = 1024

// Transmitter is what one worker writes a queue's device through: scratch for the
// headers and the piece lists. It borrows the queue's descriptor.
type Transmitter struct {
	fd        int
	socket    bool // sends several messages a call; otherwise one frame a write
	headerLen int
	gather    gatherer
	polls     [1]unix.PollFd
	timeout   unix.Timespec
}

// Transmitter makes a transmit half for one more worker.
func (q *Queue) Transmitter() *Transmitter {
	return &Transmitter{
		fd: q.fd, socket: q.kind == kindPacket, headerLen: q.headerLen,
		polls: [1]unix.PollFd{{Fd: int32(q.fd), Events: unix.POLLOUT}},
	}
}

// WriteBatch writes frames in order and stops at the first that is not taken: sent counts those
// before it, r says what the kernel answered, err is the errno. With r Accepted, sent is
// len(frames). A frame with more than maxPieces-2 pieces after its head is TooBig.
func (t *Transmitter) WriteBatch(frames []vnet.Frame) (sent int, r vnet.Refusal, err error) {
	stale := -1 // the frame that got an ENETDOWN, which may be an old one
	for sent < len(frames) {
		n, errno := t.write(frames[sent:])
		sent += n
		switch {
		case errno == 0, errno == unix.EINTR:
		case errno == unix.ENETDOWN && t.socket && stale != sent:
			// A device that went down leaves ENETDOWN with the socket until a call fetches it, even
			// if it is up again (sock_error in sock_alloc_send_pskb).
			stale = sent
		default:
			return sent, t.refusal(errno, &frames[sent]), errno
		}
	}
	return sent, vnet.Accepted, nil
}

// write writes as many frames as one system call takes: at least one, or none and the errno of the
// first.
func (t *Transmitter) write(frames []vnet.Frame) (int, unix.Errno) {
	most := 1
	if t.socket {
		most = min(len(frames), MaxBatch)
	}
	g := &t.gather
	n := 0
	for n < most {
		f := &frames[n]
		h := outHeader(f)
		h.Encode(g.headers[n][:t.headerLen])
		if !g.add(n, t.headerLen, f) {
			break
		}
		n++
	}
	var errno unix.Errno
	switch {
	case n == 0:
		errno = unix.EMSGSIZE
	case t.socket:
		n, errno = g.sendmmsg(t.fd, n)
	default:
		if errno = g.writev(t.fd); errno != 0 {
			n = 0
		}
	}
	g.release()
	return n, errno
}

// WaitRoom waits until the descriptor may take a frame again, at most d. An error on it also ends
// the wait; the next write reports which one.
func (t *Transmitter) WaitRoom(d time.Duration) {
	t.timeout = unix.NsecToTimespec(int64(d))
	ppoll(t.polls[:], &t.timeout)
}

// Longest transport headers that a GSO type may have.
const (
	maxTCPLen = 60 // RFC 9293, 3.1: data offset 15
	// maxHeaders is the length of all headers of the most common shapes: two tags,
	// IPv6, TCP with all options.
	maxHeaders = vnet.EthLen + 2*vnet.VLANLen + vnet.IPv6Len + maxTCPLen
)

// outHeader is the header that a frame is written with: what the kernel may see
// of Hdr, and nothing else.
func outHeader(f *vnet.Frame) vnet.Header {
	in := &f.Hdr
	out := vnet.Header{Flags: in.Flags & (vnet.NeedsCsum | vnet.DataValid), GSO: in.GSO}
	if in.Flags&vnet.NeedsCsum != 0 {
		out.CsumStart, out.CsumOffset = in.CsumStart, in.CsumOffset
	}
	if in.GSO != vnet.GSONone {
		out.GSOSize = in.GSOSize
		out.HdrLen = outHdrLen(in, f.Len())
	}
	return out
}

// outHdrLen is the hdr_len that a super-packet of n bytes is written with. The kernel allocates
// hdr_len bytes in one piece and the rest in pages (packet_alloc_skb, tun_alloc_skb), so it must
// not be the whole frame, which would be an allocation of 512 KiB in one piece. It must not be less
// than the headers either, since the kernel would copy them to a new allocation. A received hdr_len
// is skb_headlen, which may be either, and is 0 if the sender did not set it. A value that
// csum_start rules out is replaced by the greatest length that the headers can have, without
// reading them. With GSO type none hdr_len is 0: such a frame is short.
func outHdrLen(h *vnet.Header, n int) uint16 {
	least, most := vnet.EthLen, maxHeaders
	if h.Flags&vnet.NeedsCsum != 0 {
		least, most = int(h.CsumStart)+vnet.TCPLen, int(h.CsumStart)+maxTCPLen
		if h.GSO.Type() == vnet.GSOUDPL4 {
			least = int(h.CsumStart) + vnet.UDPLen
			most = least
		}
	}
	v := int(h.HdrLen)
	if v < least || v > most {
		v = most
	}
	return uint16(min(v, n, 1<<16-1))
}
