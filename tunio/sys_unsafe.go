package tunio

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"sluice/vnet"
)

// receiver is the scratch of recvmsg: one buffer, and the control message in which
// a packet socket hands over the VLAN tag. It is wired once and must not be
// copied afterwards.
type receiver struct {
	msg     unix.Msghdr
	iov     unix.Iovec
	control struct {
		hdr unix.Cmsghdr
		aux unix.TpacketAuxdata
	}
}

// SAFETY: the pointers are typed and lead into r itself, which is on the heap as
// part of a Queue and does not move; the kernel follows them only during recvmsg.
func (r *receiver) wire() {
	r.msg.Iov = &r.iov
	r.msg.SetIovlen(1)
	r.msg.Control = (*byte)(unsafe.Pointer(&r.control))
}

// unwire forgets the arena before it is unmapped: the collector must not find an
// address that may become the heap's.
func (r *receiver) unwire() { r.iov.Base = nil }

// tag is the VLAN tag that came with the last message.
func (r *receiver) tag() tag {
	aux := &r.control.aux
	switch {
	case r.msg.Controllen < uint64(unsafe.Sizeof(r.control)),
		r.control.hdr.Level != unix.SOL_PACKET,
		r.control.hdr.Type != unix.PACKET_AUXDATA,
		aux.Status&unix.TP_STATUS_VLAN_VALID == 0:
		return tag{}
	case aux.Status&unix.TP_STATUS_VLAN_TPID_VALID == 0:
		return tag{true, vnet.EtherTypeVLAN, aux.Vlan_tci}
	}
	return tag{true, aux.Vlan_tpid, aux.Vlan_tci}
}

// read reads a header and a frame into buf.
//
// Syscall, not RawSyscall: copying a 512 KiB frame takes longer than the 20 us after which the
// runtime may want the P for another goroutine.
//
// SAFETY: buf is at least a slot long and lies in the arena, which is mapped
// until Close; the other pointers are wire's. KeepAlive holds q over the call.
func (q *Queue) read(buf []byte) (n int, truncated bool, errno unix.Errno) {
	if q.kind != kindPacket {
		r, _, errno := unix.Syscall(unix.SYS_READ,
			uintptr(q.fd), uintptr(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf)))
		return int(r), false, errno
	}
	m := &q.receive.msg
	q.receive.iov.Base = unsafe.SliceData(buf)
	q.receive.iov.SetLen(len(buf))
	m.SetControllen(int(unsafe.Sizeof(q.receive.control)))
	r, _, errno := unix.Syscall(unix.SYS_RECVMSG, uintptr(q.fd), uintptr(unsafe.Pointer(m)), 0)
	runtime.KeepAlive(q)
	return int(r), m.Flags&unix.MSG_TRUNC != 0, errno
}

// gatherer is the scratch of writev and sendmmsg: what a Transmitter points at
// the frames that it writes. It is wired once and must not be copied afterwards.
type gatherer struct {
	headers [MaxBatch][vnet.HeaderLen]byte
	iovs    [maxPieces]unix.Iovec
	msgs    [MaxBatch]unix.Mmsghdr
	used    int // iovs in use
}

// add appends a frame, whose header is in headers[i], as message i. It reports
// false if there are not enough iovecs left.
//
// SAFETY: Base fields are typed pointers, so the collector sees the frames; they
// are cleared by release. The iovecs do not move: g is on the heap.
func (g *gatherer) add(i, headerLen int, f *vnet.Frame) bool {
	iovs := g.iovs[g.used:]
	if 2+len(f.Body) > len(iovs) {
		return false
	}
	setIovec(&iovs[0], g.headers[i][:headerLen])
	setIovec(&iovs[1], f.Head)
	n := 2
	for _, p := range f.Body {
		if len(p) > 0 {
			setIovec(&iovs[n], p)
			n++
		}
	}
	g.msgs[i].Hdr.Iov = &iovs[0]
	g.msgs[i].Hdr.SetIovlen(n)
	g.used += n
	return true
}

func setIovec(v *unix.Iovec, p []byte) {
	v.Base = unsafe.SliceData(p)
	v.SetLen(len(p))
}

// release forgets the frames: scratch must not keep a batch alive or point into an arena that is
// unmapped.
func (g *gatherer) release() {
	clear(g.iovs[:g.used])
	g.used = 0
}

// sendmmsg sends the first n messages and returns how many were taken. An errno is the first
// message's: after a message that was taken, the kernel does not report one.
//
// Syscall, not RawSyscall: a write runs the kernel's receive side, up to TCP, and may take any
// time.
//
// SAFETY: add wired n messages; their memory is reachable from g, kept alive.
func (g *gatherer) sendmmsg(fd, n int) (sent int, errno unix.Errno) {
	r, _, errno := unix.Syscall6(unix.SYS_SENDMMSG,
		uintptr(fd), uintptr(unsafe.Pointer(&g.msgs)), uintptr(n), 0, 0, 0)
	runtime.KeepAlive(g)
	if errno != 0 {
		return 0, errno
	}
	return int(r), 0
}

// writev writes the first message. SAFETY: as sendmmsg.
func (g *gatherer) writev(fd int) unix.Errno {
	m := &g.msgs[0].Hdr
	_, _, errno := unix.Syscall(unix.SYS_WRITEV,
		uintptr(fd), uintptr(unsafe.Pointer(m.Iov)), uintptr(m.Iovlen))
	runtime.KeepAlive(g)
	return errno
}
