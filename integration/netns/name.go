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

// shareRunDir makes runDir a shared mount on itself, as the first `ip netns add` on a machine does
// (netns_add in iproute2's ip/ipnetns.c). It is called before a name is made. Otherwise an existing
// name gets mounted twice, and the lower mount, which no path reaches, keeps its file busy for
// ever.
func shareRunDir() error {
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return err
	}
	dir, err := os.Open(runDir)
	if err != nil {
		return err
	}
	defer dir.Close() // and release the lock
	// ip takes the same lock. Without it, two processes could both mount the directory.
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

// removeName removes a namespace's name. It may already be gone. It may also be a plain file, if
// its maker was killed before the mount.
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

// removeBusy removes a name's file if a mount on it is hidden below runDir's own mount. The kernel
// removes a file that is a mount point only in other mount namespaces, and unmounts it there
// (vfs_unlink in fs/namei.c, detach_mounts in fs/namespace.c). So this thread gets its own mount
// namespace, unmounts there everything that hides the file, and removes it. No other mount changes.
func removeBusy(file string) error {
	result := make(chan error, 1)
	spawn(func() {
		result <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return err
			}
			// Without this, an unmount here would be an unmount everywhere.
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

// spawn runs f in a goroutine on its own thread, which ends with f. So f may leave the process's
// namespaces: no other goroutine ever runs on that thread.
func spawn(f func()) {
	go func() {
		runtime.LockOSThread() // for good: the runtime ends the thread with the goroutine
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		// The main thread never ends, and /proc/self shows its namespaces. While this goroutine
		// holds it, another goroutine gets another thread.
		defer runtime.UnlockOSThread()
		done := make(chan struct{})
		spawn(func() {
			defer close(done)
			f()
		})
		<-done
	}()
}
