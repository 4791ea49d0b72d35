package control

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// change changes who the calling thread is; x/sys changes all threads of the process.
func change(uid int, groups []uint32) unix.Errno {
	// SAFETY: the kernel reads len(groups) numbers (setgroups in kernel/groups.c).
	_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0)
	for _, call := range []uintptr{unix.SYS_SETRESGID, unix.SYS_SETRESUID} {
		if errno == 0 {
			_, _, errno = unix.RawSyscall(call, uintptr(uid), uintptr(uid), uintptr(uid))
		}
	}
	return errno
}
