package control

import (
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxGroups is NGROUPS_MAX (include/uapi/linux/limits.h).
const maxGroups = 65536

// peerGroups are the supplementary groups that the peer had when it connected.
func peerGroups(c net.Conn) (groups []uint32, err error) {
	const width = unsafe.Sizeof(groups[0])
	asked := ask(c, func(fd int) {
		groups = make([]uint32, 32)
		for {
			size := uint32(len(groups) * int(width))
			// SAFETY: the kernel writes at most size bytes to groups, and what it wrote or
			// would need to size (sk_getsockopt in net/core/sock.c).
			_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
				uintptr(unsafe.Pointer(unsafe.SliceData(groups))), uintptr(unsafe.Pointer(&size)), 0)
			switch {
			case errno == 0:
				groups = groups[:size/uint32(width)]
				return
			case errno != unix.ERANGE || len(groups) == maxGroups:
				groups, err = nil, errno
				return
			}
			groups = make([]uint32, min(maxGroups, size/uint32(width)))
		}
	})
	if asked != nil {
		return nil, asked
	}
	return groups, err
}
