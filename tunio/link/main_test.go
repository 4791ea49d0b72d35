package link

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/integration/leaktest"
	"sluice/integration/netns"
)

// TestMain fails the run if tests leave descriptors or goroutines behind.
func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// addNamespace makes a named network namespace that lasts as long as the test.
func addNamespace(t testing.TB) string {
	t.Helper()
	leaktest.NeedRoot(t)
	lab := netns.New("link")
	t.Cleanup(func() { must(t, lab.Close()) })
	n := lab.Namespace("n")
	must(t, lab.Err())
	return n.Name
}

// newNamespace makes and opens a network namespace that lasts as long as the test.
func newNamespace(t testing.TB) *Namespace {
	t.Helper()
	name := addNamespace(t)
	n, err := OpenNamespace(name)
	must(t, err)
	t.Cleanup(func() { must(t, n.Close()) })
	return n
}

// run runs a command, whose words are separated by spaces, and returns its output.
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
