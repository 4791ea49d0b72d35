package debian

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// packages make up the userland, with everything that they depend on: QEMU for the host, depmod and
// xz for kernels, and the programs that tests run in guests.
var packages = []string{
	"qemu-system-x86", "kmod", "xz-utils",
	"busybox-static", "dash", "util-linux", "iproute2", "iperf3", "ethtool", "tcpdump", "dnsmasq-base",
	"procps", "psmisc",
}

// Userland is a directory tree of unpacked packages.
type Userland struct {
	dir string
}

// Userland returns the userland, from the archive if it is not in the cache.
func (c *Cache) Userland() (*Userland, error) {
	names := append(slices.Clone(packages), userlandSuite)
	hash := sha256.Sum256([]byte(strings.Join(names, " ")))
	dir, err := c.fill(fmt.Sprintf("userland-%x", hash[:4]), func(dir string) error {
		a, err := c.apt()
		if err != nil {
			return err
		}
		if err := a.update(listsAge); err != nil {
			return err
		}
		return a.fetch(dir, func() error { return a.downloadAll(userlandSuite, packages) })
	})
	if err != nil {
		return nil, err
	}
	return &Userland{dir}, nil
}

// Path is the host's path of a file or directory, which name gives from the userland's root.
func (u *Userland) Path(name string) string { return filepath.Join(u.dir, name) }

// Libraries are the directories of the userland's shared libraries.
func (u *Userland) Libraries() []string {
	return []string{u.Path("lib/x86_64-linux-gnu"), u.Path("usr/lib/x86_64-linux-gnu")}
}

// Program finds a program of the userland.
func (u *Userland) Program(name string) (string, error) {
	for _, dir := range []string{"usr/bin", "bin", "usr/sbin", "sbin"} {
		if file, err := u.follow(filepath.Join(dir, name)); err == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("debian: userland: %w: %s", exec.ErrNotFound, name)
}

// follow resolves a name in the userland. An absolute link target counts from the userland's root.
func (u *Userland) follow(name string) (string, error) {
	for range 8 {
		info, err := os.Lstat(u.Path(name))
		if err != nil {
			return "", err
		}
		if info.Mode()&os.ModeSymlink == 0 {
			return u.Path(name), nil
		}
		target, err := os.Readlink(u.Path(name))
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(name), target)
		}
		name = target
	}
	return "", &os.PathError{Op: "follow", Path: name, Err: unix.ELOOP}
}

// Command is a command line that runs a program of the userland on this machine,
// with the userland's loader and libraries.
func (u *Userland) Command(name string, args ...string) ([]string, error) {
	file, err := u.Program(name)
	if err != nil {
		return nil, err
	}
	return append([]string{
		u.Path("lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"),
		"--library-path", strings.Join(u.Libraries(), ":"),
		"--argv0", filepath.Base(name), // kmod looks at it
		file,
	}, args...), nil
}

func (u *Userland) run(name string, args ...string) error {
	line, err := u.Command(name, args...)
	if err != nil {
		return err
	}
	if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("debian: %s: %w", name, err),
			errors.New(strings.TrimSpace(string(out))))
	}
	return nil
}
