package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// namePrefix starts the name of a maker's directory, sluice-PID-RANDOM. That in turn starts the
	// names of its namespaces: sluice-PID-RANDOM-LAB-NAME.
	namePrefix = "sluice-"
	// lockFile marks a directory as a maker's. The maker holds a lock on it as long as it lives;
	// the kernel releases the lock of a dead one. A pid proves nothing: it may be from another pid
	// namespace, or only part of a name.
	lockFile = "maker.lock"
)

// maker is a process that makes labs and temporary directories. It has a directory while it has any
// of them.
type maker struct {
	mu   sync.Mutex
	labs int      // guarded by mu: how many are open
	dir  string   // guarded by mu: holds the lock file and temporary directories; or ""
	lock *os.File // guarded by mu
}

// self is this process.
var self maker

// enter is called for each lab, and leave when it has closed. enter returns the start of the names
// of the lab's namespaces.
func (m *maker) enter() (name string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.open(); err != nil {
		return "", err
	}
	m.labs++
	return filepath.Base(m.dir), nil
}

func (m *maker) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.labs--
	m.tidy()
}

// open makes the maker's directory unless it is there. m.mu is held.
func (m *maker) open() (err error) {
	if m.dir != "" {
		return nil
	}
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-*", namePrefix, os.Getpid()))
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	if err := os.Chmod(dir, 0o711); err != nil { // its content may be for other users
		return err
	}
	// The file gets its name only when it is locked, so that no process finds it unlocked.
	fresh := filepath.Join(dir, "fresh")
	lock, err := os.OpenFile(fresh, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(tryLock(lock), os.Rename(fresh, filepath.Join(dir, lockFile)))
	if err != nil {
		lock.Close()
		return err
	}
	m.dir, m.lock = dir, lock
	return nil
}

// tidy removes the maker's directory if nothing needs it. m.mu is held.
func (m *maker) tidy() {
	entries, err := os.ReadDir(m.dir)
	if m.dir == "" || m.labs > 0 || err != nil || len(entries) > 1 {
		return
	}
	os.RemoveAll(m.dir)
	m.lock.Close()
	m.dir, m.lock = "", nil
}

// TempDir makes a temporary directory, whose name contains word. The caller removes it with
// RemoveDir. If the caller's process is killed, the next New or TempDir of any process with the
// same user and os.TempDir removes it.
func TempDir(word string) (string, error) {
	sweep()
	self.mu.Lock()
	defer self.mu.Unlock()
	if err := self.open(); err != nil {
		return "", err
	}
	return os.MkdirTemp(self.dir, word+"-*")
}

// RemoveDir removes a directory of TempDir and its content. It may already be gone.
func RemoveDir(dir string) error {
	err := os.RemoveAll(dir)
	self.mu.Lock()
	defer self.mu.Unlock()
	self.tidy()
	return err
}

// sweep removes what dead makers left, which were killed or ended by a test's timeout. After an
// error the next sweep tries again.
func sweep() {
	entries, _ := os.ReadDir(os.TempDir())
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), namePrefix) {
			bury(filepath.Join(os.TempDir(), e.Name()))
		}
	}
}

// bury removes a maker's directory and namespaces if dir is such a directory, this user's, and the
// maker is dead.
func bury(dir string) {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		return
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer lock.Close()
	if tryLock(lock) != nil {
		return
	}
	names, _ := os.ReadDir(runDir)
	for _, ns := range names {
		if strings.HasPrefix(ns.Name(), filepath.Base(dir)+"-") && removeName(ns.Name()) != nil {
			return // without its maker's directory no sweep would touch it
		}
	}
	_ = os.RemoveAll(dir)
}

// tryLock locks a file, unless another open file has the lock.
func tryLock(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}
