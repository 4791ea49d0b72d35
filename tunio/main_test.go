package tunio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/integration/leaktest"
	"sluice/vnet"
)

// TestMain fails the run if tests leave descriptors or goroutines behind.
func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// need skips t when err is a missing privilege; with SLUICE_REQUIRE=1 it fails.
func need(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case os.Getenv("SLUICE_REQUIRE") != "1" && errors.Is(err, os.ErrPermission):
		t.Skip("needs root: ", err)
	default:
		t.Fatal(err)
	}
}

// newNamespace puts the test's goroutine, until it ends, on a thread in a network namespace of its
// own. The namespace goes when the thread and the descriptors are gone. It has no IPv6: the
// kernel's own frames would mix with the test's.
func newNamespace(t testing.TB) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	need(t, unshare())
}

// unshare moves the thread to a new network namespace without IPv6.
func unshare() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	for _, scope := range []string{"all", "default"} {
		path := "/proc/sys/net/ipv6/conf/" + scope + "/disable_ipv6" // the calling thread's
		if err := os.WriteFile(path, []byte("1"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// otherNamespace makes a second namespace and returns a path to it.
func otherNamespace(t testing.TB) string {
	t.Helper()
	file := make(chan *os.File, 1)
	go func() {
		runtime.LockOSThread()
		f, err := (*os.File)(nil), unshare()
		if err == nil {
			f, err = os.Open("/proc/thread-self/ns/net")
		}
		if err != nil {
			t.Error(err)
		}
		file <- f
	}()
	f := <-file
	if f == nil {
		t.FailNow()
	}
	t.Cleanup(func() { f.Close() })
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())
}

// enter moves the test's thread, which newNamespace locked, to another namespace.
func enter(t testing.TB, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
}

// setGSOMaxSize lets a device send the greatest frames. The limit for IPv4 is not
// in iproute2 before 6.3, so it is set by hand.
func setGSOMaxSize(t testing.TB, name string) {
	t.Helper()
	ip(t, "link set dev %s gso_max_size %d", name, vnet.MaxGSOMaxSize)
	dev, _, err := lookup(opPacket, name)
	if err != nil {
		t.Fatal(err)
	}
	const ifla = 63 // IFLA_GSO_IPV4_MAX_SIZE
	const length = unix.SizeofNlMsghdr + unix.SizeofIfInfomsg + 8
	msg := binary.NativeEndian.AppendUint32(nil, length)
	msg = binary.NativeEndian.AppendUint16(msg, unix.RTM_NEWLINK)
	msg = binary.NativeEndian.AppendUint16(msg, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	msg = append(msg, make([]byte, 8+4)...) // sequence, port; family, type
	msg = binary.NativeEndian.AppendUint32(msg, uint32(dev.index))
	msg = append(msg, make([]byte, 8)...) // flags, change
	msg = binary.NativeEndian.AppendUint16(msg, 8)
	msg = binary.NativeEndian.AppendUint16(msg, ifla)
	msg = binary.NativeEndian.AppendUint32(msg, vnet.MaxGSOMaxSize)
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	reply := make([]byte, 4096)
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		t.Fatal(err)
	}
	n, _, err := unix.Recvfrom(fd, reply, 0)
	if err != nil || n < unix.SizeofNlMsghdr+4 {
		t.Fatal(n, err)
	}
	if e := int32(binary.NativeEndian.Uint32(reply[unix.SizeofNlMsghdr:])); e != 0 {
		t.Fatalf("gso_ipv4_max_size of %s: %v", name, unix.Errno(-e))
	}
}

// up sets devices up and waits until they send. Until the kernel has noticed its carrier, a device
// has the qdisc noop, which drops without an error (dev_activate).
func up(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		ip(t, "link set dev %s up", name)
	}
	for _, name := range names {
		for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			out, err := exec.Command("ip", "-oneline", "link", "show", "dev", name).CombinedOutput()
			if err == nil && !strings.Contains(string(out), " qdisc noop ") {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s does not send: %v, %s", name, err, out)
			}
		}
	}
}

// ip runs iproute2's ip in the thread's namespace.
func ip(t testing.TB, format string, a ...any) {
	t.Helper()
	args := strings.Fields(fmt.Sprintf(format, a...))
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}
