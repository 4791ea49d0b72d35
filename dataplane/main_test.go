package dataplane

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// TestMain fails the run when tests leave goroutines behind: a worker that nobody
// stopped, above all.
func TestMain(m *testing.M) {
	before := runtime.NumGoroutine()
	code := m.Run()
	if code == 0 && !settles(before) {
		stacks := make([]byte, 1<<20)
		fmt.Fprintf(os.Stderr, "goroutines: %d before the tests, %d after\n%s\n",
			before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
		code = 1
	}
	os.Exit(code)
}

// settles waits until there are no more than n goroutines.
func settles(n int) bool {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if runtime.NumGoroutine() <= n {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}
