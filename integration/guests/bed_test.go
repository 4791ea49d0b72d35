package guests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice/dataplane/summary"
	"sluice/integration/guests/seen"
	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
	"sluice/integration/vm"
)

const (
	// patience is how long something may take that is about to happen.
	patience = time.Minute
	// ethernetFrame is the longest frame of an MTU of 1500.
	ethernetFrame = 1514
	// wholeFrame is what no frame of an MTU of 1500 comes near: super-packets are longer.
	wholeFrame = 3 * ethernetFrame
	// quickSize is what TCP moves each way where that is to be quick: bytes.
	quickSize = 4 << 20
)

// bed is a namespace for the switch and the guests' taps.
type bed struct {
	t      *testing.T
	net    *netns.Lab
	vm     *vm.Lab
	sw     *netns.Namespace
	guests []*guest
	*netns.Sluice
}

func newBed(t *testing.T) *bed {
	b := &bed{t: t, net: netnstest.New(t)}
	b.sw = b.net.Namespace("sw")
	b.sw.Silent()
	netnstest.Need(t, b.net.Err())
	b.vm = vm.New(t)
	return b
}

// guest is a virtual machine with one NIC, eth0. Guest a is 10.0.0.1 and fd00::1.
type guest struct {
	*vm.Guest
	t      *testing.T
	name   string
	v4, v6 string
	uso    string // tx-udp-segmentation as its driver had it before setUp
}

// guest starts a guest whose NIC is on a tap: tapA for a. It boots beside others.
func (b *bed) guest(name, series string, nic vm.NIC, options ...vm.Option) *guest {
	b.t.Helper()
	n := int(name[0]-'a') + 1
	nic.Tap, nic.MAC = b.tap(name), fmt.Sprintf("52:54:00:00:00:%02x", n)
	options = append(options, nic, vm.In(b.sw), vm.Program{Name: "peer", File: peerFile(b.t)})
	g := &guest{
		Guest: b.vm.Guest(series, options...), t: b.t, name: name,
		v4: "10.0.0." + strconv.Itoa(n), v6: "fd00::" + strconv.Itoa(n),
	}
	b.guests = append(b.guests, g)
	return g
}

func (b *bed) tap(name string) string { return "tap" + strings.ToUpper(name) }

// makeTap makes a guest's tap, which then stays when QEMU goes.
func (b *bed) makeTap(name string, flags ...string) {
	b.t.Helper()
	args := append([]string{"tuntap", "add", "dev", b.tap(name), "mode", "tap", "vnet_hdr"}, flags...)
	if _, err := b.sw.Run(b.t.Context(), "ip", args...); err != nil {
		b.t.Fatal(err)
	}
}

// run runs the switch over all guests' taps, and sets the guests up. keys are added to
// each port, as "queues=2".
func (b *bed) run(keys ...string) {
	b.t.Helper()
	var args []string
	for _, g := range b.guests {
		port := append([]string{g.name + "=packet:" + b.tap(g.name)}, keys...)
		args = append(args, "-p", strings.Join(port, ","))
	}
	b.Sluice = netnstest.Sluice(b.t, b.sw, args...)
	for _, g := range b.guests {
		g.setUp()
	}
}

// stop ends the switch and returns its summary, by port.
func (b *bed) stop() map[string]summary.Port {
	b.t.Helper()
	sum, err := b.Stop()
	if err != nil {
		b.t.Fatal(err)
	}
	ports := map[string]summary.Port{}
	for _, p := range sum.Ports {
		ports[p.Name] = p
	}
	return ports
}

// setUp is to be done after every boot: addresses, ECN, and Command peer to answer.
// Without GRO, what comes in is seen as the driver hands it over.
func (g *guest) setUp() {
	g.t.Helper()
	g.run(
		"sysctl -qw net.ipv4.tcp_ecn=1 net.core.rmem_default=8388608",
		"ethtool -K eth0 gro off",
		"ip link set eth0 up",
		"ip addr add "+g.v4+"/24 dev eth0",
		"ip addr add "+g.v6+"/64 dev eth0 nodad",
	)
	if g.uso = g.feature("tx-udp-segmentation"); g.uso == "off" {
		g.run("ethtool -K eth0 tx-udp-segmentation on")
	}
	ready := &lines{}
	if _, err := g.Start(vm.Cmd{Args: []string{"peer", "serve"}, Stdout: ready}); err != nil {
		g.t.Fatal(err)
	}
	ready.wait(g.t, "peer serve", func(all []string) bool { return len(all) > 0 })
}

// feature is what ethtool -k says of one of the driver's features: "on", "off", or
// either with "[fixed]" where the driver cannot do otherwise.
func (g *guest) feature(name string) string {
	g.t.Helper()
	for line := range strings.Lines(g.Run("ethtool", "-k", "eth0")) {
		if state, ok := strings.CutPrefix(strings.TrimSpace(line), name+": "); ok {
			return state
		}
	}
	g.t.Fatalf("guest %s: ethtool -k does not know %s", g.name, name)
	return ""
}

// usoAtBoot fails the test unless the driver's sending of USO is as the README says of
// its kernel. host is whether QEMU offers it.
func (g *guest) usoAtBoot(host bool) {
	g.t.Helper()
	want := "on"
	switch {
	case !host, strings.HasPrefix(g.Release(), "6.1."):
		want = "off [fixed]"
	case strings.HasPrefix(g.Release(), "6.12."):
		want = "off"
	}
	if g.uso != want {
		g.t.Errorf("guest %s, %s: tx-udp-segmentation %s, want %s", g.name, g.Release(), g.uso, want)
	}
}

// run runs commands, whose words have no spaces, and stops the test at the first that
// fails.
func (g *guest) run(commands ...string) {
	g.t.Helper()
	for _, c := range commands {
		g.Run(strings.Fields(c)...)
	}
}

// exchange moves bytes both ways at once, and compares checksums.
func (g *guest) exchange(address string, size int) {
	g.t.Helper()
	if _, err := g.Try("peer", "swap", address, strconv.Itoa(size)); err != nil {
		g.t.Error(err)
	}
}

// echo sends UDP datagrams at once, and wants them back.
func (g *guest) echo(address string, size, count int) {
	g.t.Helper()
	if _, err := g.Try("peer", "echo", address, strconv.Itoa(size), strconv.Itoa(count)); err != nil {
		g.t.Error(err)
	}
}

// ping wants all echoes back.
func (g *guest) ping(address string, size int) {
	g.t.Helper()
	out, err := g.Try("ping", "-c", "3", "-W", "20", "-s", strconv.Itoa(size), address)
	if err != nil || !strings.Contains(out.Stdout, " 0% packet loss") {
		g.t.Errorf("ping %s: %v\n%s", address, err, out.Stdout)
	}
}

// reaches waits until another guest answers.
func (g *guest) reaches(address string) {
	g.t.Helper()
	soon(g.t, address+" to answer", func() bool {
		_, err := g.Try("ping", "-c", "1", "-W", "1", address)
		return err == nil
	})
}

// traffic is exchanges one after the other.
type traffic struct {
	t *testing.T
	p *vm.Process
}

// background exchanges again and again, until told to stop.
func (g *guest) background(address string, size int) traffic {
	g.t.Helper()
	return traffic{g.t, g.Background("peer", "swap", "-on", address, strconv.Itoa(size))}
}

// stop waits for the present exchange; none may have failed.
func (b traffic) stop() {
	b.t.Helper()
	err := b.p.Signal(syscall.SIGTERM)
	r, waitErr := b.p.Wait()
	if err := errors.Join(err, waitErr); err != nil {
		b.t.Error(err)
		return
	}
	b.t.Logf("%s exchanges", strings.TrimSpace(r.Stdout))
}

// watch is what a guest's NIC hands over, as long as it runs.
type watch struct {
	t     *testing.T
	p     *vm.Process
	lines *lines
}

func (g *guest) watch() *watch {
	g.t.Helper()
	w := &watch{t: g.t, lines: &lines{}}
	cmd := vm.Cmd{Args: []string{"peer", "watch", "eth0"}, Stdout: w.lines}
	var err error
	if w.p, err = g.Start(cmd); err != nil {
		g.t.Fatal(err)
	}
	w.lines.wait(g.t, "peer watch", func(all []string) bool { return len(all) > 0 })
	return w
}

// decode reads lines of peer watch.
func (w *watch) decode(lines []string) (sum seen.Frames) {
	w.t.Helper()
	for _, line := range lines {
		var f seen.Frames
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			w.t.Fatal(err)
		}
		sum.Merge(f)
	}
	return sum
}

// stop ends the watch and returns all that it has seen.
func (w *watch) stop() seen.Frames {
	w.t.Helper()
	err := w.p.Signal(syscall.SIGTERM)
	if _, waitErr := w.p.Wait(); err != nil || waitErr != nil {
		w.t.Fatal(errors.Join(err, waitErr))
	}
	all := w.decode(w.lines.get())
	if all.Lost > 0 {
		w.t.Errorf("%d frames passed unseen", all.Lost)
	}
	return all
}

// until waits for a window of time, from now on, in which cond holds for what came.
func (w *watch) until(what string, cond func(seen.Frames) bool) {
	w.t.Helper()
	from := len(w.lines.get())
	w.lines.wait(w.t, what, func(all []string) bool {
		for ; from < len(all); from++ {
			if cond(w.decode(all[from : from+1])) {
				return true
			}
		}
		return false
	})
}

// next is what comes in the next n windows.
func (w *watch) next(n int) seen.Frames {
	w.t.Helper()
	from := len(w.lines.get()) + 1 // the present window has begun
	w.lines.wait(w.t, "windows", func(all []string) bool { return len(all) >= from+n })
	return w.decode(w.lines.get()[from : from+n])
}

// lines are the whole lines of a command's output, as they come.
type lines struct {
	mu      sync.Mutex
	all     []string     // guarded by mu
	pending bytes.Buffer // guarded by mu
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending.Write(b)
	for bytes.IndexByte(l.pending.Bytes(), '\n') >= 0 {
		line, _ := l.pending.ReadString('\n')
		l.all = append(l.all, strings.TrimSuffix(line, "\n"))
	}
	return len(b), nil
}

func (l *lines) get() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all[:len(l.all):len(l.all)]
}

// wait waits until cond holds for the lines.
func (l *lines) wait(t *testing.T, what string, cond func([]string) bool) {
	t.Helper()
	soon(t, what, func() bool { return cond(l.get()) })
}

// soon waits for cond, which is about to hold.
func soon(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}
