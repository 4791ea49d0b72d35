package traffic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/dataplane/summary"
	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
	"sluice/tunio"
	"sluice/vnet"
)

// TestReadyIsPrintedOnce, and both signals end the switch with 0 and a summary.
func TestReadyIsPrintedOnce(t *testing.T) {
	b := newBed(t)
	b.cabled("a", netns.Link{})
	b.built()
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGINT} {
		s := run(t, b.sw, "a=packet:vA", "b=tap:tB", "c=tap:tC")
		b.sw.SetLink("tC", netns.Link{})
		must(t, b.sw, "ip", "link", "set", "tC", "down")
		s.says(1, "port=c", "is down")
		if err := unix.Kill(s.PID(), sig); err != nil {
			t.Fatal(err)
		}
		if code := s.exit(); code != 0 {
			t.Errorf("%v: exit code %d", sig, code)
		}
		if out := s.out.String(); out != "ready\n" {
			t.Errorf("%v: it printed %q", sig, out)
		}
		sum := s.stop()
		var got []string
		for _, p := range sum.Ports {
			got = append(got, fmt.Sprintf("%s %s %s %v", p.Name, p.Kind, p.Device, p.Up))
		}
		want := []string{"a packet vA true", "b tap tB true", "c tap tC false"}
		if !slices.Equal(got, want) {
			t.Errorf("%v: ports %v, want %v", sig, got, want)
		}
		if _, err := b.sw.Link("tB"); err == nil {
			t.Errorf("%v: the tap is still there", sig)
		}
	}
}

// TestSummaryOnStandardOutput follows `ready`.
func TestSummaryOnStandardOutput(t *testing.T) {
	b := newBed(t)
	b.built()
	out := &netns.Output{}
	p, err := b.sw.Start(t.Context(), out, netnstest.Binary(t),
		"run", "--control", "none", "--summary", "-", "-p", "a=tap:tA")
	netnstest.Need(t, err)
	wait(t, "ready", func() bool { return out.String() == "ready\n" })
	if err := p.Interrupt(patience); err != nil {
		t.Fatal(err)
	}
	text, ready := strings.CutPrefix(out.String(), "ready\n")
	if !ready || !json.Valid([]byte(text)) {
		t.Errorf("it printed %q", out.String())
	}
}

// TestSummaryBehindWhatAFileHolds: if standard output is a file, Sluice does not truncate it or
// overwrite what others wrote there.
func TestSummaryBehindWhatAFileHolds(t *testing.T) {
	b := newBed(t)
	b.built()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "out"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("before\n"); err != nil {
		t.Fatal(err)
	}
	read := func() string {
		text, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	p, err := b.sw.Start(t.Context(), f, netnstest.Binary(t), "run", "--control", "none", "--summary", "-", "-p", "a=tap:tA")
	netnstest.Need(t, err)
	wait(t, "ready", func() bool { return strings.HasSuffix(read(), "ready\n") })
	if err := p.Interrupt(patience); err != nil {
		t.Fatal(err)
	}
	text, ok := strings.CutPrefix(read(), "before\nready\n")
	if !ok || !json.Valid([]byte(text)) {
		t.Errorf("the file holds %q", read())
	}
}

// TestSummaryWhileItRuns: each SIGUSR1 writes it again, and the last one is written at the end.
// Without a file to write it to, the switch says so and goes on.
func TestSummaryWhileItRuns(t *testing.T) {
	b, x, _ := pair(t, netns.Link{}, netns.Link{})
	b.built()
	s := run(t, b.sw, "a=packet:vA", "b=packet:vB", "c=tap:t0")
	from := tapInto(t, x.Namespace, "eth0")
	ask := func(frames uint64) {
		t.Helper()
		s.until(fmt.Sprintf("a summary with %d frames", frames), func() bool {
			if err := unix.Kill(s.PID(), unix.SIGUSR1); err != nil {
				t.Fatal(err)
			}
			var sum summary.Summary
			text, err := os.ReadFile(s.summary)
			if err != nil || json.Unmarshal(text, &sum) != nil { // it may be half written
				return false
			}
			return sum.Port("a").RX.Frames >= frames
		})
	}
	ask(0)
	for range 10 {
		from.send(vnet.Frame{Head: marker()})
	}
	ask(10)
	if p := s.port("a"); !p.Up || p.RX.Frames < 10 {
		t.Errorf("at the end: %+v", p)
	}

	var out netns.Output
	p, err := b.sw.Start(t.Context(), &out, netnstest.Binary(t), "run", "--control", "none", "-p", "a=tap:t1")
	netnstest.Need(t, err)
	wait(t, "ready", func() bool { return out.String() == "ready\n" })
	if err := unix.Kill(p.PID(), unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	wait(t, "a word about the file", func() bool {
		return strings.Contains(p.Stderr(), "no --summary FILE")
	})
	if err := p.Interrupt(patience); err != nil {
		t.Error(err)
	}
}

// TestSummaryToAFIFO: one that nobody reads yet does not stop the switch from working or from
// ending.
func TestSummaryToAFIFO(t *testing.T) {
	b := newBed(t)
	b.built()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	out := &netns.Output{}
	p, err := b.sw.Start(t.Context(), out, netnstest.Binary(t),
		"run", "--control", "none", "--summary", fifo, "-p", "a=tap:tA")
	netnstest.Need(t, err)
	wait(t, "ready", func() bool { return out.String() == "ready\n" })
	r, err := os.OpenFile(fifo, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := p.Interrupt(patience); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(r); err != nil || !json.Valid(text) {
		t.Errorf("it wrote %q; %v", text, err)
	}
}

// TestReaderOfTheOutputGoes: when nobody reads its output, the switch keeps running, and still
// removes at the end what it made.
func TestReaderOfTheOutputGoes(t *testing.T) {
	b := newBed(t)
	b.cabled("a", netns.Link{})
	b.built()
	before := netdevs(t, b.sw)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	p, err := b.sw.Start(t.Context(), w, "sh", "-c", `exec "$@" 2>&1`, "sh", netnstest.Binary(t),
		"run", "--control", "none", "-p", "m=macvtap:m0,lower=vA", "-p", "a=packet:vA,gso_max_size=200000")
	w.Close()
	netnstest.Need(t, err)
	wait(t, "the macvtap", func() bool {
		return strings.Contains(netdevs(t, b.sw), "m0")
	})
	if err := p.Interrupt(patience); err != nil {
		t.Error(err)
	}
	if after := netdevs(t, b.sw); after != before {
		t.Errorf("left\n%sof\n%s", after, before)
	}
}

// TestUsage: a wrong command line gives exit code 2 and a message that says what would be right.
func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		says string
	}{
		{"", "no command"},
		{"walk", "walk"},
		{"help walk", "walk"},
		{"completion walk", "walk"},
		{"run", "no port given"},
		{"run stray", "stray"},
		{"run -p", "-p"},
		{"run --nonsense", "nonsense"},
		{"run -p a", "NAME=KIND:DEVICE"},
		{"run -p a=tap:" + strings.Repeat("x", 128), "at most 127"},
		{"run -p a=tap:t%d", "t%d"},
		{"run -p a=bridge:br0", "tap, packet or macvtap"},
		{"run -p a=tap:t0,mtu=9", "68"},
		{"run -p a=tap:t0,colour=red", "no such key"},
		{"run -p a=packet:v,netns=x", "tap"},
		{"run -p a=tap:t0,host=drop", "packet"},
		{"run -p a=tap:t0 -p a=tap:t1", "two ports a"},
		{"run -p a=tap:t0 -p b=tap:t0", "t0"},
		{"bench --rounds=x", "rounds"},
		{"config", "no command"},
		{"config walk", "walk"},
		{"config check", "FILE"},
		{"config check a b", "FILE"},
		{"config schema x", "out of place"},
	} {
		t.Run(c.args, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			cmd := exec.Command(netnstest.Binary(t), strings.Fields(c.args)...)
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			_ = cmd.Run()
			if code := cmd.ProcessState.ExitCode(); code != 2 {
				t.Errorf("exit code %d, want 2", code)
			}
			if !strings.Contains(stderr.String(), c.says) {
				t.Errorf("it says %q, want something about %q", stderr.String(), c.says)
			}
			if stdout.Len() > 0 {
				t.Errorf("it printed %q", stdout.String())
			}
		})
	}
}

// netdevs is what a namespace has: names, and what Sluice may change about them.
func netdevs(t testing.TB, ns *netns.Namespace) string {
	t.Helper()
	out, err := ns.Run(deadline(t, patience), "ip", "-d", "-o", "link")
	if err != nil {
		t.Fatal(err)
	}
	settings := regexp.MustCompile(`mtu \d+|promiscuity \d+|g[sr]o_[a-z0-9_]+ \d+|[<,]UP[,>]`)
	var all strings.Builder
	for line := range strings.Lines(string(out)) {
		name := strings.SplitN(line, ": ", 3)[1]
		fmt.Fprintln(&all, name, settings.FindAllString(line, -1))
	}
	return all.String()
}

// TestHalfWayFailureLeavesNothing: the first ports are fine, the last is not.
func TestHalfWayFailureLeavesNothing(t *testing.T) {
	b := newBed(t)
	b.cabled("a", netns.Link{})
	b.cabled("b", netns.Link{})
	b.cabled("d", netns.Link{})
	y := b.host("c")
	b.built()
	must(t, y.Namespace, "ip", "tuntap", "add", "dev", "t1", "mode", "tap", "vnet_hdr")
	must(t, b.sw, "ip", "link", "property", "add", "dev", "vA", "altname", "nickname")
	before, beforeC := netdevs(t, b.sw), netdevs(t, y.Namespace)
	for _, c := range []struct{ last, says string }{
		{"z=packet:nosuch0", "nosuch0"},
		{"z=tap:t0,netns=nosuch", "nosuch"},
		{"z=macvtap:m1", "m1"},
		{"z=macvtap:m1,lower=nosuch0", "nosuch0"},
		{"z=macvtap:m1,lower=vB", "vB"},            // m0 has it already
		{"z=macvtap:m1,lower=vD,mtu=9000", "9000"}, // above its lower's
		{"z=tap:vD", "vD"},
		{"z=macvtap:vD", "vD"},
		{"z=packet:nickname", "nickname is netdev vA, which is under port a already"},
		{"z=tap:t1,netns=/run/netns/" + y.Name, "t1 is netdev t1, which is under port e already"},
		{"z=tap:sixteen-bytes-16", "at most 15"},
	} {
		s := launch(t, b.sw, "a=packet:vA,gso_max_size=200000,gso_ipv4_max_size=200000",
			"b=macvtap:m0,lower=vB", "c=tap:t0,netns="+y.Name, "d=tap:t0",
			"e=tap:t1,gso_max_size=200000,netns="+y.Name, c.last)
		if code := s.exit(); code != 1 {
			t.Errorf("%s: exit code %d, want 1", c.last, code)
		}
		if out := s.out.String(); out != "" {
			t.Errorf("%s: it printed %q", c.last, out)
		}
		if n := s.lines("sluice: port z:", c.says); n != 1 {
			t.Errorf("%s: %d lines name %s:\n%s", c.last, n, c.says, s.logged(""))
		}
		t.Logf("%s: %s", c.last, s.logged("sluice:"))
		if after := netdevs(t, b.sw); after != before {
			t.Errorf("%s: left\n%sof\n%s", c.last, after, before)
		}
		if after := netdevs(t, y.Namespace); after != beforeC {
			t.Errorf("%s: left\n%sof\n%s", c.last, after, beforeC)
		}
	}
}

// hint is the command that an error says to try.
func hint(t testing.TB, s *sluice) string {
	t.Helper()
	_, try, ok := strings.Cut(s.logged("sluice:"), "; try: ")
	if !ok {
		t.Fatalf("it says nothing to try:\n%s", s.logged(""))
	}
	return strings.TrimSpace(try)
}

// shell runs a command as a user would type it.
func shell(t testing.TB, ns *netns.Namespace, command string) string {
	t.Helper()
	out, err := ns.Run(deadline(t, patience), "sh", "-ec", command)
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// TestErrorsAtAttachTellTheRemedy: whatever is wrong with a device, the error says what differs,
// and the command in it fixes the problem.
func TestErrorsAtAttachTellTheRemedy(t *testing.T) {
	const (
		veth = "ip link add t0 type veth peer name t1"
		tap  = "ip tuntap add dev t0 mode tap vnet_hdr"
	)
	// A hint is a command, or a change of the port, or offers both.
	command := func(hint string) string {
		i := strings.Index(hint, "ip ")
		if i < 0 {
			return "false # no command in: " + hint // shell says so
		}
		return hint[i:]
	}
	key := func(hint string) string { k, _, _ := strings.Cut(hint, ", or "); return k }
	device := func(hint string) string { d, _, _ := strings.Cut(hint, " as "); return d }
	for _, c := range []struct {
		name    string
		prepare string // in the switch's namespace
		port    string // which cannot be had
		says    string
		// remedy turns the hint into a command and the port to use then.
		remedy func(hint string) (run, port string)
	}{
		{"a TUN", "ip tuntap add dev t0 mode tun", "a=tap:t0", "a TUN, not a TAP",
			func(h string) (string, string) { return command(h), "a=tap:t0" }},
		{"multi_queue, one queue wanted", tap + " multi_queue", "a=tap:t0", "multi_queue",
			func(h string) (string, string) { return command(h), "a=tap:t0" }},
		{"the same, by the key", tap + " multi_queue", "a=tap:t0", "multi_queue",
			func(h string) (string, string) { return "true", "a=tap:t0," + key(h) }},
		{"no multi_queue, two wanted", tap, "a=tap:t0,queues=2", "multi_queue",
			func(h string) (string, string) { return command(h), "a=tap:t0,queues=2" }},
		{"the same, by the key", tap, "a=tap:t0,queues=2", "multi_queue",
			func(h string) (string, string) { return "true", "a=tap:t0," + key(h) }},
		{"a veth, as a tap", veth, "a=tap:t0", "veth",
			func(h string) (string, string) { return "true", "a=" + device(h) }},
		{"a veth, as a macvtap", veth, "a=macvtap:t0", "veth",
			func(h string) (string, string) { return "true", "a=" + device(h) }},
		{"a macvtap over another netdev",
			veth + "; ip link add link t1 name m0 type macvtap mode passthru",
			"a=macvtap:m0,lower=t0", "not over t0",
			func(string) (string, string) { return "ip link del m0", "a=macvtap:m0,lower=t0" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t)
			b.built()
			shell(t, b.sw, c.prepare)
			s := launch(t, b.sw, c.port)
			if code := s.exit(); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			text := s.logged("sluice:")
			t.Log(text)
			if !strings.Contains(text, c.says) {
				t.Errorf("it does not say %q", c.says)
			}
			try := ""
			if strings.Contains(text, "; try: ") {
				try = hint(t, s)
			}
			typed, port := c.remedy(try)
			shell(t, b.sw, typed)
			run(t, b.sw, port)
		})
	}
}

// TestErrorInANamespaceSaysWhereToType: the error says in which namespace to run the command.
func TestErrorInANamespaceSaysWhereToType(t *testing.T) {
	b := newBed(t)
	y := b.host("a")
	b.built()
	shell(t, y.Namespace, "ip tuntap add dev t0 mode tun")
	port := "a=tap:t0,netns=" + y.Name
	s := launch(t, b.sw, port)
	if code := s.exit(); code != 1 || s.lines("in network namespace "+y.Name) != 1 {
		t.Errorf("exit code %d, log:\n%s", code, s.logged(""))
	}
	shell(t, y.Namespace, hint(t, s))
	run(t, b.sw, port)
}

// TestBusyDeviceNamesItsHolder: if the holder is not a switch, the command in the error finds the
// process. When that is gone, the device is available.
func TestBusyDeviceNamesItsHolder(t *testing.T) {
	tap := func(queues int) func() ([]*tunio.Queue, error) {
		return func() ([]*tunio.Queue, error) {
			return tunio.OpenTap(tunio.TapConfig{Name: "busy0", Queues: queues})
		}
	}
	for _, c := range []struct {
		name, prepare, port string
		open                func() ([]*tunio.Queue, error)
	}{
		{"tap", "ip tuntap add dev busy0 mode tap vnet_hdr", "a=tap:busy0", tap(1)},
		{"tap with queues", "ip tuntap add dev busy0 mode tap multi_queue vnet_hdr",
			"a=tap:busy0,queues=2", tap(2)},
		{"macvtap", "ip link add v0 type veth peer name v1; " +
			"ip link add link v0 name busy0 type macvtap mode passthru", "a=macvtap:busy0",
			func() ([]*tunio.Queue, error) { return tunio.OpenMacvtap("busy0", 1) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t)
			b.built()
			shell(t, b.sw, c.prepare)
			var held []*tunio.Queue
			err := b.sw.Do(func() (err error) {
				held, err = c.open()
				return err
			})
			netnstest.Need(t, err)
			release := func() {
				for _, q := range held {
					q.Close()
				}
			}
			defer release()
			s := launch(t, b.sw, c.port)
			if code := s.exit(); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			text := s.logged("sluice:")
			t.Log(text)
			if !strings.Contains(text, "busy") || !strings.Contains(text, "busy0") {
				t.Error("it does not say that busy0 is busy")
			}
			command, _, _ := strings.Cut(hint(t, s), "  (")
			// Processes that end meanwhile are no concern.
			out := shell(t, b.sw, command+" || true")
			if !strings.Contains(out, strconv.Itoa(os.Getpid())) {
				t.Errorf("%s prints %q: nothing about process %d", command, out, os.Getpid())
			}
			release()
			run(t, b.sw, c.port)
		})
	}
}

// TestNoPermissionNamesTheCapability: for a user without privileges, each kind's error names what
// is missing. With the named capabilities, added one by one, it works.
func TestNoPermissionNamesTheCapability(t *testing.T) {
	const nobody = "65534"
	// A /dev/net/tun of its own, that root alone may open: `ip netns exec` has made a
	// mount namespace for it.
	const ownTun = "mount -t tmpfs tmpfs /dev/net; mknod -m 0600 /dev/net/tun c 10 200; "
	named := regexp.MustCompile(`(?i)cap_[a-z_]+`)
	for _, c := range []struct {
		port string
		caps []string // that turn out to be needed
	}{
		{"a=packet:vA", []string{"bpf", "net_admin", "net_raw"}},
		{"a=packet:vA,host=keep", []string{"net_raw"}},
		{"a=tap:t0", []string{"net_admin"}},
	} {
		t.Run(c.port, func(t *testing.T) {
			b := newBed(t)
			b.cabled("a", netns.Link{})
			b.built()
			file := everybodys(t, netnstest.Binary(t))
			typed := ownTun
			var granted []string
			for range len(c.caps) + 2 {
				caps := strings.Join(append([]string{"-all"}, granted...), ",+")
				s := launchUnder(t, b.sw, []string{"sh", "-ec", typed + `exec "$0" "$@"`,
					// A change of the user clears what ends it with the test.
					"setpriv", "--pdeathsig", "KILL",
					"--reuid", nobody, "--regid", nobody, "--clear-groups",
					"--inh-caps", caps, "--ambient-caps", caps}, file, filepath.Dir(file), c.port)
				s.until("it to be ready or to end", func() bool {
					select {
					case <-s.Done():
						return true
					default:
						return s.out.String() == "ready\n"
					}
				})
				if s.out.String() == "ready\n" {
					s.stop()
					break
				}
				text := s.logged("sluice: port a:")
				t.Log(text)
				before := typed + fmt.Sprint(granted)
				if command, ok := strings.CutPrefix(hint(t, s), "chmod "); ok {
					command, _, _ = strings.Cut(command, "  (")
					typed += "chmod " + command + "; "
				}
				for _, name := range named.FindAllString(text, -1) {
					name = strings.ToLower(name[len("cap_"):])
					if !slices.Contains(granted, name) {
						granted = append(granted, name)
					}
				}
				if typed+fmt.Sprint(granted) == before {
					t.Fatalf("with %v: it names nothing more:\n%s", granted, s.logged(""))
				}
			}
			if slices.Sort(granted); !slices.Equal(granted, c.caps) {
				t.Errorf("it needed %v, want %v", granted, c.caps)
			}
		})
	}
}

// everybodys is a copy of the binary that any user may run, in a folder that any user may write to.
func everybodys(t testing.TB, binary string) string {
	t.Helper()
	text, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := netns.TempDir("switch")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { netns.RemoveDir(dir) })
	file := filepath.Join(dir, "sluice")
	if err := errors.Join(os.Chmod(dir, 0o777), os.WriteFile(file, text, 0o755)); err != nil {
		t.Fatal(err)
	}
	return file
}
