package vm

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/integration/netns/netnstest"
	"sluice/integration/vm/debian"
)

// Each kernel boots, is the one that was asked for, and has what tests use.
func TestKernelsBoot(t *testing.T) {
	for _, series := range []string{"6.1", "6.12", "6.19", "7.0", Newest} {
		t.Run(series, func(t *testing.T) {
			lab := New(t)
			begin := time.Now()
			g := lab.Guest(series)
			g.Up()
			t.Logf("%s: up after %.1f s; emulated: %v", g.Release(), time.Since(begin).Seconds(), lab.Emulated())
			release := strings.TrimSpace(g.Run("uname", "-r"))
			if release != g.Release() || series != Newest && !strings.HasPrefix(release, series+".") {
				t.Errorf("%s was asked for, %s chosen, %s runs", series, g.Release(), release)
			}
			for _, link := range []string{
				"veth0 type veth peer name veth1", "br0 type bridge", "low0 type dummy",
				"link low0 name macvtap0 type macvtap", "link low0 name low0.5 type vlan id 5",
			} {
				g.Run(append([]string{"ip", "link", "add"}, strings.Fields(link)...)...)
			}
			g.Run("ip", "tuntap", "add", "tap1", "mode", "tap", "multi_queue", "vnet_hdr")
			g.Run("tc", "qdisc", "add", "dev", "veth0", "root", "fq")
			g.Run("ip", "netns", "add", "n")
			g.Run("ip", "netns", "exec", "n", "ip", "link", "set", "lo", "up")
			if out := g.Run("ip", "-d", "link", "show", "dev", "veth0"); !strings.Contains(out, "gso_max_size") {
				t.Errorf("iproute2 shows no gso_max_size: %s", out)
			}
			for _, program := range [][]string{
				{"iperf3", "--version"}, {"ethtool", "-k", "veth0"}, {"tcpdump", "--version"},
				{"dnsmasq", "--version"}, {"ss", "-tln"}, {"sysctl", "net.core.rmem_max"},
				{"setpriv", "--version"}, {"sh", "-c", "ip -json link"}, // busybox's ip has no -json
			} {
				g.Run(program...)
			}
		})
	}
}

func TestCommandsAndFiles(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho added\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	g := New(t).Guest(Newest, Program{Name: "added", File: script}, Memory(256))

	t.Run("program", func(t *testing.T) {
		if out := g.Run("added"); out != "added\n" {
			t.Errorf("it says %q", out)
		}
	})

	t.Run("status", func(t *testing.T) {
		r, err := g.Try("sh", "-c", "echo out; echo err >&2; exit 3")
		exit := (*ExitError)(nil)
		if !errors.As(err, &exit) || exit.Code != 3 || exit.Signal != 0 ||
			r != (Result{"out\n", "err\n"}) || exit.Result != r {
			t.Errorf("got %+v, %v", r, err)
		}
		if _, err := g.Try("sh", "-c", "kill -TERM $$"); !errors.As(err, &exit) || exit.Signal != syscall.SIGTERM {
			t.Errorf("killed by itself: %v", err)
		}
		if _, err := g.Try("no-such-program"); err == nil || !strings.Contains(err.Error(), "not found") {
			t.Errorf("no such program: %v", err)
		}
		r, err = g.Do(Cmd{Args: []string{"sh", "-c", "pwd; echo $X"}, Env: []string{"X=y z"}, Dir: "/tmp"})
		if err != nil || r.Stdout != "/tmp\ny z\n" {
			t.Errorf("got %+v, %v", r, err)
		}
	})

	t.Run("files", func(t *testing.T) {
		data := make([]byte, 5<<20+1)
		_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
		want := fmt.Sprintf("%x", sha256.Sum256(data))
		here, back := filepath.Join(t.TempDir(), "here"), filepath.Join(t.TempDir(), "back")
		const perm = 0o640
		err := errors.Join(os.WriteFile(here, data, perm), os.Chmod(here, perm)) // whatever the umask
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		g.Put(here, "/tmp/new/there")
		put := time.Since(begin)
		if sum := g.Run("sha256sum", "/tmp/new/there"); !strings.HasPrefix(sum, want) {
			t.Errorf("SHA-256 %s arrived, %s was sent", sum, want)
		}
		if mode := g.Run("stat", "-c", "%a", "/tmp/new/there"); mode != "640\n" {
			t.Errorf("mode %s", mode)
		}
		begin = time.Now()
		g.Get("/tmp/new/there", back)
		t.Logf("%d bytes: there in %v, back in %v", len(data), put, time.Since(begin))
		if got, err := os.ReadFile(back); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes came back that are not what was sent: %v", len(got), err)
		}
		g.WriteFile("/tmp/empty", nil, 0o600)
		if text := g.ReadFile("/tmp/empty"); len(text) != 0 {
			t.Errorf("an empty file has %q", text)
		}
		if err := g.receive("/no/such", &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "no such file") {
			t.Errorf("no such file: %v", err)
		}
		if err := g.send("/proc/none", bytes.NewReader(data), 0o600); err == nil {
			t.Error("a file in /proc was made")
		}
	})

	// Bytes of several commands at once stay apart and whole.
	t.Run("at once", func(t *testing.T) {
		var ps []*Process
		for i := range 4 {
			ps = append(ps, g.Background("sh", "-c", fmt.Sprintf("head -c 500000 /dev/zero | tr '\\0' %d", i)))
		}
		for i, p := range ps {
			r, err := p.Wait()
			if want := strings.Repeat(fmt.Sprint(i), 500000); err != nil || r.Stdout != want {
				t.Errorf("command %d: %d bytes, %v", i, len(r.Stdout), err)
			}
		}
	})

	t.Run("background", func(t *testing.T) {
		p := g.Background("sh", "-c", "echo begun > /tmp/begun; sleep 1000 & sleep 2000")
		soon(t, "begin", func() bool { _, err := g.Try("test", "-s", "/tmp/begun"); return err == nil })
		select {
		case <-p.Done():
			t.Fatal("it has ended by itself")
		default:
		}
		p.Kill()
		exit := (*ExitError)(nil)
		if _, err := p.Wait(); !errors.As(err, &exit) || exit.Signal != syscall.SIGKILL {
			t.Errorf("killed: %v", err)
		}
		soon(t, "end of its children", func() bool { return !strings.Contains(g.Run("ps"), "sleep") })
	})

	t.Run("limit", func(t *testing.T) {
		_, err := g.Do(Cmd{Args: []string{"sleep", "1000"}, Limit: 100 * time.Millisecond})
		if !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, ErrHung) {
			t.Errorf("too long: %v", err)
		}
		g.Run("true") // the guest lives
	})
}

// A guest survives what it is meant to survive, and is gone after the rest.
func TestGuestsEndAndBeginAgain(t *testing.T) {
	g := New(t).Guest("6.12")
	running := func(how string, want bool) {
		t.Helper()
		if got := g.Running(); got != want {
			t.Fatalf("after %s: running: %v", how, got)
		}
	}
	fresh := func(how string) {
		t.Helper()
		running(how, true)
		if r, err := g.Try("test", "-e", "/tmp/mark"); err == nil {
			t.Fatalf("after %s: not booted again: %v", how, r)
		}
		g.WriteFile("/tmp/mark", nil, 0o600)
	}
	fresh("start")
	pid := g.PID()

	sleeps := g.Background("sleep", "1000")
	g.Reboot()
	fresh("reboot")
	if _, err := sleeps.Wait(); !errors.Is(err, ErrGone) {
		t.Errorf("a command of the boot before: %v", err)
	}

	// Reset while much is said.
	talks := g.Background("yes")
	g.Reset()
	fresh("reset")
	if _, err := talks.Wait(); !errors.Is(err, ErrGone) {
		t.Errorf("a command of the boot before: %v", err)
	}
	if g.PID() != pid {
		t.Error("a reboot or reset started another QEMU")
	}

	for _, end := range []struct {
		how string
		do  func()
	}{{"power off", g.PowerOff}, {"kill", g.Kill}, {"quit", g.Quit}} {
		pid := g.PID()
		end.do()
		running(end.how, false)
		gone(t, pid)
		if _, err := g.Try("true"); !errors.Is(err, ErrGone) {
			t.Errorf("after %s: %v", end.how, err)
		}
		g.PowerOn()
		fresh(end.how)
	}

	// A panic of the kernel is the end, with the console to tell of it.
	pid = g.PID()
	if _, err := g.Try("sh", "-c", "echo c > /proc/sysrq-trigger"); !errors.Is(err, ErrGone) || errors.Is(err, ErrHung) {
		t.Errorf("panic: %v", err)
	}
	soon(t, "end of QEMU", func() bool { return !g.Running() })
	gone(t, pid)
	if log := g.Console(); !strings.Contains(log, "Kernel panic") {
		t.Errorf("the console does not tell of the panic:\n%s", log)
	}
}

// A guest that hangs fails its test, is killed, and leaves its console.
func TestHungGuestIsKilledWithItsConsole(t *testing.T) {
	netnstest.Need(t, available())
	test := &inner{name: "Test/Inner"}
	var g *Guest
	said := test.run(func() {
		lab := New(test)
		lab.killLimit = 2 * time.Second
		g = lab.Guest(Newest)
		g.Hang()
		_, err := g.Do(Cmd{Args: []string{"true"}, Limit: time.Second})
		if !errors.Is(err, ErrHung) || !errors.Is(err, os.ErrDeadlineExceeded) || g.Running() {
			t.Errorf("hung: %v; running: %v", err, g.Running())
		}
		g.Run("true")
	})
	if !test.failed || !strings.Contains(said, ErrGone.Error()) {
		t.Errorf("the test goes on without its guest; it said:\n%s", said)
	}
	gone(t, g.PID())
	if _, err := os.Stat(g.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v", g.dir, err)
	}
	m := regexp.MustCompile(`console kept in (.+\.log);`).FindStringSubmatch(said)
	if m == nil {
		t.Fatalf("no console was kept; the test said:\n%s", said)
	}
	defer os.Remove(m[1])
	for where, text := range map[string]string{"what was said": said, "the file": read(t, m[1])} {
		if !strings.Contains(text, "guest: told to hang") {
			t.Errorf("the console is not in %s:\n%s", where, text)
		}
	}
}

// available is why guests cannot be had here, if so.
func available() error {
	cache, err := debian.OpenCache()
	if err == nil {
		_, err = cache.Userland()
	}
	if errors.Is(err, debian.ErrUnavailable) {
		return fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	return err
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What is missing is skipped with the reason on a laptop and fails where all is required, except
// for kernels that the archive dropped.
func TestNeed(t *testing.T) {
	for _, c := range []struct {
		err        error
		require    string
		skip, fail bool
	}{
		{nil, "1", false, false},
		{fmt.Errorf("no archive: %w", debian.ErrUnavailable), "", true, false},
		{fmt.Errorf("no archive: %w", debian.ErrUnavailable), "1", false, true},
		{os.ErrPermission, "", true, false},
		{os.ErrPermission, "1", false, true},
		{errors.New("broken"), "", false, true},
		{&debian.NoKernelError{Series: "7.0", Why: "gone"}, "1", true, false},
		{&debian.NoKernelError{Series: "6.1", Why: "gone"}, "", false, true},
	} {
		t.Setenv("SLUICE_REQUIRE", c.require)
		test := &inner{}
		said := test.run(func() { need(test, c.err) })
		if test.skipped != c.skip || test.failed != c.fail {
			t.Errorf("%v, SLUICE_REQUIRE=%s: skipped %v, failed %v", c.err, c.require, test.skipped, test.failed)
		}
		if c.err != nil && said != c.err.Error() {
			t.Errorf("said %q of %v", said, c.err)
		}
	}
}

// A guest's NICs are on taps in the namespace, as wide as was asked for, and go
// with it. What is switched off, the guest does not have.
func TestNICsAreTapsInTheNamespace(t *testing.T) {
	net := netnstest.New(t)
	ns := net.Namespace("host")
	netnstest.Need(t, net.Err())
	g := New(t).Guest(Newest, In(ns), CPUs(2),
		NIC{Tap: "tapA", MAC: "52:54:00:00:00:0a", Queues: 2, MTU: 9000},
		NIC{Tap: "tapB", MAC: "52:54:00:00:00:0b", Offloads: "host_tso4=off,csum=off"})
	ns.Address("tapA", "10.0.0.1/24", "fd00::1/64")
	netnstest.Need(t, net.Err())
	if a, err := ns.Link("tapA"); err != nil || a.MTU != 9000 || a.NumTxQueues < 2 {
		t.Errorf("tapA: %+v, %v", a, err)
	}

	g.Run("ip", "addr", "add", "10.0.0.2/24", "dev", "eth0")
	g.Run("ip", "addr", "add", "fd00::2/64", "dev", "eth0", "nodad")
	g.Run("ip", "link", "set", "eth0", "up")
	for _, address := range []string{"10.0.0.1", "fd00::1"} {
		g.Run("ping", "-c", "1", "-W", "20", "-s", "8000", address)
	}
	if link := g.Run("ip", "link", "show", "dev", "eth0"); !strings.Contains(link, "mtu 9000") ||
		!strings.Contains(link, "52:54:00:00:00:0a") {
		t.Errorf("eth0: %s", link)
	}
	if out := g.Run("ethtool", "-l", "eth0"); !strings.Contains(out, "Combined:\t2") {
		t.Errorf("eth0's queues: %s", out)
	}
	for device, want := range map[string]string{
		"eth0": "tx-tcp-segmentation: on", "eth1": "tx-tcp-segmentation: off",
	} {
		if out := g.Run("ethtool", "-k", device); !strings.Contains(out, want) {
			t.Errorf("%s has not %q:\n%s", device, want, out)
		}
	}

	g.Kill()
	for _, tap := range []string{"tapA", "tapB"} {
		if a, err := ns.Link(tap); err == nil {
			t.Errorf("%s is still there: %+v", tap, a)
		}
	}
}
