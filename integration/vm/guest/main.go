// Command guest is the init of a test's guest. As process 1 it mounts the usual file systems, loads
// the listed modules, brings the loopback up, and starts itself again as the agent. Then it only
// reaps processes whose parents have ended. The agent carries out what it is told through the
// virtio-serial port; package wire defines the protocol.
//
// They are two processes because process 1 reaps all orphans, and would also reap the children
// whose exit status the agent waits for.
//
// The kernel's command line is not read. Errors before the port is open go to the console.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// modulesList is the file that lists what to load: one file a line, in order.
const modulesList = "/etc/modules"

// environment is every command's initial environment.
var environment = []string{
	"PATH=/usr/bin", "HOME=/", "TMPDIR=/tmp", "TERM=dumb", "LC_ALL=C", "USER=root",
}

func main() {
	if os.Getpid() != 1 {
		fatal(agent())
	}
	if err := prepare(); err != nil {
		fatal(err)
	}
	agent := exec.Command("/proc/self/exe")
	agent.Stdout, agent.Stderr, agent.Env = os.Stdout, os.Stderr, environment
	if err := agent.Start(); err != nil {
		fatal(err)
	}
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if pid == agent.Process.Pid || err != nil && !errors.Is(err, unix.EINTR) {
			fatal(errors.New("the agent has ended"))
		}
	}
}

// fatal says why and exits. The end of process 1 is a kernel panic, which the kernel's command line
// turns into the end of the guest.
func fatal(err error) {
	fmt.Fprintln(os.Stderr, "guest:", err)
	os.Exit(1)
}

// prepare makes a Linux system out of the bare kernel.
func prepare() error {
	for _, m := range []struct {
		fs, dir string
		flags   uintptr
		may     bool // the kernel may lack it
	}{
		{"proc", "/proc", 0, false},
		{"sysfs", "/sys", 0, false},
		{"devtmpfs", "/dev", 0, false},
		{"devpts", "/dev/pts", 0, false},
		{"tmpfs", "/dev/shm", 0, false},
		{"tmpfs", "/run", 0, false},
		{"tmpfs", "/tmp", 0, false},
		{"cgroup2", "/sys/fs/cgroup", 0, true},
		{"bpf", "/sys/fs/bpf", 0, true},
		{"debugfs", "/sys/kernel/debug", 0, true},
		{"tracefs", "/sys/kernel/tracing", 0, true},
	} {
		err := os.MkdirAll(m.dir, 0o755)
		if err == nil {
			err = unix.Mount(m.fs, m.dir, m.fs, m.flags, "")
		}
		if err != nil && !m.may {
			return fmt.Errorf("mount %s on %s: %w", m.fs, m.dir, err)
		}
	}
	for link, target := range map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0",
		"/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, link); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if err := os.Chmod("/tmp", 0o1777); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte("guest")); err != nil {
		return fmt.Errorf("set the host's name: %w", err)
	}
	if err := loadModules(); err != nil {
		return err
	}
	if err := makeNodes(); err != nil {
		return err
	}
	return loopbackUp()
}

// makeNodes makes the nodes in /dev that make the kernel load a module when opened, such as
// /dev/net/tun.
func makeNodes() error {
	files, err := filepath.Glob("/usr/lib/modules/*/modules.devname")
	if err != nil {
		return err
	}
	if len(files) != 1 {
		return fmt.Errorf("modules of %d kernels: %q", len(files), files)
	}
	table, err := os.ReadFile(files[0])
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(table)) {
		var module, name string
		var kind rune
		var major, minor uint32
		if _, err := fmt.Sscanf(line, "%s %s %c%d:%d", &module, &name, &kind, &major, &minor); err != nil {
			return fmt.Errorf("%s: %q: %w", files[0], line, err)
		}
		mode := uint32(unix.S_IFCHR)
		if kind == 'b' {
			mode = unix.S_IFBLK
		}
		name = filepath.Join("/dev", name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		err := unix.Mknod(name, mode|0o600, int(unix.Mkdev(major, minor)))
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("make %s: %w", name, err)
		}
	}
	return nil
}

// loadModules loads the listed modules in order.
func loadModules() error {
	list, err := os.ReadFile(modulesList)
	if err != nil {
		return err
	}
	for file := range strings.FieldsSeq(string(list)) {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load %s: %w", file, err)
		}
	}
	return nil
}

// loopbackUp does what `ip link set lo up` does.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	return nil
}
