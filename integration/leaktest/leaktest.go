// Package leaktest is shared by the tests of several packages. It fails a run that leaves
// descriptors or goroutines behind, lists the child processes that are left, and skips tests that
// need root.
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

// patience bounds the wait for finished threads and goroutines, which linger on a busy machine.
const patience = 20 * time.Second

// Main runs the tests and returns their exit code, or a failure if there are new descriptors or
// more goroutines afterwards.
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

// startRuntime lets the runtime open what it keeps open: its poller, and what comes with the first
// child process.
var startRuntime = sync.OnceFunc(func() {
	exec.Command("true").Run()
	r, w, err := os.Pipe() // uses the poller, since it takes deadlines
	if err == nil {
		err = errors.Join(r.SetDeadline(time.Time{}), r.Close(), w.Close())
	}
	if err != nil {
		panic(err)
	}
})

// OpenFiles is what the process has open: each descriptor's number, and what it is. From the first
// call on it includes what the runtime keeps for itself.
func OpenFiles() (files []string) {
	startRuntime()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		// The descriptor of /proc/self/fd itself is gone.
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			files = append(files, e.Name()+" "+target)
		}
	}
	return files
}

// Children are the process ids of this process's children, including those that have ended and were
// not waited for. The kernel lists them by parent thread.
func Children() (pids []string) {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		text, _ := os.ReadFile(list) // the thread may have ended
		pids = append(pids, strings.Fields(string(text))...)
	}
	return pids
}

// NeedRoot skips a test that makes network namespaces if the process may not; with SLUICE_REQUIRE=1
// it fails instead.
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
