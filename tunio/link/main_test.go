package link

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var namespaces atomic.Int32

// addNamespace makes a named network namespace for the time of the test.
func addNamespace(t testing.TB) string {
	t.Helper()
	needRoot(t)
	name := fmt.Sprintf("link%d-%d", os.Getpid(), namespaces.Add(1))
	run(t, "ip netns add "+name)
	t.Cleanup(func() {
		_ = exec.Command("ip", "netns", "del", name).Run() // the test may have been first
	})
	return name
}

// newNamespace makes and opens a network namespace for the time of the test.
func newNamespace(t testing.TB) *Namespace {
	t.Helper()
	name := addNamespace(t)
	n, err := OpenNamespace(name)
	must(t, err)
	t.Cleanup(func() { must(t, n.Close()) })
	return n
}

// run runs a command, its words apart from each other by spaces, and returns what
// it prints.
func run(t testing.TB, command string) []byte {
	t.Helper()
	words := strings.Fields(command)
	cmd := exec.Command(words[0], words[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, stderr.Bytes())
	}
	return out
}

// ip runs ip inside n.
func (n *Namespace) ip(t testing.TB, command string) []byte {
	t.Helper()
	return run(t, "ip -n "+n.name+" "+command)
}

// get is Get, which must succeed.
func (n *Namespace) get(t testing.TB, name string) *Facts {
	t.Helper()
	f, err := n.Get(name)
	must(t, err)
	return f
}

// packetSocket opens a packet socket that receives what comes in on a netdev. A
// read waits 2 s at most.
func packetSocket(t testing.TB, n *Namespace, name string) (fd int) {
	t.Helper()
	index := n.get(t, name).Index
	must(t, n.Do(func() (err error) {
		const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // in network order
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		t.Cleanup(func() { unix.Close(fd) })
		return errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2}),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all & 0xffff, Ifindex: index}),
		)
	}))
	return fd
}
