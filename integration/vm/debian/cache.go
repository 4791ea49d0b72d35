package debian

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// ErrUnavailable says why there is no QEMU or no kernel: the machine does not run Debian, is not
// amd64, or cannot reach the archive.
var ErrUnavailable = errors.New("not available on this machine")

// unavailable wraps err as a reason of ErrUnavailable.
func unavailable(op string, err error) error {
	return fmt.Errorf("debian: %s: %w: %w", op, ErrUnavailable, err)
}

// arch is Debian's name of the only supported architecture.
const arch = "amd64"

// Cache is a directory of fetched files.
type Cache struct {
	dir string
}

// OpenCache opens the user's cache, or makes it.
func OpenCache() (*Cache, error) {
	if runtime.GOARCH != arch {
		return nil, unavailable("cache", fmt.Errorf("guests are %s, this is %s", arch, runtime.GOARCH))
	}
	for _, program := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, unavailable("cache", err)
		}
	}
	dir := os.Getenv("SLUICE_VM_CACHE")
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil { // no $HOME: any place that is kept will do
			base = "/var/cache"
		}
		dir = filepath.Join(base, "sluice", "vm")
	}
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		// Even a complete cache is written to: apt keeps its state there.
		err = unix.Access(dir, unix.W_OK)
	}
	if err != nil {
		return nil, unavailable("cache "+dir, err)
	}
	return &Cache{dir}, nil
}

// Dir is where the cache is.
func (c *Cache) Dir() string { return c.dir }

// lock keeps other processes, and goroutines, from filling the cache until unlock.
func (c *Cache) lock() (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(c.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("debian: lock: %w", err)
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("debian: lock: %w", err)
	}
	return func() { f.Close() }, nil
}

// fill returns the directory name in the cache. If it is missing, the argument fill makes it, in
// another place, so that an incomplete directory is never mistaken for a whole one.
func (c *Cache) fill(name string, fill func(dir string) error) (_ string, err error) {
	dir := filepath.Join(c.dir, name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	unlock, err := c.lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil { // another process was faster
		return dir, nil
	}
	part := dir + ".part"
	defer os.RemoveAll(part)
	err = errors.Join(os.RemoveAll(part), os.MkdirAll(part, 0o755))
	if err == nil {
		err = fill(part)
	}
	if err == nil {
		err = os.Rename(part, dir)
	}
	if err != nil {
		return "", err
	}
	return dir, nil
}
