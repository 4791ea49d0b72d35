package link

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"sluice/integration/leaktest"
)

func TestDoRunsInsideAndLeavesNoThreadThere(t *testing.T) {
	n := newNamespace(t)
	own, err := OpenNamespace("")
	must(t, err)
	defer own.Close()
	runtime.LockOSThread() // else the test cannot tell where it is itself
	defer runtime.UnlockOSThread()
	here := func() netns.NsHandle {
		fd, err := netns.Get()
		must(t, err)
		return fd
	}
	inside := func() (threads []string) {
		tasks, err := filepath.Glob("/proc/self/task/*/ns/net")
		must(t, err)
		for _, task := range tasks {
			fd, err := netns.GetFromPath(task)
			if err != nil {
				continue // a thread that ended meanwhile
			}
			if fd.Equal(n.fd) {
				threads = append(threads, task)
			}
			fd.Close()
		}
		return threads
	}
	before := inside() // the lab's own
	for name, at := range map[string]*Namespace{"other": n, "own": own} {
		want := fmt.Errorf("returned by fn")
		err := at.Do(func() error {
			fd := here()
			defer fd.Close()
			if !fd.Equal(at.fd) {
				t.Errorf("%s: fn runs elsewhere", name)
			}
			return want
		})
		if err != want {
			t.Errorf("%s: error %v, want fn's own", name, err)
		}
		if err := at.Do(func() error { runtime.Goexit(); return nil }); err == nil {
			t.Errorf("%s: no error although fn did not return", name)
		}
	}
	for _, task := range inside() {
		if !slices.Contains(before, task) {
			t.Errorf("%s is left in the namespace", task)
		}
	}
	if n.Same(own) || !n.Same(n) {
		t.Error("Same does not tell namespaces apart")
	}
}

func TestAliveGoesByTheName(t *testing.T) {
	name := addNamespace(t)
	n, err := OpenNamespace(name)
	must(t, err)
	defer n.Close()
	byPath, err := OpenNamespace("/run/netns/" + name)
	must(t, err)
	defer byPath.Close()
	own, err := OpenNamespace("")
	must(t, err)
	defer own.Close()
	alive := func(step string, want bool) {
		t.Helper()
		if n.Alive() != want || byPath.Alive() != want || !own.Alive() {
			t.Errorf("%s: alive %v, by path %v, own %v, want %v, %v, true",
				step, n.Alive(), byPath.Alive(), own.Alive(), want, want)
		}
	}
	alive("new", true)
	run(t, "ip netns del "+name)
	alive("deleted", false)
	if _, err := n.Get("lo"); err != nil {
		t.Errorf("what is held lives on: %v", err)
	}
	run(t, "ip netns add "+name)
	alive("made again", false)
}

func TestOpenNamespaceExplains(t *testing.T) {
	leaktest.NeedRoot(t)
	_, err := OpenNamespace("no-such-namespace")
	if !errors.Is(err, os.ErrNotExist) ||
		!strings.Contains(err.Error(), "ip netns add no-such-namespace") {
		t.Errorf("error %v, want os.ErrNotExist and the command that mends it", err)
	}
	file := filepath.Join(t.TempDir(), "plain")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, path := range []string{file, "/proc/self/ns/uts"} {
		if _, err := OpenNamespace(path); !errors.Is(err, unix.EINVAL) ||
			!strings.Contains(err.Error(), path+" is not a network namespace") {
			t.Errorf("%s: error %v", path, err)
		}
	}
}
