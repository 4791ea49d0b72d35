package traffic

import (
	"strings"
	"testing"
	"time"

	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
)

// hostAddress is an address of the switch's namespace, on a separate netdev: under the weak host
// model the host answers for it on every netdev.
const hostAddress = "10.0.0.77"

// TestHostStackKeepsOut: with host=drop, the default, the switch's namespace does not answer for
// its addresses on a port's netdev, although the port gets the frames. With host=keep it does, and
// also if the netdev has an address or a master.
func TestHostStackKeepsOut(t *testing.T) {
	address := func(b *bed) { b.sw.Address("vA", "192.0.2.1/24") }
	for _, c := range []struct {
		name, keys string
		prepare    func(b *bed)
		answers    bool
		warnings   int
	}{
		{"the default", "", func(*bed) {}, false, 0},
		{"drop", ",host=drop", func(*bed) {}, false, 0},
		{"keep", ",host=keep", func(*bed) {}, true, 0},
		{"an address", "", address, true, 1},
		{"an address, and drop", ",host=drop", address, false, 0},
		{"an address, and keep", ",host=keep", address, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, x, y := pair(t, netns.Link{}, netns.Link{})
			b.Veth(b.sw, "other", b.sw, "end", netns.Link{})
			b.sw.Address("other", hostAddress+"/32")
			// The host would answer through the netdev that the question came from.
			must(t, b.sw, "ip", "route", "add", x.v4, "dev", "vA")
			c.prepare(b)
			b.built()
			without := !c.answers && !since(6, 6)
			s := run(t, b.sw, "a=packet:vA"+c.keys, "b=packet:vB"+c.keys)
			b.exchange(x, y, 1<<20)
			wantAnswers(t, b, x, hostAddress, c.answers || without)
			if told := s.lines("level=WARN", "port=a", "tcx needs Linux 6.6") == 1; told != without {
				t.Errorf("want it logged %v that the host answers because there is no tcx:\n%s",
					without, s.logged("level=WARN"))
			}
			if n := s.lines("level=WARN", "port=a", "host="); n != c.warnings {
				t.Errorf("%d warnings, want %d:\n%s", n, c.warnings, s.logged("level=WARN"))
			}
			s.stop()
			// All of it ends with the switch.
			wantAnswers(t, b, x, hostAddress, true)
		})
	}
}

// wantAnswers fails the test unless an address answers pings as want says: both the ARP request for
// it and a ping to the host at the far end of the cable.
func wantAnswers(t testing.TB, b *bed, h *host, address string, want bool) {
	t.Helper()
	mac := link(t, b.sw, "vA").HardwareAddr.String()
	for _, neighbour := range [][]string{{"del", address}, {"replace", address, "lladdr", mac}} {
		command := append([]string{"neigh"}, append(neighbour, "dev", "eth0")...)
		_, _ = h.Run(deadline(t, patience), "ip", command...) // there may be nothing to delete
		ping := func() bool {
			_, err := h.Run(deadline(t, patience), "busybox", "ping", "-c", "1", "-W", "1", address)
			return err == nil
		}
		if want {
			wait(t, "the host to answer", ping)
		} else if ping() {
			t.Errorf("the host answers, neighbour %v", neighbour)
		}
	}
}

// TestPortOfABridgeKeepsItsHost: a netdev with a master still gives its frames to the master.
func TestPortOfABridgeKeepsItsHost(t *testing.T) {
	b, x, _ := pair(t, netns.Link{}, netns.Link{})
	b.sw.Bridge("br0", "vA")
	b.sw.Address("br0", hostAddress+"/24")
	b.built()
	s := run(t, b.sw, "a=packet:vA", "b=packet:vB")
	wait(t, "the bridge to answer", func() bool {
		_, err := x.Run(deadline(t, patience), "busybox", "ping", "-c", "1", "-W", "1", hostAddress)
		return err == nil
	})
	if n := s.lines("level=WARN", "port=a", "a port of br0"); n != 1 {
		t.Errorf("%d warnings, want 1:\n%s", n, s.logged("level=WARN"))
	}
}

// TestHostStackIsFollowed: if a netdev gets an address, a master, or a netdev on top of it while
// the switch runs, the host gets its frames again, until these are removed.
func TestHostStackIsFollowed(t *testing.T) {
	// The host answers through the netdev that the question came from.
	const route = "; ip route replace $PEER dev vA" // which goes with the last address
	for _, c := range []struct{ name, come, leave, says string }{
		{"address", "ip addr add 192.0.2.1/24 dev vA", "ip addr del 192.0.2.1/24 dev vA" + route,
			"an address"},
		{"master", "ip route del $PEER; ip link set vA master br0; ip addr add $HOST/24 dev br0",
			"ip addr del $HOST/24 dev br0; ip link set vA nomaster" + route, "a port of br0"},
		{"macvlan", "ip link add mv0 link vA type macvlan; ip link set mv0 up", "ip link del mv0",
			"carries mv0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, x, _ := pair(t, netns.Link{}, netns.Link{})
			b.Veth(b.sw, "other", b.sw, "end", netns.Link{})
			b.sw.Address("other", hostAddress+"/32")
			b.sw.Bridge("br0")
			b.built()
			must(t, b.sw, "ip", "route", "add", x.v4, "dev", "vA")
			sh := func(command string) {
				t.Helper()
				shell(t, b.sw, strings.NewReplacer("$HOST", hostAddress, "$PEER", x.v4).Replace(command))
			}
			s := run(t, b.sw, "a=packet:vA", "b=packet:vB")
			without := !since(6, 6) // no tcx
			wantAnswers(t, b, x, hostAddress, without)
			sh(c.come)
			s.says(1, "level=WARN", "port=a", c.says, "host=drop")
			wantAnswers(t, b, x, hostAddress, true)
			sh(c.leave)
			wait(t, "the host to fall silent", func() bool {
				_, err := x.Run(deadline(t, patience), "busybox", "ping", "-c", "1", "-W", "1", hostAddress)
				return without || err != nil
			})
			wantAnswers(t, b, x, hostAddress, without)
			if n := s.lines("level=WARN", "port=a", c.says); n != 1 {
				t.Errorf("%d warnings, want 1:\n%s", n, s.logged("port=a"))
			}
		})
	}
}

// TestHideFailsLater: a port that later needs the missing privilege to keep frames from the host
// comes back, with a warning, and without a storm of attempts.
func TestHideFailsLater(t *testing.T) {
	if !since(6, 6) {
		t.Skip("tcx came with Linux 6.6")
	}
	b := newBed(t)
	b.built()
	const veth = "ip link add vX type veth peer name far; ip link set far up; ip link set vX up"
	shell(t, b.sw, veth+"; ip addr add 192.0.2.1/24 dev vX")
	s := launchUnder(t, b.sw, []string{"setpriv", "--bounding-set", "-bpf,-sys_admin",
		"--inh-caps", "-bpf,-sys_admin"}, netnstest.Binary(t), t.TempDir(), "x=packet:vX")
	s.until("ready", func() bool { return s.out.String() == "ready\n" })
	shell(t, b.sw, "ip link del vX; "+veth)
	s.says(2, "port=x", "port is up")
	s.says(1, "port=x", "CAP_BPF")
	notBusy(t, s, "without the privilege")
	time.Sleep(time.Second) // looks at it again
	if n := s.lines("port=x"); n > 6 {
		t.Errorf("%d lines:\n%s", n, s.logged("port=x"))
	}
	s.stop()
}

// TestKilledSwitchLeavesTheHostAlone: the program that keeps frames from the host's stack, and
// taps, end with the process, however it ends.
func TestKilledSwitchLeavesTheHostAlone(t *testing.T) {
	b, x, _ := pair(t, netns.Link{}, netns.Link{})
	b.Veth(b.sw, "other", b.sw, "end", netns.Link{})
	b.sw.Address("other", hostAddress+"/32")
	must(t, b.sw, "ip", "route", "add", x.v4, "dev", "vA")
	b.built()
	s := launch(t, b.sw, "a=packet:vA", "b=packet:vB", "c=tap:t0")
	s.until("ready", func() bool { return s.out.String() == "ready\n" })
	wantAnswers(t, b, x, hostAddress, !since(6, 6)) // no tcx before
	s.Kill()
	wantAnswers(t, b, x, hostAddress, true)
	if _, err := b.sw.Link("t0"); err == nil {
		t.Error("the tap is still there")
	}
}
