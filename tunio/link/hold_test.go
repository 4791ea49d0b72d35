package link

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// hold is Hold, which must succeed. It ends with the test.
func (n *Namespace) hold(t testing.TB, name string) *Hold {
	t.Helper()
	h, err := n.Hold(n.get(t, name))
	must(t, err)
	t.Cleanup(func() { h.Close() })
	return h
}

// TestHoldIsOfOneNetdev: each netdev can be held once, even if another namespace has one with the
// same index, and again after its holder released it.
func TestHoldIsOfOneNetdev(t *testing.T) {
	n, other := newNamespace(t), newNamespace(t)
	n.ip(t, "link add v0 type veth peer name v1")
	first := n.hold(t, "v0")
	n.hold(t, "v1")
	n.hold(t, "lo")
	other.hold(t, "lo")
	_, err := n.Hold(n.get(t, "v0"))
	var held *HeldError
	if !errors.As(err, &held) {
		t.Fatalf("error %v, want a HeldError", err)
	}
	comm, _ := os.ReadFile("/proc/self/comm")
	if held.Netdev != "v0" || held.PID != os.Getpid() || held.UID != os.Geteuid() ||
		held.Name != strings.TrimSpace(string(comm)) {
		t.Errorf("held by %+v, want this process", held)
	}
	must(t, first.Close())
	n.hold(t, "v0")
}

// TestHoldHasOneWinner: the others learn who it is, although it may have the name for a moment
// before it answers.
func TestHoldHasOneWinner(t *testing.T) {
	n := newNamespace(t)
	f := n.get(t, "lo")
	const rivals = 16
	for range 500 { // the moment is short
		errs, holds := make([]error, rivals), make([]*Hold, rivals)
		var all sync.WaitGroup
		start := make(chan struct{})
		for i := range rivals {
			all.Go(func() {
				<-start
				holds[i], errs[i] = n.Hold(f)
			})
		}
		close(start)
		all.Wait()
		won := 0
		for i, err := range errs {
			var held *HeldError
			switch {
			case err == nil:
				won++
				must(t, holds[i].Close())
			case !errors.As(err, &held) || held.PID != os.Getpid():
				t.Errorf("error %v, want one that names the holder", err)
			}
		}
		if won != 1 {
			t.Fatalf("%d hold it", won)
		}
	}
}

// TestHoldOfASilentHolder: the command in the error finds a process that has the name and does not
// answer.
func TestHoldOfASilentHolder(t *testing.T) {
	n := newNamespace(t)
	f := n.get(t, "lo")
	fd := -1
	must(t, n.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrUnix{Name: holdName(f.Index)})
	}))
	defer unix.Close(fd)
	_, err := n.Hold(f)
	var held *HeldError
	if !errors.As(err, &held) || held.PID != 0 {
		t.Fatalf("error %v, want a HeldError without a process", err)
	}
	_, command, _ := strings.Cut(err.Error(), "; try: ")
	out := string(run(t, "ip netns exec "+n.name+" sh -c "+strings.ReplaceAll(command, " ", "${IFS}")))
	if !strings.Contains(out, fmt.Sprintf("pid=%d,", os.Getpid())) {
		t.Errorf("%s prints %q: nothing about process %d", command, out, os.Getpid())
	}
}

// TestHeldErrorSaysWho: the error names the user if it is another one, and a process's name cannot
// send control characters to a terminal.
func TestHeldErrorSaysWho(t *testing.T) {
	for _, c := range []struct {
		e    HeldError
		want string
	}{
		{HeldError{Netdev: "v0", PID: 7, Name: "sluice", UID: os.Geteuid()},
			"netdev v0 is in use by process 7 (sluice): one switch at a time can have it; try: kill 7"},
		{HeldError{Netdev: "v0", PID: 7, UID: 4711},
			"netdev v0 is in use by process 7 of user 4711: one switch at a time can have it; try: kill 7"},
		{HeldError{Netdev: "v0", index: 5},
			"netdev v0 is in use by an unknown process: " +
				"one switch at a time can have it; try: ss -xap | grep -w sluice/netdev/5"},
	} {
		if got := c.e.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	if got := strings.Map(printable, "a\x1b[2J\nb"); got != "a?[2J?b" {
		t.Errorf("%q", got)
	}
}
