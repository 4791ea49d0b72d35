package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// runDir is where iproute2 keeps the names of namespaces. A name is an empty file
// with the namespace mounted on it.
const runDir = "/run/netns"

// shareRunDir makes runDir a shared mount on itself, as the first `ip netns add` on a
// machine does (netns_add in iproute2's ip/ipnetns.c). It is called before a name is
// made: a name that is there already gets mounted twice, and the lower mount, which no
// path reaches any more, keeps its file busy for ever.
func shareRunDir() error {
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return err
	}
	dir, err := os.Open(runDir)
	if err != nil {
		return err
	}
	defer dir.Close() // and let go of the lock
	// ip takes the same lock: two at once would each mount the directory.
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", runDir, err)
	}
	share := func() error { return unix.Mount("", runDir, "none", unix.MS_SHARED|unix.MS_REC, "") }
	err = share()
	if errors.Is(err, unix.EINVAL) { // it is not a mount yet
		err = unix.Mount(runDir, runDir, "none", unix.MS_BIND|unix.MS_REC, "")
		if err == nil {
			err = share()
		}
	}
	if err != nil {
		return fmt.Errorf("make %s a shared mount: %w", runDir, err)
	}
	return nil
}

// removeName removes a namespace's name; it may be gone already. It may also be a file
// that nothing is mounted on: its maker was killed before the mount.
func removeName(name string) error {
	file := filepath.Join(runDir, name)
	_ = unix.Unmount(file, unix.MNT_DETACH)
	err := os.Remove(file)
	if errors.Is(err, unix.EBUSY) {
		err = removeBusy(file)
	}
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("netns: remove %s: %w", name, err)
}

// removeBusy removes a name's file where a mount on it lies hidden below runDir's own.
// The kernel removes a file that is a mount point in other mount namespaces only, and
// unmounts it there (vfs_unlink in fs/namei.c, detach_mounts in fs/namespace.c). So
// this thread gets a mount namespace, unmounts there all that hides the file, and
// removes it. No other mount of anybody's changes.
func removeBusy(file string) error {
	result := make(chan error, 1)
	spawn(func() {
		result <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return err
			}
			// Without this, what is unmounted here is unmounted everywhere.
			if err := unix.Mount("", "/", "none", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
				return err
			}
			dir, err := unix.Open(runDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(dir)
			for {
				for unix.Unmount(file, unix.MNT_DETACH) == nil {
				}
				err := unix.Unlinkat(dir, filepath.Base(file), 0)
				if err != unix.EBUSY || unix.Unmount(runDir, unix.MNT_DETACH) != nil {
					return err
				}
			}
		}()
	})
	return <-result
}

// spawn runs f in a goroutine on a thread of its own, which ends with f. So f may leave
// the process's namespaces: no other goroutine can find itself where f was.
func spawn(f func()) {
	go func() {
		runtime.LockOSThread() // for good: the runtime ends the thread with the goroutine
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		// The main thread is never ended, and /proc/self shows its namespaces. While
		// this goroutine holds it, another one gets another thread.
		defer runtime.UnlockOSThread()
		done := make(chan struct{})
		spawn(func() {
			defer close(done)
			f()
		})
		<-done
	}()
}
