// Package netnstest gives labs of namespaces to tests. It skips if the privilege is missing, cleans
// up after a failure or an interrupt, and builds the switch once.
package netnstest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"sluice/integration/netns"
)

// Need skips t when err is a missing privilege, kernel feature or program. With
// SLUICE_REQUIRE=1 it fails instead, as it does for every other error.
func Need(t testing.TB, err error) {
	t.Helper()
	if err == nil {
		return
	}
	missing := errors.Is(err, os.ErrPermission) || errors.Is(err, errors.ErrUnsupported) ||
		errors.Is(err, exec.ErrNotFound)
	if missing && os.Getenv("SLUICE_REQUIRE") != "1" {
		t.Skip(err)
	}
	t.Fatal(err)
}

// New makes a lab that ends with the test.
func New(t testing.TB) *netns.Lab {
	t.Helper()
	lab := netns.New("test")
	closeOnSignal(lab)
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
		signals.mu.Lock()
		defer signals.mu.Unlock()
		delete(signals.labs, lab)
	})
	return lab
}

var signals struct {
	once sync.Once
	mu   sync.Mutex
	labs map[*netns.Lab]struct{} // guarded by mu: those that are open
}

// closeOnSignal closes lab when the test binary is interrupted, and then lets the signal take
// effect.
func closeOnSignal(lab *netns.Lab) {
	signals.mu.Lock()
	if signals.labs == nil {
		signals.labs = map[*netns.Lab]struct{}{}
	}
	signals.labs[lab] = struct{}{}
	signals.mu.Unlock()
	signals.once.Do(func() {
		got := make(chan os.Signal, 1)
		signal.Notify(got, syscall.SIGINT, syscall.SIGTERM)
		go func() {
			s := <-got
			signals.mu.Lock() // kept locked: no new lab from here on
			for lab := range signals.labs {
				_ = lab.Close()
			}
			signal.Reset(s)
			_ = syscall.Kill(os.Getpid(), s.(syscall.Signal))
		}()
	})
}

var binaryUsed atomic.Bool

// binary is the switch. It is built once a process, unless SLUICE_BINARY names one: a guest has no
// compiler.
var binary = sync.OnceValues(func() (string, error) {
	if file := os.Getenv("SLUICE_BINARY"); file != "" {
		return file, nil
	}
	dir, err := netns.TempDir("switch")
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "sluice")
	build := exec.Command("go", "build", "-o", file, "sluice/cmd/sluice")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as `make build` does
	out, err := build.CombinedOutput()
	if err != nil {
		return "", errors.Join(err, errors.New(strings.TrimSpace(string(out))), netns.RemoveDir(dir))
	}
	return file, nil
})

// Binary is the file of the switch: the one that the environment's SLUICE_BINARY names, or one that
// is built once a process, and that Main removes.
func Binary(t testing.TB) string {
	t.Helper()
	binaryUsed.Store(true)
	file, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// Main runs m and then removes the switch that Binary built. A package that calls
// Binary or Sluice calls this from its TestMain.
func Main(m *testing.M) int {
	code := m.Run()
	if binaryUsed.Load() && os.Getenv("SLUICE_BINARY") == "" {
		if file, err := binary(); err == nil {
			netns.RemoveDir(filepath.Dir(file))
		}
	}
	return code
}

// Sluice runs the switch in ns until the test ends. Its counters must then obey the conservation
// laws. A failed test shows the switch's log.
func Sluice(t testing.TB, ns *netns.Namespace, args ...string) *netns.Sluice {
	t.Helper()
	file := Binary(t)
	// t's context ends before its cleanups, and those ask the switch for its summary.
	s, err := ns.Sluice(context.WithoutCancel(t.Context()), file, args...)
	Need(t, err)
	t.Cleanup(func() {
		sum, err := s.Stop()
		if err == nil {
			err = sum.Conserved()
		}
		if err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log of the switch:\n%s", s.Stderr())
		}
	})
	return s
}
