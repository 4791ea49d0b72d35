package traffic

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/dataplane/summary"
	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
	"sluice/vnet"
)

// steered is a running switch and the commands that talk to it.
type steered struct {
	*netns.Sluice
	t testing.TB
}

func steer(t *testing.T, ns *netns.Namespace, args ...string) *steered {
	t.Helper()
	return &steered{netnstest.Sluice(t, ns, args...), t}
}

// command runs a command and returns what it prints; it must do what it is told.
func (s *steered) command(args string) (stdout, stderr string) {
	s.t.Helper()
	code, stdout, stderr := command(s.t, "", append(strings.Fields(args), "--control", s.Control)...)
	if code != 0 {
		s.t.Fatalf("sluice %s: exit code %d\n%s%s", args, code, stdout, stderr)
	}
	return stdout, stderr
}

// prints fails the test if a command does not print all of parts.
func (s *steered) prints(args string, parts ...string) {
	s.t.Helper()
	stdout, stderr := s.command(args)
	for _, p := range parts {
		if !strings.Contains(stdout+stderr, p) {
			s.t.Errorf("sluice %s says\n%s%swant %s", args, stdout, stderr, p)
		}
	}
}

// refuses fails the test if a command does not end with a code and say why.
func (s *steered) refuses(code int, args, says string) {
	s.t.Helper()
	got, stdout, stderr := command(s.t, "", append(strings.Fields(args), "--control", s.Control)...)
	if got != code || stdout != "" || !strings.Contains(stderr, says) {
		s.t.Errorf("sluice %s: exit code %d, want %d\n%s%swant %s", args, got, code, stdout, stderr, says)
	}
}

// shown is what `sluice show --json` says.
func (s *steered) shown() (all map[string]shownPort, revision uint64) {
	s.t.Helper()
	var show struct {
		Revision uint64
		Ports    []shownPort
	}
	stdout, _ := s.command("show --json")
	if err := json.Unmarshal([]byte(stdout), &show); err != nil {
		s.t.Fatal(err)
	}
	all = map[string]shownPort{}
	for _, p := range show.Ports {
		all[p.Name] = p
	}
	return all, show.Revision
}

type shownPort struct {
	summary.Port
	Why string
}

// stream sends numbered UDP datagrams from one host to another until stop, which fails the
// test if one got lost or came out of order. It sends no more when so many are under way:
// who is slow loses nothing.
func stream(t *testing.T, from, to *host) (stop func() (sent uint64)) {
	t.Helper()
	var in, out *net.UDPConn
	err := to.Do(func() (err error) {
		in, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(to.v4)})
		return err
	})
	if err == nil {
		err = from.Do(func() (err error) {
			out, err = net.DialUDP("udp", nil, in.LocalAddr().(*net.UDPAddr))
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	const window = 16
	var got atomic.Uint64
	ended := make(chan struct{})
	arrived := make(chan struct{}, 1)
	done := make(chan error, 2)
	go func() {
		b := make([]byte, 64)
		for n := uint64(0); ; n++ {
			size, err := in.Read(b)
			switch {
			case errors.Is(err, net.ErrClosed):
				done <- nil
				return
			case err != nil:
				done <- err
				return
			case size != 8 || binary.BigEndian.Uint64(b) != n:
				done <- fmt.Errorf("datagram %d came, and %d was sent then", binary.BigEndian.Uint64(b), n)
				return
			}
			got.Store(n + 1)
			select {
			case arrived <- struct{}{}:
			default:
			}
		}
	}()
	var sent uint64
	go func() {
		late := time.NewTimer(patience)
		for {
			for sent-got.Load() >= window {
				late.Reset(patience)
				select {
				case <-arrived:
				case <-late.C:
					done <- fmt.Errorf("of %d datagrams %d arrived", sent, got.Load())
					return
				}
			}
			select {
			case <-ended:
				done <- nil
				return
			default:
			}
			if _, err := out.Write(binary.BigEndian.AppendUint64(nil, sent)); err != nil {
				done <- err
				return
			}
			sent++
		}
	}()
	return func() uint64 {
		t.Helper()
		close(ended)
		if err := <-done; err != nil {
			t.Error(err)
		}
		wait(t, "the last datagrams", func() bool { return got.Load() == sent })
		in.Close()
		out.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		return sent
	}
}

// TestSteeringLosesNoFrame of two ports, while others come, change and go, the file is read
// again, and clients of the control socket are slow or talk nonsense.
func TestSteeringLosesNoFrame(t *testing.T) {
	b, x, y := pair(t, netns.Link{}, netns.Link{})
	b.cabled("c", netns.Link{})
	b.built()
	name := file(t, t.TempDir(), "sluice.yaml", "ports:\n  a: {kind: packet, device: vA}\n  b: {kind: packet, device: vB}\n")
	s := steer(t, b.sw, "-c", name)
	for i := range 10 {
		c, err := net.Dial("unix", s.Control)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, []string{
			"", "GET /v1/sh", "PUT /v1/config HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{", "\x00\xff\r\n\r\n",
			"GET /v1/events?since=0&follow=1 HTTP/1.1\r\nHost: x\r\n\r\n",
		}[i%5])
	}
	stop := stream(t, x, y)
	for range 10 {
		s.prints("port add c=packet:vC", "port c added")
		s.prints("port add t=tap:tT,mtu=9000", "port t added")
		s.prints("port set c gso_max_size=20000 tag=7", "port c: gso_max_size unset -> 20000", "tag unset -> 7")
		s.prints("port set t queues=2", "(re-attach)")
		s.prints("port set c tag= isolated=true", "tag 7 -> unset")
		s.prints("fdb add 52:54:00:00:00:0a c", "added: port c")
		s.prints("fdb del 52:54:00:00:00:0a", "removed")
		s.prints("port del t", "port t removed")
		s.prints("reload", "port c removed")
	}
	sent := stop()
	stdout, _ := s.command("stats --json")
	var stats summary.Summary
	if err := json.Unmarshal([]byte(stdout), &stats); err != nil {
		t.Fatal(err)
	}
	if a, b := stats.Port("a"), stats.Port("b"); a.RX.Frames < sent || b.TX.Frames < sent || b.Drops.Egress["full"] > 0 {
		t.Errorf("%d were sent\n%s", sent, stdout)
	}
	t.Logf("%d datagrams", sent)
}

// TestReload by SIGHUP and by command; a file with an error changes nothing.
func TestReload(t *testing.T) {
	b := newBed(t)
	b.built()
	const first = "ports:\n  a: {kind: tap, device: tA}\n  b: {kind: tap, device: tB}\n"
	name := file(t, t.TempDir(), "sluice.yaml", first)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := steer(t, b.sw, "-c", name)
	s.prints("reload", "nothing changes")
	write(strings.Replace(first, "tB}", "tB, mtu: 9000}", 1))
	s.prints("reload --dry-run", "port b: mtu unset -> 9000 (live)\n")
	if mtu := link(t, b.sw, "tB").MTU; mtu != 1500 {
		t.Errorf("a dry run has made the MTU %d", mtu)
	}
	s.prints("reload", "port b: mtu unset -> 9000 (live)\n")
	if mtu := link(t, b.sw, "tB").MTU; mtu != 9000 {
		t.Errorf("the MTU is %d", mtu)
	}
	was, _ := s.command("config show")
	write("ports:\n  a: {kind: tap, device: tA}\n  b: {kind: tap, device: tB, mtu: 90000}\n")
	says := name + ":3:35: ports.b.mtu: 90000 is not a number from 68 to 65535"
	s.refuses(1, "reload", says)
	hup := func() {
		t.Helper()
		if err := unix.Kill(s.PID(), unix.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	hup()
	wait(t, "the log to tell of the file", func() bool { return strings.Contains(s.Stderr(), says) })
	if is, _ := s.command("config show"); is != was {
		t.Errorf("a bad file has made it\n%sof\n%s", is, was)
	}
	write("ports:\n  a: {kind: tap, device: tA}\n")
	hup()
	wait(t, "port b to go", func() bool {
		ports, _ := s.shown()
		_, there := ports["b"]
		return !there
	})
	if _, err := b.sw.Link("tB"); err == nil {
		t.Error("the TAP of a port that is gone is still there")
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	s.refuses(1, "reload", "no such file")
	if err := unix.Mkfifo(name, 0o600); err != nil { // whoever opens it to read waits for a writer
		t.Fatal(err)
	}
	s.refuses(1, "reload", name+" is no regular file, and is read at the start alone")
	hup()
	wait(t, "the log to tell of the FIFO", func() bool {
		return strings.Contains(s.Stderr(), "SIGHUP changes nothing: "+name+" is no regular file")
	})
	steer(t, b.sw, "-p", "c=tap:tC").refuses(1, "reload", "the switch was not started from a file; start it with `sluice run -c FILE`")
}

// TestPortWaitsForItsDevice: one that cannot be had is down and says why, and comes up when
// its netdev appears.
func TestPortWaitsForItsDevice(t *testing.T) {
	b := newBed(t)
	b.cabled("a", netns.Link{})
	b.built()
	s := steer(t, b.sw, "-p", "a=packet:vA")
	s.prints("port add b=packet:vB", "port b added: b=packet:vB", "port b is down: ", "no such")
	ports, revision := s.shown()
	if p := ports["b"]; p.Up || !strings.Contains(p.Why, "no such") {
		t.Errorf("%+v", p)
	}
	s.prints("show", "b     packet  vB      down", "port b is down: ")
	b.cabled("b", netns.Link{})
	b.built()
	wait(t, "the port to come up", func() bool {
		ports, _ := s.shown()
		return ports["b"].Up
	})
	if _, now := s.shown(); now != revision {
		t.Errorf("revision %d, was %d", now, revision)
	}
	s.prints("show b", "port b: packet vB, up", "gso_max_size", "netdev")
}

// TestStaticAddress: frames for it go to its port alone, also after a flush, until it is
// removed.
func TestStaticAddress(t *testing.T) {
	b, x, _ := pair(t, netns.Link{}, netns.Link{})
	b.cabled("c", netns.Link{})
	b.built()
	s := steer(t, b.sw, "-p", "a=packet:vA", "-p", "b=packet:vB", "-p", "c=packet:vC")
	const mac = "52:54:00:00:00:0a"
	s.prints("fdb add "+mac+" b", "static address "+mac+" in VLAN 0 added: port b")
	s.prints("fdb show --port b", mac+"  b     static")
	s.command("fdb flush")
	s.prints("fdb show", mac)
	from := tapInto(t, x.Namespace, "eth0")
	frame := marker()
	copy(frame, []byte{0x52, 0x54, 0, 0, 0, 0x0a})
	copies := func() uint64 {
		t.Helper()
		ports, _ := s.shown()
		return ports["a"].RX.Copies
	}
	offered := func() uint64 {
		ports, _ := s.shown()
		return ports["b"].TX.Offered
	}
	before, at := copies(), offered()
	const n = 200
	for range n {
		from.send(vnet.Frame{Head: frame})
	}
	wait(t, "the frames", func() bool { return offered() >= at+n })
	const others = 50 // that the host itself may flood
	if after := copies(); after > before+others {
		t.Errorf("%d copies were made of %d frames for a static address", after-before, n)
	}
	s.prints("fdb del "+mac, "removed")
	s.refuses(1, "fdb del "+mac, "there is no static entry for "+mac+" in VLAN 0")
	before = copies()
	for range n {
		from.send(vnet.Frame{Head: frame})
	}
	wait(t, "the frames to be flooded", func() bool { return copies() >= before+n })
}

// TestEventsAreSeen as they happen.
func TestEventsAreSeen(t *testing.T) {
	b := newBed(t)
	b.cabled("a", netns.Link{})
	b.built()
	s := steer(t, b.sw, "-p", "a=packet:vA")
	out := &netns.Output{}
	p, err := b.sw.Start(t.Context(), out, netnstest.Binary(t), "events", "--follow", "--since", "0", "--json", "--control", s.Control)
	netnstest.Need(t, err)
	happened := func(kind string) {
		t.Helper()
		wait(t, kind, func() bool { return strings.Contains(out.String(), `"event":"`+kind+`","port":"a"`) })
	}
	happened("port_added")
	happened("port_up")
	must(t, b.sw, "ip", "link", "set", "vA", "down")
	happened("port_down")
	s.command("port set a mtu=1400")
	happened("config_applied")
	for line := range strings.Lines(out.String()) {
		if !json.Valid([]byte(line)) || strings.Contains(line, `\u003`) {
			t.Errorf("%q", line)
		}
	}
	if err := p.Interrupt(patience); err != nil {
		t.Errorf("it ended with %v", err)
	}
	s.prints("events", "port_down      port a is down: the device is down; try: ip link set vA up")
	s.prints("events --since 1000")
}

// TestConfigShowMakesTheSameSwitch: given back, to it or to another, it changes nothing.
func TestConfigShowMakesTheSameSwitch(t *testing.T) {
	b := newBed(t)
	b.cabled("a", netns.Link{})
	b.built()
	s := steer(t, b.sw, "-p", "a=packet:vA,tag=5,host=keep", "-p", "b=tap:tB,trunks=1+5-9,mtu=9000", "-p", "c=tap:tC")
	s.command("port set c oversize=segment isolated=true storm=100")
	s.command("fdb add 52:54:00:00:00:0a a --vlan 5")
	s.command("port add d=packet:missing0")
	text, _ := s.command("config show")
	_, revision := s.shown()
	status, answer := s.overSocket("PUT", "/v1/config", "application/yaml", text)
	if _, now := s.shown(); status != 200 || !strings.Contains(answer, `"changes": []`) || now != revision {
		t.Errorf("given back: %d, revision %d, was %d\n%s", status, now, revision, answer)
	}
	asJSON, _ := s.command("config show --json")
	if status, answer := s.overSocket("PUT", "/v1/config", "application/json", asJSON); status != 200 || !strings.Contains(answer, `"changes": []`) {
		t.Errorf("given back as JSON: %d\n%s", status, answer)
	}
	if _, err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	next := steer(t, b.sw, "-c", file(t, t.TempDir(), "sluice.yaml", text))
	mine := strings.ReplaceAll(text, s.Control, next.Control)
	if again, _ := next.command("config show"); again != mine {
		t.Errorf("another switch is\n%swant\n%s", again, mine)
	}
}

// TestSwitchesByName have sockets of their own.
func TestSwitchesByName(t *testing.T) {
	b := newBed(t)
	b.built()
	name := fmt.Sprintf("test-%d", os.Getpid())
	start := func() (*netns.Process, *netns.Output) {
		t.Helper()
		out := &netns.Output{}
		p, err := b.sw.Start(t.Context(), out, netnstest.Binary(t), "run", "--name", name, "-p", "a=tap:tA")
		netnstest.Need(t, err)
		return p, out
	}
	p, out := start()
	wait(t, "ready", func() bool { return out.String() == "ready\n" })
	code, stdout, stderr := command(t, "", "show", "--name", name)
	if code != 0 || !strings.HasPrefix(stdout, "switch "+name+": process "+fmt.Sprint(p.PID())) {
		t.Errorf("%d\n%s%s", code, stdout, stderr)
	}
	if code, stdout, _ := command(t, "", "__complete", "show", "--name", ""); code != 0 || !strings.Contains(stdout, name+"\n") {
		t.Errorf("the name is completed with\n%s", stdout)
	}
	second, _ := start()
	if err := second.Wait(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("is answered by process %d", p.PID())) {
		t.Errorf("a second one of this name: %v", err)
	}
	if err := p.Interrupt(patience); err != nil {
		t.Fatal(err)
	}
	code, _, stderr = command(t, "", "show", "--name", name)
	if code != 1 || !strings.Contains(stderr, "no switch answers at /run/sluice-"+name+".sock: start one with `sluice run`") {
		t.Errorf("%d\n%s", code, stderr)
	}
}

// TestWrongCommands say what would be right, and end with the promised code.
func TestWrongCommands(t *testing.T) {
	b := newBed(t)
	b.built()
	s := steer(t, b.sw, "-p", "a=tap:tA")
	_, before := s.shown()
	for _, c := range []struct {
		code       int
		args, says string
	}{
		{2, "port add", "want one NAME=KIND:DEVICE"},
		{2, "port add c", "c: want NAME=KIND:DEVICE[,key=value...], for example a=packet:veth0"},
		{2, "port add c=tap:tC,mtu=5", "c=tap:tC,mtu=5: mtu: 5 is not a number from 68 to 65535"},
		{1, "port add a=tap:tC", "there are two ports a"},
		{1, "port add c=tap:tA", "device tA is under port a already"},
		{1, "port del x", `there is no port "x"`},
		{2, "port set a", "want the NAME of a port, and key=value"},
		{2, "port set a mtu", `"mtu" is not key=value`},
		{2, "port set a mtu=1 mtu=2", "mtu is given twice"},
		{1, "port set a mtuu=1", "sluice: mtuu: no such key: did you mean mtu?\n"},
		{1, "port set a mtu=1", "sluice: mtu: 1 is not a number"},
		{1, "show x", "there is no port \"x\": `sluice show` lists the ports"},
		{1, "stats x", `there is no port "x"`},
		{2, "stats --watch=0", "want 0.1 to 3600 seconds"},
		{2, "stats --watch=x", "sluice: invalid argument \"x\" for \"--watch\" flag: want a number; `sluice stats --help`"},
		{2, "stats --json=x", "flag: want true or false;"},
		{2, "fdb show --vlan -1", "flag: want a whole number, 0 or greater;"},
		{2, "fdb flush --vlan 99999", "flag: it is out of range;"},
		{2, "bench --rounds x", "flag: want a whole number;"},
		{1, "fdb show --port x", `there is no port "x"`},
		{2, "fdb add 1 a", "is not the MAC address of a host"},
		{1, "fdb add 52:54:00:00:00:0a x", `there is no port "x"`},
		{2, "fdb flush all", "out of place"},
		{2, "events now", "out of place"},
	} {
		s.refuses(c.code, c.args, c.says)
	}
	if _, after := s.shown(); after != before {
		t.Errorf("revision %d, was %d", after, before)
	}
}

// TestCompletionKnowsThePorts of the running switch, their keys and their values.
func TestCompletionKnowsThePorts(t *testing.T) {
	b := newBed(t)
	b.built()
	s := steer(t, b.sw, "-p", "a1=tap:tA", "-p", "b1=tap:tB")
	t.Setenv("SLUICE_CONTROL", s.Control)
	for _, c := range []struct{ args, has, not string }{
		{"show", "a1\ttap tA\nb1\ttap tB\n", ""},
		{"stats a1", "b1", "a1"},
		{"port del", "a1", ""},
		{"port set", "b1", "mtu"},
		{"port set a1", "gso_max_size=\t", "b1"},
		{"fdb add 52:54:00:00:00:0a", "a1", ""},
		{"fdb flush --port", "b1", ""},
	} {
		code, stdout, stderr := command(t, "", append(append([]string{"__complete"}, strings.Fields(c.args)...), "")...)
		if code != 0 || !strings.Contains(stdout, c.has) || c.not != "" && strings.Contains(stdout, c.not) {
			t.Errorf("%s: %d\n%s%s", c.args, code, stdout, stderr)
		}
	}
	if _, stdout, _ := command(t, "", "__complete", "port", "set", "a1", "oversize="); !strings.Contains(stdout, "oversize=segment\n") {
		t.Errorf("values: %s", stdout)
	}
	if _, stdout, _ := command(t, "", "__complete", "port", "add", "c=tap:tC,mtu=9000,offload="); !strings.Contains(stdout, "c=tap:tC,mtu=9000,offload=csum\n") {
		t.Errorf("values of a new port: %s", stdout)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if code, stdout, _ := command(t, "", "completion", shell); code != 0 || !strings.Contains(stdout, "__complete") {
			t.Errorf("%s: %d", shell, code)
		}
	}
	t.Setenv("SLUICE_CONTROL", s.Control+"x")
	if code, stdout, _ := command(t, "", "__complete", "show", ""); code != 0 || stdout != ":4\n" {
		t.Errorf("without a switch: %d\n%s", code, stdout)
	}
}

// TestRatesAreWatched: each block has the ports and fits 80 columns.
func TestRatesAreWatched(t *testing.T) {
	b, x, y := pair(t, netns.Link{}, netns.Link{})
	s := steer(t, b.sw, "-p", "a=packet:vA", "-p", "b=packet:vB")
	stop := stream(t, x, y)
	out := &netns.Output{}
	p, err := b.sw.Start(t.Context(), out, netnstest.Binary(t), "stats", "--watch=0.1", "--control", s.Control)
	netnstest.Need(t, err)
	wait(t, "a second block", func() bool { return strings.Count(out.String(), "\n\n") >= 2 })
	if err := p.Interrupt(patience); err != nil {
		t.Errorf("it ended with %v", err)
	}
	stop()
	text := out.String()
	for line := range strings.Lines(text) {
		if len(line) > 81 || strings.Contains(line, "\x1b") {
			t.Errorf("%q", line)
		}
	}
	if f := strings.Fields(strings.SplitN(text, "\n", 3)[1]); len(f) != 7 || f[0] != "a" || f[2] == "0" {
		t.Errorf("%q", f)
	}
}

// overSocket sends a request to the switch's socket.
func (s *steered) overSocket(method, path, kind, body string) (status int, text string) {
	s.t.Helper()
	client := http.Client{Transport: &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", s.Control) },
		DisableKeepAlives: true,
	}}
	r, err := http.NewRequestWithContext(s.t.Context(), method, "http://sluice"+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", kind)
	answer, err := client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, string(all)
}
