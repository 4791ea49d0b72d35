package confine

import (
	"errors"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// capset makes the intersection of keep and what is permitted the calling thread's and every
// other thread's effective and permitted capabilities.
func capset(keep set) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3} // Pid 0: the thread that calls
	var data [2]unix.CapUserData                                           // the lower 32, and the others
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	for i := range data {
		data[i].Permitted &= uint32(keep >> (32 * i))
		data[i].Effective = data[i].Permitted
		data[i].Inheritable = 0
	}
	// SAFETY: header and data outlive the call, which every thread makes before it returns,
	// and hold no pointers. The kernel only reads data.
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET,
		uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0)
	runtime.KeepAlive(&header)
	runtime.KeepAlive(&data)
	switch errno {
	case 0:
		return nil
	case unix.ENOTSUP:
		return errors.New("this sluice was built with cgo, which knows threads that Go does not: build it with CGO_ENABLED=0, as `make build` does")
	}
	return errno
}
