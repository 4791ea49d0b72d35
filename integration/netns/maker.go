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
	// namePrefix starts the name of a maker's directory, sluice-PID-RANDOM, which
	// starts the names of its namespaces: sluice-PID-RANDOM-LABORATORY-NAME.
	namePrefix = "sluice-"
	// lockFile is what makes a directory a maker's. The maker holds a lock on it as
	// long as it lives; the kernel takes the lock from the dead. A pid would prove
	// nothing: it may be of another pid namespace, or of nobody's but in a name.
	lockFile = "maker.lock"
)

// maker is a process that makes laboratories and temporary directories. It has a
// directory while it has any of them.
type maker struct {
	mu   sync.Mutex
	labs int      // guarded by mu: how many are open
	dir  string   // guarded by mu: holds the lock file and temporary directories; or ""
	lock *os.File // guarded by mu
}

// self is this process.
var self maker

// enter is called for each laboratory, and leave when it has closed. What it returns
// starts the names of the laboratory's namespaces.
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
	if err := os.Chmod(dir, 0o711); err != nil { // what is in it may be for others
		return err
	}
	// The file gets its name when it is locked, so that nobody finds it free.
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

// TempDir makes a temporary directory. The caller ends it with RemoveDir; if the
// caller's process is killed, the next New or TempDir of any process of the same user
// and with the same os.TempDir does. The word says what it is for.
func TempDir(word string) (string, error) {
	sweep()
	self.mu.Lock()
	defer self.mu.Unlock()
	if err := self.open(); err != nil {
		return "", err
	}
	return os.MkdirTemp(self.dir, word+"-*")
}

// RemoveDir removes a directory of TempDir with all that is in it. It may be gone
// already.
func RemoveDir(dir string) error {
	err := os.RemoveAll(dir)
	self.mu.Lock()
	defer self.mu.Unlock()
	self.tidy()
	return err
}

// sweep removes what dead makers have left: killed, or ended by a test's timeout. An
// error leaves it to the next sweep.
func sweep() {
	entries, _ := os.ReadDir(os.TempDir())
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), namePrefix) {
			bury(filepath.Join(os.TempDir(), e.Name()))
		}
	}
}

// bury removes a maker's directory and namespaces if dir is one, of this user's, and
// the maker is dead.
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
			return // without its maker's directory nobody would dare
		}
	}
	_ = os.RemoveAll(dir)
}

// tryLock takes the lock of a file unless another open file has it.
func tryLock(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}
