package probe

import (
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"
)

// TestMain fails when tests leave descriptors or goroutines behind.
func TestMain(m *testing.M) {
	fds, goroutines := openFDs(), runtime.NumGoroutine()
	code := m.Run()
	deadline := time.Now().Add(5 * time.Second)
	for len(openFDs()) > len(fds) || runtime.NumGoroutine() > goroutines {
		if time.Now().After(deadline) {
			fmt.Fprintf(os.Stderr, "left behind: descriptors %v of %v, goroutines %d of %d\n",
				openFDs(), fds, runtime.NumGoroutine(), goroutines)
			pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			code = 1
			break
		}
		time.Sleep(time.Millisecond)
	}
	os.Exit(code)
}

// openFDs is what the process has open, but for the runtime's own poller.
func openFDs() (open []string) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.HasPrefix(target, "anon_inode:[event") {
			open = append(open, e.Name()+" "+target)
		}
	}
	return open
}

// needRoot skips a test that needs to make network namespaces; with
// SLUICE_REQUIRE=1 it fails instead.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("SLUICE_REQUIRE") == "1" {
		t.Fatal("SLUICE_REQUIRE=1, but not root")
	}
	t.Skip("needs root, to make network namespaces")
}
