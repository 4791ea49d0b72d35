// Package leaktest is what the tests of several packages share: it fails a run
// that leaves descriptors or goroutines behind, and skips what needs root.
//
// # Concurrency
//
// Main is called once, from a package's TestMain.
package leaktest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"
)

// patience is how long what has ended may take to be gone: finished threads and
// goroutines linger on a busy machine.
const patience = 20 * time.Second

// Main runs the tests and returns their exit code, or a failure if more
// descriptors or goroutines are there than before.
func Main(m *testing.M) int {
	// The runtime's own descriptors, and those of the first child process, come once.
	exec.Command("true").Run()
	fds, goroutines := openFiles(), runtime.NumGoroutine()
	code := m.Run()
	if code != 0 {
		return code
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		files, n := openFiles(), runtime.NumGoroutine()
		if len(files) <= len(fds) && n <= goroutines {
			return 0
		}
		if time.Now().After(end) {
			fmt.Fprintf(os.Stderr, "left behind: %d goroutines, were %d; descriptors\n%s\nwere\n%s\n",
				n, goroutines, strings.Join(files, "\n"), strings.Join(fds, "\n"))
			pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			return 1
		}
	}
}

// openFiles is what the process has open, but for the runtime's own poller, which
// comes with its first use.
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

// NeedRoot skips a test that makes network namespaces where it may not; with
// SLUICE_REQUIRE=1 it fails instead.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("SLUICE_REQUIRE") == "1" {
		t.Fatal("SLUICE_REQUIRE=1, but not root")
	}
	t.Skip("needs root, to make network namespaces")
}
