package tunio

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/vnet"
)

// OpError says which step on which object failed, and how to fix it.
type OpError struct {
	Op   string // "open tap", "set offloads"
	Name string // the device or the file
	Err  error  // the cause; os.ErrNotExist, os.ErrPermission, errors.ErrUnsupported where they fit
	Hint string // the command that fixes it, or what to look at; may be empty
}

func (e *OpError) Error() string {
	s := "tunio: " + e.Op + " " + e.Name + ": " + e.Err.Error()
	if e.Hint != "" {
		s += "; try: " + e.Hint
	}
	return s
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// cause is a sentence about a device that errors.Is knows by its class.
type cause struct {
	text  string
	class error
}

func (c *cause) Error() string { return c.text }
func (c *cause) Unwrap() error { return c.class }

func causef(class error, format string, a ...any) error {
	return &cause{fmt.Sprintf(format, a...), class}
}

// Operations that an OpError names.
const (
	opTap     = "open tap"
	opPacket  = "open packet socket on"
	opMacvtap = "open macvtap"
)

// permission is the error for a missing capability.
func permission(op, name, capability string, errno error) error {
	return &OpError{op, name,
		causef(errno, "no permission, %s is needed", capability),
		fmt.Sprintf("sudo, or setcap %s+ep on the binary", strings.ToLower(capability))}
}

// checkName reports a name that no device can have (dev_valid_name,
// net/core/dev.c), or that TUNSETIFF would take for a pattern.
func checkName(op, name string) error {
	if len(name) >= unix.IFNAMSIZ {
		return &OpError{op, name, causef(unix.ENAMETOOLONG,
			"the name has %d bytes, a device's at most %d", len(name), unix.IFNAMSIZ-1),
			"a shorter name"}
	}
	ok := name != "" && name != "." && name != ".."
	for _, c := range []byte(name) {
		ok = ok && c > ' ' && c != '/' && c != ':' && c != '%' && c != 0x7f
	}
	if !ok {
		return &OpError{op, fmt.Sprintf("%q", name),
			causef(fs.ErrInvalid, "not a device name"), "ip -brief link"}
	}
	return nil
}

// checkQueues reports a number of queues that the kernel never takes: MAX_TAP_QUEUES and
// PACKET_FANOUT_MAX are both 256 (drivers/net/tun.c, include/linux/if_tap.h,
// include/uapi/linux/if_packet.h).
func checkQueues(op, name string, queues int) error {
	const most = 256
	if queues < 1 || queues > most {
		return &OpError{op, name,
			causef(fs.ErrInvalid, "%d queues are not within 1 to %d", queues, most), ""}
	}
	return nil
}

// noDevice is the error for a name that the namespace does not know.
func noDevice(op, name, hint string) error {
	return &OpError{op, name, causef(os.ErrNotExist, "no such device"), hint}
}

// refusal is what the errno of a write of f means. A packet socket answers ENOBUFS when memory is
// short, but also when the frame was dropped on its way to the device, mostly by a full queueing
// discipline (net_xmit_errno in packet_snd). Up to 64 KiB it is taken to mean the second, since the
// kernel finds that much memory. A macvtap does not report such drops (tap_get_user ignores what
// dev_queue_xmit returns), and a tap has no such queue.
func (t *Transmitter) refusal(errno unix.Errno, f *vnet.Frame) vnet.Refusal {
	if errno == unix.ENOBUFS && t.socket && f.Len() <= vnet.LegacyGSOMaxSize {
		return vnet.Congested
	}
	return refusal(errno)
}

// refusal is what an errno of a write means: drivers/net/tun.c tun_get_user,
// drivers/net/tap.c tap_get_user, net/packet/af_packet.c packet_snd.
func refusal(errno unix.Errno) vnet.Refusal {
	switch errno {
	case 0:
		return vnet.Accepted
	case unix.EAGAIN:
		return vnet.Full
	case unix.ENOBUFS, unix.ENOMEM:
		return vnet.NoMemory
	case unix.EMSGSIZE:
		return vnet.TooBig
	case unix.EINVAL:
		return vnet.BadGSO
	case unix.ENETDOWN, unix.EIO: // EIO: a tap that is down
		return vnet.Down
	case unix.ENXIO, unix.EBADFD, unix.ENODEV, unix.EBADF:
		return vnet.Gone
	}
	return vnet.Failed
}

// readError is the error for an errno of a read after which the queue cannot be used.
func (q *Queue) readError(errno unix.Errno) error {
	if refusal(errno) == vnet.Gone {
		return vnet.ErrGone
	}
	return &OpError{"read", q.name, errno, ""}
}

// unsupported reports whether the kernel does not know an option.
func unsupported(err error) bool {
	return errors.Is(err, unix.ENOPROTOOPT) || errors.Is(err, unix.EINVAL)
}
