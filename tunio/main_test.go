package tunio

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain fails the run if a test left a descriptor or a goroutine behind.
func TestMain(m *testing.M) {
	// The runtime's own descriptors, and those of the first child process, come once.
	exec.Command("true").Run()
	fds, goroutines := openFiles(), runtime.NumGoroutine()
	code := m.Run()
	if code == 0 {
		// Finished goroutines and threads take a moment to go.
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			n, g := len(openFiles()), runtime.NumGoroutine()
			if n <= len(fds) && g <= goroutines {
				break
			}
			if time.Now().After(deadline) {
				fmt.Printf("leak: %d goroutines, were %d; descriptors\n%s\nwere\n%s\n", g, goroutines,
					strings.Join(openFiles(), "\n"), strings.Join(fds, "\n"))
				code = 1
				break
			}
		}
	}
	os.Exit(code)
}

// openFiles lists the process's descriptors but the netpoller's, which come with
// the first use.
func openFiles() (files []string) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && target != "anon_inode:[eventpoll]" && target != "anon_inode:[eventfd]" {
			files = append(files, e.Name()+" "+target)
		}
	}
	return files
}

// need skips t when err is a missing privilege; with SLUICE_REQUIRE=1 it fails.
func need(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case os.Getenv("SLUICE_REQUIRE") != "1" && errors.Is(err, os.ErrPermission):
		t.Skip("needs root: ", err)
	default:
		t.Fatal(err)
	}
}

// newNamespace puts the test's goroutine, for the rest of its life, on a thread in a
// network namespace of its own, which goes when thread and descriptors have gone.
// No IPv6: the kernel's own frames would come between the test's.
func newNamespace(t testing.TB) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	need(t, unix.Unshare(unix.CLONE_NEWNET))
	for _, scope := range []string{"all", "default"} {
		err := os.WriteFile("/proc/sys/net/ipv6/conf/"+scope+"/disable_ipv6", []byte("1"), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

// otherNamespace makes a second namespace and returns a path to it.
func otherNamespace(t testing.TB) string {
	t.Helper()
	file := make(chan *os.File, 1)
	go func() {
		runtime.LockOSThread()
		f, err := (*os.File)(nil), unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			f, err = os.Open("/proc/thread-self/ns/net")
		}
		if err != nil {
			t.Error(err)
		}
		file <- f
	}()
	f := <-file
	if f == nil {
		t.FailNow()
	}
	t.Cleanup(func() { f.Close() })
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())
}

// enter moves the test's thread, which newNamespace locked, to another namespace.
func enter(t testing.TB, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
}

// ip runs iproute2's ip in the thread's namespace.
func ip(t testing.TB, format string, a ...any) {
	t.Helper()
	args := strings.Fields(fmt.Sprintf(format, a...))
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}
