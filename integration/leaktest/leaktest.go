// Package leaktest is what the tests of several packages share: it fails a run
// that leaves descriptors or goroutines behind, tells which child processes are left,
// and skips what needs root.
//
// # Concurrency
//
// Main is called once, from a package's TestMain.
package leaktest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long what has ended may take to be gone: finished threads and
// goroutines linger on a busy machine.
const patience = 20 * time.Second

// Main runs the tests and returns their exit code, or a failure if a descriptor is
// there that was not before, or more goroutines.
func Main(m *testing.M) int {
	before, goroutines := OpenFiles(), runtime.NumGoroutine()
	code := m.Run()
	if code != 0 {
		return code
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		left := slices.DeleteFunc(OpenFiles(), func(file string) bool {
			return slices.Contains(before, file)
		})
		n := runtime.NumGoroutine()
		if len(left) == 0 && n <= goroutines {
			return 0
		}
		if time.Now().After(end) {
			fmt.Fprintf(os.Stderr, "left behind: %d goroutines, were %d; descriptors: %s\n",
				n, goroutines, strings.Join(left, ", "))
			pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			return 1
		}
	}
}

// startRuntime lets the runtime open what it opens once and keeps: its poller, and
// what comes with the first child process.
var startRuntime = sync.OnceFunc(func() {
	exec.Command("true").Run()
	r, w, err := os.Pipe() // goes to the poller, as it takes deadlines
	if err == nil {
		err = errors.Join(r.SetDeadline(time.Time{}), r.Close(), w.Close())
	}
	if err != nil {
		panic(err)
	}
})

// OpenFiles is what the process has open: each descriptor's number, and what it is.
// What the runtime keeps for itself is among it from the first call on.
func OpenFiles() (files []string) {
	startRuntime()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		// That of /proc/self/fd itself has gone.
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			files = append(files, e.Name()+" "+target)
		}
	}
	return files
}

// Children are the process ids of this process's children, those that have ended but
// have not been waited for among them. The kernel lists them by the thread that they
// are children of.
func Children() (pids []string) {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		text, _ := os.ReadFile(list) // the thread may have ended
		pids = append(pids, strings.Fields(string(text))...)
	}
	return pids
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
