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

// ErrUnavailable is why there is no QEMU or no kernel: the machine is no Debian
// machine, not an amd64 one, or has no way to the archive.
var ErrUnavailable = errors.New("not available on this machine")

// unavailable wraps err as a reason of ErrUnavailable.
func unavailable(op string, err error) error {
	return fmt.Errorf("debian: %s: %w: %w", op, ErrUnavailable, err)
}

// arch is Debian's name of the only architecture whose kernels are asked for.
const arch = "amd64"

// Cache is a directory of what was fetched.
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
		if err != nil { // no $HOME: as good a place as any that is kept
			base = "/var/cache"
		}
		dir = filepath.Join(base, "sluice", "vm")
	}
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		// A cache that has everything is written to as well: apt keeps its state there.
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

// fill returns the directory name in the cache, which fill makes if it is not
// there: in another place, so that half of it is never taken for the whole.
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
