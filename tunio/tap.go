package tunio

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"sluice/vnet"
)

const (
	clonePath = "/dev/net/tun"
	netAdmin  = "CAP_NET_ADMIN"
)

// TapConfig says which tap to open.
type TapConfig struct {
	Name   string
	Queues int  // 1, or more for a tap made with multi_queue
	Create bool // make it if missing; it is then deleted with its last queue
}

// flags are the device flags that the configuration asks for, as TUNSETIFF takes
// them.
func (c *TapConfig) flags() uint16 {
	f := uint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if c.Queues > 1 {
		f |= unix.IFF_MULTI_QUEUE
	}
	return f
}

// command is the command that makes the tap as the configuration wants it.
func (c *TapConfig) command() string {
	s := "ip tuntap add dev " + c.Name + " mode tap vnet_hdr"
	if c.Queues > 1 {
		s += " multi_queue"
	}
	return s
}

// again is the command that replaces a wrong tap with the right one.
func (c *TapConfig) again() string { return "ip link del dev " + c.Name + " && " + c.command() }

// OpenTap opens a tap in the calling thread's network namespace, one queue after
// the other. An existing one must have the multi_queue flag exactly if more than
// one queue is asked for. The queues' headers are vnet.HeaderLen bytes; every offload
// that the kernel knows is granted to it.
func OpenTap(c TapConfig) (_ []*Queue, err error) {
	if err := checkName(opTap, c.Name); err != nil {
		return nil, err
	}
	if err := checkQueues(opTap, c.Name, c.Queues); err != nil {
		return nil, err
	}
	dev, found, err := lookup(opTap, c.Name)
	if err != nil {
		return nil, err
	}
	if found {
		err = c.differs(&dev)
	} else if !c.Create {
		err = noDevice(opTap, c.Name, c.command())
	}
	if err != nil {
		return nil, err
	}
	var queues []*Queue
	defer func() {
		if err != nil {
			closeAll(queues)
		}
	}()
	for range c.Queues {
		q, err := c.open()
		if err != nil {
			return nil, err
		}
		queues = append(queues, q)
	}
	return queues, nil
}

// differs says how an existing device differs from the one wanted, or nil.
func (c *TapConfig) differs(dev *netdev) error {
	switch {
	case dev.kind != "tun":
		return &OpError{opTap, c.Name,
			causef(fs.ErrInvalid, "the device is not a tap%s", dev.kindNote()),
			"packet:" + c.Name + " as the port's device, or another name"}
	case !dev.isTap:
		return &OpError{opTap, c.Name,
			causef(fs.ErrInvalid, "wrong mode: the device is a TUN, not a TAP"), c.again()}
	case dev.multiQueue && c.Queues == 1:
		return &OpError{opTap, c.Name,
			causef(fs.ErrInvalid, "the device has the multi_queue flag, and 1 queue is wanted"),
			"queues=2, or " + c.again()}
	case !dev.multiQueue && c.Queues > 1:
		return &OpError{opTap, c.Name, causef(fs.ErrInvalid,
			"the device lacks the multi_queue flag, and %d queues are wanted", c.Queues),
			"queues=1, or " + c.again()}
	case dev.queues > 0:
		return busyTap(c.Name)
	}
	return nil
}

// kindNote is the kind of the device, for a message that says what it is not.
func (d *netdev) kindNote() string {
	if d.kind == "" {
		return ""
	}
	return " but a " + d.kind
}

func busyTap(name string) error {
	return &OpError{opTap, name,
		causef(unix.EBUSY, "the device is busy: another process has opened it"),
		`grep -ls "iff:.` + name + `$" /proc/[0-9]*/fdinfo/*  (names the process)`}
}

// open attaches one queue.
func (c *TapConfig) open() (_ *Queue, err error) {
	fd, err := unix.Open(clonePath, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, cloneError(err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	ifr, err := unix.NewIfreq(c.Name)
	if err != nil {
		return nil, &OpError{opTap, c.Name, err, ""}
	}
	ifr.SetUint16(c.flags())
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		return nil, c.attachError(err)
	}
	offloads, err := setUpTap(fd, c.Name)
	if err != nil {
		return nil, err
	}
	return newQueue(fd, kindTap, c.Name, vnet.HeaderLen, offloads)
}

// cloneError says why /dev/net/tun cannot be opened.
func cloneError(err error) error {
	hint := ""
	switch {
	case errors.Is(err, os.ErrNotExist):
		hint = "modprobe tun; mkdir -p /dev/net && mknod " + clonePath + " c 10 200"
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		hint = "modprobe tun"
	case errors.Is(err, os.ErrPermission):
		hint = "chmod 0666 " + clonePath + "  (the device itself asks for " + netAdmin + ")"
	}
	return &OpError{"open", clonePath, err, hint}
}

// attachError says why TUNSETIFF was refused (drivers/net/tun.c tun_set_iff).
func (c *TapConfig) attachError(err error) error {
	switch err {
	case unix.EPERM, unix.EACCES:
		return permission(opTap, c.Name, netAdmin, err)
	case unix.EBUSY, unix.E2BIG: // E2BIG: 256 queues are attached
		return busyTap(c.Name)
	case unix.EINVAL:
		// The device may have changed since differs looked at it.
		dev, found, lookupErr := lookup(opTap, c.Name)
		if lookupErr == nil && found {
			if err := c.differs(&dev); err != nil {
				return err
			}
		}
	}
	return &OpError{opTap, c.Name, err, ""}
}

// setUpTap sets the header's length and byte order, and the offloads. It serves
// taps and macvtaps.
func setUpTap(fd int, name string) (Offloads, error) {
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, vnet.HeaderLen); err != nil {
		return Offloads{}, &OpError{"set header length of", name, err, ""}
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETLE, 1); err != nil {
		return Offloads{}, &OpError{"set byte order of", name, err, ""}
	}
	// TUNSETOFFLOAD answers EINVAL for a bit that the kernel does not know. USO came with Linux
	// 6.2, and needs both bits (tun.c set_offload).
	const (
		tso = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6
		ecn = unix.TUN_F_TSO_ECN
		uso = unix.TUN_F_USO4 | unix.TUN_F_USO6
	)
	var err error
	for _, bits := range []int{tso | ecn | uso, tso | ecn, tso, unix.TUN_F_CSUM, 0} {
		if err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, bits); err == nil {
			return Offloads{
				Csum: bits&unix.TUN_F_CSUM != 0,
				TSO4: bits&unix.TUN_F_TSO4 != 0,
				TSO6: bits&unix.TUN_F_TSO6 != 0,
				ECN:  bits&ecn != 0,
				USO:  bits&uso != 0,
			}, nil
		}
		if err != unix.EINVAL {
			break
		}
	}
	return Offloads{}, &OpError{"set offloads of", name, err, ""}
}
