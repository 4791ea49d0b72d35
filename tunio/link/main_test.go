package link

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/leaktest"
)

// TestMain fails the run if tests leave descriptors or goroutines behind.
func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

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
	leaktest.NeedRoot(t)
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
