package leaktest

import (
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"testing"
)

// TestChildrenOfAnyThread starts a child from two threads, one of which is not the
// main one.
func TestChildrenOfAnyThread(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	mine, other := exec.Command("sleep", "1000"), exec.Command("sleep", "1000")
	started := make(chan error)
	go func() { started <- other.Start() }() // not on this thread, which is locked
	for _, err := range []error{mine.Start(), <-started} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, child := range []*exec.Cmd{mine, other} {
		pid := strconv.Itoa(child.Process.Pid)
		if got := Children(); !slices.Contains(got, pid) {
			t.Errorf("children %v, want %s among them", got, pid)
		}
		child.Process.Kill()
		child.Wait()
		if got := Children(); slices.Contains(got, pid) {
			t.Errorf("children %v, though %s has been waited for", got, pid)
		}
	}
}
