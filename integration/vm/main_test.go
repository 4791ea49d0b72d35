package vm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/integration/leaktest"
)

// TestMain fails the run if tests leave processes or directories behind.
func TestMain(m *testing.M) {
	code := m.Run()
	own, _ := filepath.Glob(filepath.Join(os.TempDir(), fmt.Sprintf("sluice-%d-*", os.Getpid())))
	for _, dir := range own {
		fmt.Fprintln(os.Stderr, "left behind:", dir)
		code = max(code, 1)
	}
	if left := leaktest.Children(); len(left) > 0 {
		fmt.Fprintln(os.Stderr, "left behind: processes", strings.Join(left, " "))
		code = max(code, 1)
	}
	os.Exit(code)
}

// gone fails the test if a process that has been waited for is still there.
func gone(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, 0); err != unix.ESRCH {
		t.Errorf("process %d: %v, want it gone", pid, err)
	}
}

// inner is a test inside a test: what would stop it, stops its goroutine.
type inner struct {
	name     string
	cleanups []func()
	failed   bool
	skipped  bool
	said     []string
}

func (i *inner) Helper()                      {}
func (i *inner) Name() string                 { return i.name }
func (i *inner) Context() context.Context     { return context.Background() }
func (i *inner) Cleanup(f func())             { i.cleanups = append(i.cleanups, f) }
func (i *inner) Failed() bool                 { return i.failed }
func (i *inner) Logf(format string, a ...any) { i.said = append(i.said, fmt.Sprintf(format, a...)) }
func (i *inner) Skip(a ...any)                { i.skipped = true; i.stop(a) }
func (i *inner) Fatal(a ...any)               { i.failed = true; i.stop(a) }
func (i *inner) stop(a []any)                 { i.said = append(i.said, fmt.Sprint(a...)); panic(i) }

// run runs body as go test would, and returns all that was said.
func (i *inner) run(body func()) string {
	func() {
		defer func() {
			if r := recover(); r != nil && r != any(i) {
				panic(r)
			}
		}()
		body()
	}()
	for n := len(i.cleanups) - 1; n >= 0; n-- {
		i.cleanups[n]()
	}
	return strings.Join(i.said, "\n")
}

// soon waits for cond, which is about to hold.
func soon(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("still no ", what)
		}
	}
}
