package tunio

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/vnet"
)

// OpenMacvtap opens a macvtap in the calling thread's network namespace. Until its queues are
// closed, no other process can open it through this package.
func OpenMacvtap(name string, queues int) (_ []*Queue, err error) {
	if err := checkName(opMacvtap, name); err != nil {
		return nil, err
	}
	if err := checkQueues(opMacvtap, name, queues); err != nil {
		return nil, err
	}
	dev, found, err := lookup(opMacvtap, name)
	if err != nil {
		return nil, err
	}
	add := "ip link add link LOWER name " + name + " type macvtap mode passthru"
	if !found {
		return nil, noDevice(opMacvtap, name, add)
	}
	if dev.kind != "macvtap" {
		return nil, &OpError{opMacvtap, name,
			causef(fs.ErrInvalid, "the device is not a macvtap%s", dev.kindNote()),
			"packet:" + name + " as the port's device, or another name and " + add}
	}
	lock, rdev, err := lockMacvtap(name, dev.index)
	if err != nil {
		return nil, err
	}
	defer unix.Close(lock) // each queue holds a duplicate
	var made []*Queue
	defer func() {
		if err != nil {
			closeAll(made)
		}
	}()
	for range queues {
		q, err := openMacvtap(name, dev.index, rdev, lock)
		if err != nil {
			return nil, err
		}
		made = append(made, q)
	}
	return made, nil
}

// lockMacvtap finds the device number of a macvtap's character device and takes the lock that marks
// it as in use. The kernel itself lets any number of processes open it, and spreads the frames over
// them. The lock is an flock on the sysfs attribute that holds the number. That file is the same
// for all processes in the namespace, whichever node they open, and a new one when the device is
// made again.
func lockMacvtap(name string, index int) (_ int, rdev uint64, err error) {
	sys, err := openSysfs()
	if err != nil {
		return -1, 0, &OpError{opMacvtap, name, fmt.Errorf("sysfs: %w", err),
			"mount -t sysfs sysfs /sys"}
	}
	defer unix.Close(sys)
	attribute := fmt.Sprintf("class/net/%s/tap%d/dev", name, index)
	lock, err := unix.Openat(sys, attribute, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, 0, &OpError{opMacvtap, name, fmt.Errorf("sysfs %s: %w", attribute, err),
			"mount -t sysfs sysfs /sys  (in the device's network namespace)"}
	}
	defer func() {
		if err != nil {
			unix.Close(lock)
		}
	}()
	err = unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return -1, 0, &OpError{opMacvtap, name,
			causef(unix.EBUSY, "the device is busy: another process has opened it"),
			"fuser /sys/" + attribute + "  (names the process)"}
	}
	if err != nil {
		return -1, 0, &OpError{"lock", name, err, ""}
	}
	var text [32]byte
	n, err := unix.Read(lock, text[:])
	if err != nil {
		return -1, 0, &OpError{opMacvtap, name, fmt.Errorf("sysfs %s: %w", attribute, err), ""}
	}
	rdev, err = parseDev(string(text[:n]))
	if err != nil {
		return -1, 0, &OpError{opMacvtap, name, fmt.Errorf("sysfs %s: %w", attribute, err), ""}
	}
	return lock, rdev, nil
}

// openSysfs opens the root of a sysfs that shows the calling thread's network namespace. /sys shows
// the namespace of the process that mounted it, so a mount of our own, detached from the tree, is
// tried first (fsopen, Linux 5.2; it needs CAP_SYS_ADMIN).
func openSysfs() (int, error) {
	if context, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC); err == nil {
		defer unix.Close(context)
		if unix.FsconfigCreate(context) == nil {
			mount, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_RDONLY)
			if err == nil {
				return mount, nil
			}
		}
	}
	return unix.Open("/sys", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// parseDev reads the "major:minor" of a sysfs dev attribute.
func parseDev(text string) (uint64, error) {
	a, b, ok := strings.Cut(strings.TrimSpace(text), ":")
	major, errA := strconv.ParseUint(a, 10, 32)
	minor, errB := strconv.ParseUint(b, 10, 32)
	if !ok || errA != nil || errB != nil {
		return 0, fmt.Errorf("%q is not a device number", text)
	}
	return unix.Mkdev(uint32(major), uint32(minor)), nil
}

// openMacvtap opens one queue and lets it hold the lock.
func openMacvtap(name string, index int, rdev uint64, lock int) (_ *Queue, err error) {
	fd, err := openNode(index, rdev)
	if errors.Is(err, os.ErrPermission) {
		return nil, permission(opMacvtap, name, netAdmin+",CAP_MKNOD", err)
	}
	if err != nil {
		return nil, &OpError{opMacvtap, name, err, ""}
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return nil, &OpError{opMacvtap, name, err, ""}
	}
	ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		return nil, &OpError{opMacvtap, name, err, ""}
	}
	offloads, err := setUpTap(fd, name)
	if err != nil {
		return nil, err
	}
	// Without it a write answers EAGAIN once 208 KiB are on their way down.
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETSNDBUF, sendBuffer); err != nil {
		return nil, &OpError{"set send buffer of", name, err, ""}
	}
	held, err := unix.FcntlInt(uintptr(lock), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, &OpError{"lock", name, err, ""}
	}
	q, err := newQueue(fd, kindMacvtap, name, vnet.HeaderLen, offloads)
	if err != nil {
		unix.Close(held)
		return nil, err
	}
	q.lock = held
	return q, nil
}

// openNode opens the character device with the number rdev. /dev/tapN is named after the interface
// index N, which is unique only within a namespace, so it may belong to another device or, in a
// container, be missing. Then a private node is made, and removed again after it was opened.
func openNode(index int, rdev uint64) (int, error) {
	fd, err := openChecked(fmt.Sprintf("/dev/tap%d", index), rdev)
	for _, parent := range []string{"/dev", os.TempDir()} {
		if err == nil || errors.Is(err, unix.EBUSY) {
			break
		}
		fd, err = openPrivate(parent, rdev)
	}
	return fd, err
}

// openChecked opens path if it is the character device rdev.
func openChecked(path string, rdev uint64) (_ int, err error) {
	// Check before opening: opening another macvtap would take frames from it.
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return -1, fmt.Errorf("%s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != rdev {
		return -1, fmt.Errorf("%s: another device: %w", path, os.ErrNotExist)
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", path, err)
	}
	return fd, nil
}

// openPrivate opens rdev through a node in a folder of its own under parent.
func openPrivate(parent string, rdev uint64) (int, error) {
	folder, err := os.MkdirTemp(parent, ".sluice-")
	if err != nil {
		return -1, err
	}
	defer os.RemoveAll(folder)
	node := filepath.Join(folder, "tap")
	if err := unix.Mknod(node, unix.S_IFCHR|0o600, int(rdev)); err != nil {
		return -1, fmt.Errorf("mknod %s: %w", node, err)
	}
	return openChecked(node, rdev)
}

// macvtapState is vnet.ErrGone if the macvtap was deleted, else nil. Its reads and writes do not
// show that (tap_ioctl, drivers/net/tap.c).
func macvtapState(fd int) error {
	ifr := new(unix.Ifreq)
	if err := unix.IoctlIfreq(fd, unix.TUNGETIFF, ifr); errors.Is(err, unix.ENOLINK) {
		return vnet.ErrGone
	}
	return nil
}
