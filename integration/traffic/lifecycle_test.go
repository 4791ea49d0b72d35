package traffic

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"sluice/integration/netns"
	"sluice/tunio"
	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// addMacvtap makes the macvtap mX over vX, as Sluice would.
const addMacvtap = "ip link add link vX name mX type macvtap mode passthru; " +
	"ip link set mX promisc on; "

// TestDevicesComeAndGo: a device is set down, moved away, and deleted, and each time comes back,
// while TCP runs between two other ports. Its port follows, with one line in the log each time; the
// other ports are not affected; nothing is left behind.
func TestDevicesComeAndGo(t *testing.T) {
	const veth = "ip link add vX type veth peer name eth0 netns $FAR; " +
		"ip -n $FAR link set eth0 up; "
	for _, c := range []struct {
		kind  string
		port  string
		make  string // makes, before the start, what the switch does not make
		dev   string // the device under test
		again string // makes dev again after a deletion, if Sluice does not
		far   bool   // its frames come out at eth0 of the far namespace; else at dev itself
	}{
		{kind: "veth", port: "packet:vX,queues=2", dev: "vX", far: true,
			make: veth + "ip link set vX up", again: veth},
		{kind: "tap of Sluice's", port: "tap:tX,queues=2", dev: "tX"},
		{kind: "tap that was there", port: "tap:tX", dev: "tX",
			make:  "ip tuntap add dev tX mode tap vnet_hdr; ip link set tX up",
			again: "ip tuntap add dev tX mode tap vnet_hdr"},
		{kind: "macvtap of Sluice's", port: "macvtap:mX,lower=vX", dev: "mX", far: true,
			make: veth + "ip link set vX up"},
		{kind: "macvtap that was there", port: "macvtap:mX,lower=vX", dev: "mX", far: true,
			make: veth + "ip link set vX up; " + addMacvtap + "ip link set mX up", again: addMacvtap},
	} {
		t.Run(c.kind, func(t *testing.T) {
			b, x, y := pair(t, netns.Link{GSO: big}, netns.Link{GSO: 65536})
			far, away := b.Namespace("far"), b.Namespace("away")
			far.Silent()
			b.built()
			script := strings.NewReplacer("$FAR", far.Name, "$AWAY", away.Name,
				"$HERE", b.sw.Name, "$DEV", c.dev)
			sh := func(command string) {
				t.Helper()
				shell(t, b.sw, script.Replace(command))
			}
			sh(c.make)
			s := run(t, b.sw, "a=packet:vA", "b=packet:vB", "x="+c.port)
			from := tapInto(t, x.Namespace, "eth0")
			reaches := func(what string) {
				t.Helper()
				ns, device := b.sw, c.dev
				if c.far {
					ns, device = far, "eth0"
				}
				to := tapInto(t, ns, device)
				to.until(what+": a frame to come out", func() bool {
					from.send(vnet.Frame{Head: marker()})
					return len(to.seen) > 0
				})
				to.q.Close()
			}
			s.says(1, "port=x", "port is up")
			reaches("at first")

			type step struct {
				do string
				up bool
			}
			all := []step{
				{"ip link set $DEV down", false},
				{"ip link set $DEV up", true},
				{"ip link set $DEV netns $AWAY", false},
				{"ip -n $AWAY link set $DEV netns $HERE", false},
				{"ip link set $DEV up", true},
			}
			if c.again != "" {
				all = append(all, step{"ip link del $DEV", false}, step{c.again, false},
					step{"ip link set $DEV up", true})
			}
			descriptors, steps, lines := 0, 0, s.lines("port=x")
			for round := range 2 {
				for _, step := range all {
					was := s.lines("port=x")
					stop := background(t, b, x, y)
					sh(step.do)
					s.says(was+1, "port=x")
					stop()
					if round == 0 {
						notBusy(t, s, step.do)
					}
					told := strings.SplitAfter(s.logged("port=x"), "\n")
					told = told[was : len(told)-1]
					if len(told) != 1 || strings.Contains(told[0], "port is up") != step.up {
						t.Errorf("%s: want one line, that the port is up: %v; got\n%s",
							step.do, step.up, strings.Join(told, ""))
					}
					steps++
					if step.up {
						reaches(step.do)
					}
				}
				if c.again == "" {
					was, ups := s.lines("port=x"), s.lines("port=x", "port is up")
					stop := background(t, b, x, y)
					sh("ip link del $DEV")
					s.says(round+1, "port=x", "made again")
					s.says(ups+1, "port=x", "port is up")
					stop()
					reaches("after it was made again")
					steps += s.lines("port=x") - was
				}
				if round == 0 {
					descriptors = s.descriptors()
				} else {
					s.fewDescriptors(descriptors)
				}
			}
			if n := s.lines("port=x") - lines; n != steps {
				t.Errorf("%d lines after %d steps:\n%s", n, steps, s.logged("port=x"))
			}
			for _, name := range []string{"a", "b"} {
				// Before Linux 6.6 a packet port also says that there is no tcx.
				n := s.lines("port="+name) - s.lines("port="+name, "tcx needs Linux 6.6")
				if n != 1 {
					t.Errorf("%d lines, want that it is up:\n%s", n, s.logged("port="+name))
				}
			}
			clean(t, x, y)
			s.stop()
			if _, err := b.sw.Link(c.dev); (err != nil) != (c.again == "") {
				t.Errorf("at the end, of what Sluice has not made all, and nothing else, is there: %v", err)
			}
		})
	}
}

// background moves TCP between two hosts, and sends frames to all ports, until the result is
// called, which then waits for the last transfer. No transfer may fail.
func background(t testing.TB, b *bed, x, y *host) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	broadcast := tapInto(t, x.Namespace, "eth0")
	done := make(chan error, 2)
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			frames := []vnet.Frame{{Head: marker()}, vnettest.Super(super(false, 50_000, 1448))}
			if _, _, err := broadcast.tx.WriteBatch(frames); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	go func() {
		for {
			err := b.swap(x, y, y.v4, 4<<20)
			if err != nil || ctx.Err() != nil {
				done <- err
				return
			}
		}
	}()
	return func() {
		t.Helper()
		cancel()
		for range cap(done) {
			if err := <-done; err != nil {
				t.Errorf("other ports' TCP: %v", err)
			}
		}
		broadcast.q.Close()
	}
}

// notBusy fails the test if the idle switch uses the CPU: an endless loop would use all of the
// time.
func notBusy(t testing.TB, s *sluice, when string) {
	t.Helper()
	const span = 400 * time.Millisecond
	began := s.cpu()
	time.Sleep(span)
	if used := s.cpu() - began; used > span/2 {
		t.Errorf("%s: %v of processor time in %v", when, used, span)
	}
}

// TestMovedTapIsLeftAlone: frames that a tap receives in a namespace that it was moved to are not
// for the switch, and the port is down.
func TestMovedTapIsLeftAlone(t *testing.T) {
	b := newBed(t)
	x := b.cabled("a", netns.Link{})
	away := b.Namespace("away")
	away.Silent()
	b.built()
	s := run(t, b.sw, "a=packet:vA", "x=tap:tX")
	to := tapInto(t, x.Namespace, "eth0")
	must(t, b.sw, "ip", "link", "set", "tX", "netns", away.Name)
	s.says(1, "port=x", "port is down")
	must(t, away, "ip", "link", "set", "tX", "up")
	from := tapInto(t, away, "tX")
	before := s.ask().Port("x").RX.Frames
	for range 20 {
		from.send(vnet.Frame{Head: marker()})
	}
	notBusy(t, s, "with frames for a port that is down")
	if n := s.ask().Port("x").RX.Frames; n != before {
		t.Errorf("%d frames came in through a port that is down", n-before)
	}
	if to.look(); len(to.seen) > 0 {
		t.Errorf("and came out of another: %v", lengths(to.seen))
	}

	must(t, away, "ip", "link", "set", "tX", "netns", b.sw.Name)
	must(t, b.sw, "ip", "link", "set", "tX", "up")
	s.says(2, "port=x", "port is up")
	from = tapInto(t, b.sw, "tX")
	to.forget() // what the kernel had kept
	to.until("a frame to come in again", func() bool {
		from.send(vnet.Frame{Head: marker()})
		return len(to.seen) > 0
	})
	// Deleted over there, it is gone.
	must(t, b.sw, "ip", "link", "set", "tX", "netns", away.Name)
	s.says(2, "port=x", "in another namespace")
	must(t, away, "ip", "link", "del", "tX")
	s.says(1, "port=x", "the device is gone")
}

// TestNamesakeOfATap: another tap that gets the name while the first one is elsewhere takes its
// place.
func TestNamesakeOfATap(t *testing.T) {
	b := newBed(t)
	x := b.cabled("a", netns.Link{})
	away := b.Namespace("away")
	away.Silent()
	b.built()
	s := run(t, b.sw, "a=packet:vA", "x=tap:tX")
	shell(t, b.sw, strings.ReplaceAll("ip link set tX netns $AWAY; ip -n $AWAY link set tX up; "+
		"ip tuntap add dev tX mode tap vnet_hdr; ip link set tX up", "$AWAY", away.Name))
	from, to := tapInto(t, x.Namespace, "eth0"), tapInto(t, b.sw, "tX")
	to.until("a frame to come out of the new tap", func() bool {
		from.send(vnet.Frame{Head: marker()})
		return len(to.seen) > 0
	})
	s.says(2, "port=x", "port is up")
}

// TestNamesakeThatIsNoTap: a netdev that takes the name of a tap, which Sluice made and which was
// moved away, does not take its place. The tap lives on, and the port uses it again when it is
// back.
func TestNamesakeThatIsNoTap(t *testing.T) {
	b := newBed(t)
	b.cabled("a", netns.Link{})
	away := b.Namespace("away")
	b.built()
	s := run(t, b.sw, "a=packet:vA", "x=tap:tX")
	must(t, b.sw, "ip", "link", "set", "tX", "netns", away.Name)
	s.says(1, "port=x", "in another namespace")
	must(t, b.sw, "ip", "link", "add", "tX", "type", "veth", "peer", "name", "tY")
	s.says(1, "port=x", "no TAP")
	if _, err := away.Link("tX"); err != nil {
		t.Fatalf("the tap is gone: %v", err)
	}
	must(t, b.sw, "ip", "link", "del", "tX")
	must(t, away, "ip", "link", "set", "tX", "netns", b.sw.Name)
	must(t, b.sw, "ip", "link", "set", "tX", "up")
	s.says(2, "port=x", "port is up")
}

// TestOwnDevicesAreRemovedAlsoAfterAMove: a device that Sluice made still belongs to it after a
// move away and back.
func TestOwnDevicesAreRemovedAlsoAfterAMove(t *testing.T) {
	b := newBed(t)
	b.cabled("a", netns.Link{})
	away := b.Namespace("away")
	b.built()
	s := run(t, b.sw, "t=tap:t0", "m=macvtap:m0,lower=vA")
	for _, dev := range []string{"t0", "m0"} {
		must(t, b.sw, "ip", "link", "set", dev, "netns", away.Name)
		s.says(1, "device="+dev, "port is down", "in another namespace")
		must(t, away, "ip", "link", "set", dev, "netns", b.sw.Name)
		must(t, b.sw, "ip", "link", "set", dev, "up")
		s.says(2, "device="+dev, "port is up")
	}
	s.stop()
	for _, dev := range []string{"t0", "m0"} {
		if _, err := b.sw.Link(dev); err == nil {
			t.Errorf("%s is still there", dev)
		}
	}
}

// TestDeviceReplacedAtOnce: a device that is deleted and made again between two looks is recognised
// as a new one.
func TestDeviceReplacedAtOnce(t *testing.T) {
	b := newBed(t)
	x := b.cabled("a", netns.Link{})
	far := b.Namespace("far")
	far.Silent()
	b.built()
	const tap = "ip tuntap add dev tX mode tap vnet_hdr; ip link set tX up; "
	veth := strings.ReplaceAll("ip link add vX type veth peer name eth0 netns $FAR; "+
		"ip -n $FAR link set eth0 up; ip link set vX up; ", "$FAR", far.Name)
	shell(t, b.sw, tap+veth)
	s := run(t, b.sw, "a=packet:vA", "t=tap:tX", "v=packet:vX")
	from := tapInto(t, x.Namespace, "eth0")
	for range 5 {
		shell(t, b.sw, "ip link del tX; "+tap+"ip link del vX; "+veth)
		atTap, atVeth := tapInto(t, b.sw, "tX"), tapInto(t, far, "eth0")
		for _, to := range []*tapped{atTap, atVeth} {
			to.until("a frame to come out of the new device", func() bool {
				from.send(vnet.Frame{Head: marker()})
				return len(to.seen) > 0
			})
			to.q.Close()
		}
	}
	s.stop()
}

// TestWrongDeviceIsToldOnce: the device that replaces a deleted one may not be what the port needs.
// The log says so once, and the port takes the right one when it comes.
func TestWrongDeviceIsToldOnce(t *testing.T) {
	b := newBed(t)
	b.built()
	shell(t, b.sw, "ip tuntap add dev tX mode tap vnet_hdr; ip link set tX up")
	s := run(t, b.sw, "x=tap:tX")
	shell(t, b.sw, "ip link del tX; ip tuntap add dev tX mode tun; ip link set tX up")
	s.says(1, "port=x", "a TUN, not a TAP")
	descriptors, lines := s.descriptors(), s.lines("port=x")
	notBusy(t, s, "with a wrong device")
	time.Sleep(1500 * time.Millisecond) // a look more
	if n := s.lines("port=x"); n != lines {
		t.Errorf("%d more lines:\n%s", n-lines, s.logged("port=x"))
	}
	s.fewDescriptors(descriptors)
	shell(t, b.sw, "ip link del tX; ip tuntap add dev tX mode tap vnet_hdr; ip link set tX up")
	s.says(2, "port=x", "port is up")
}

// TestPortFollowsTheCarrier: a netdev that is up but has no other end has no carrier. Its port is
// then down, with one line in the log, and the other ports are not affected.
func TestPortFollowsTheCarrier(t *testing.T) {
	const veth = "ip link add vX type veth peer name eth0 netns $FAR; ip link set vX up; "
	for _, c := range []struct{ port, make, come, leave string }{
		{"packet:vX", veth, "ip -n $FAR link set eth0 up", "ip -n $FAR link set eth0 down"},
		{"macvtap:mX,lower=vX", veth, "ip -n $FAR link set eth0 up", "ip -n $FAR link set eth0 down"},
		// It stays when no process has it open, like the tap of a virtual machine that ended.
		{"packet:tX", "ip tuntap add dev tX mode tap vnet_hdr; ip link set tX up", "", ""},
	} {
		t.Run(c.port, func(t *testing.T) {
			b, x, y := pair(t, netns.Link{}, netns.Link{})
			far := b.Namespace("far")
			far.Silent()
			b.built()
			sh := func(command string) { shell(t, b.sw, strings.ReplaceAll(command, "$FAR", far.Name)) }
			come, leave := func() { sh(c.come) }, func() { sh(c.leave) }
			if c.come == "" {
				var q *tunio.Queue
				come = func() { q = openTap(t, b.sw, "tX") }
				leave = func() { q.Close() }
			}
			sh(c.make)
			s := run(t, b.sw, "a=packet:vA", "b=packet:vB", "x="+c.port)
			s.says(1, "port=x", "port is down", "the device has no carrier")
			for round := range 3 {
				stop := background(t, b, x, y)
				come()
				s.says(round+1, "port=x", "port is up")
				leave()
				s.says(round+2, "port=x", "the device has no carrier")
				stop()
			}
			notBusy(t, s, "without a carrier")
			if n := s.lines("port=x", "port is"); n != 7 {
				t.Errorf("%d lines say that it is up or down, want 7:\n%s", n, s.logged("port=x"))
			}
			clean(t, x, y)
			if s.port("x").Up {
				t.Error("at the end, without a carrier, the port is up")
			}
		})
	}
}

// TestMacvtapGoesWithItsLower netdev, and is made again with it.
func TestMacvtapGoesWithItsLower(t *testing.T) {
	b, x, y := pair(t, netns.Link{}, netns.Link{})
	b.built()
	const veth = "ip link add vX type veth peer name far; ip link set far up; ip link set vX up"
	shell(t, b.sw, veth)
	s := run(t, b.sw, "a=packet:vA", "b=packet:vB", "x=macvtap:mX,lower=vX")
	s.says(1, "port=x", "port is up")
	for round := range 3 {
		stop := background(t, b, x, y)
		shell(t, b.sw, "ip link del vX")
		s.says(round+1, "port=x", "the device is gone")
		stop()
		if round == 0 {
			notBusy(t, s, "without the lower netdev")
		}
		shell(t, b.sw, veth)
		s.says(round+1, "port=x", "made again")
		s.says(round+2, "port=x", "port is up")
	}
	s.stop()
	if _, err := b.sw.Link("mX"); err == nil {
		t.Error("at the end the macvtap is still there")
	}
}

// TestDeletedNamespaceGoes: `ip netns del` of a tap's namespace really ends it, although the switch
// has it open, and the port is down. When the namespace is made again, the port is up with the tap.
// Sluice makes the tap again if it had made it before.
func TestDeletedNamespaceGoes(t *testing.T) {
	const tap = "ip tuntap add dev t0 mode tap vnet_hdr; ip link set t0 up"
	for _, c := range []struct{ name, make, keys string }{
		{"a tap of Sluice's", "", ""},
		{"a tap that was there, with sizes raised", tap, ",gso_max_size=200000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			// As the tap's will be: netdevs of other namespaces have the same indexes.
			b, x, y := pair(t, netns.Link{GRO: 200_000}, netns.Link{GRO: 200_000})
			b.built()
			// Not one of the lab's, which keeps its namespaces alive.
			name := b.sw.Name + "-gone"
			t.Cleanup(func() {
				if _, err := os.Stat("/run/netns/" + name); err == nil {
					ipNetns(t, "del", name)
				}
			})
			// The near end of a cable into it says when a namespace ends.
			cables := 0
			build := func(taps string) {
				t.Helper()
				ipNetns(t, "add", name)
				cables++
				add := "ip link add w%d type veth peer name w netns %s"
				shell(t, b.sw, fmt.Sprintf(add, cables, name))
				shell(t, b.sw, "ip netns exec "+name+" sh -ec '"+taps+"'")
			}
			ended := func() bool {
				_, err := b.sw.Link(fmt.Sprintf("w%d", cables))
				return err != nil
			}
			build(c.make)
			s := run(t, b.sw, "a=packet:vA", "b=packet:vB", "x=tap:t0,netns="+name+c.keys)
			descriptors := s.descriptors()
			for round := range 2 {
				stop := background(t, b, x, y)
				ipNetns(t, "del", name)
				s.says(round+1, "port=x", "namespace is gone")
				wait(t, "the namespace to end", ended)
				stop()
				notBusy(t, s, "after the namespace went")

				build(c.make)
				s.says(round+2, "port=x", "port is up")
				s.fewDescriptors(descriptors)
			}
			// Deleted and made again between two looks.
			ipNetns(t, "del", name)
			build(c.make)
			cables--
			wait(t, "the old namespace to end", ended)
			s.until("the new tap to be opened", func() bool {
				return strings.Contains(shell(t, b.sw, "ip -n "+name+" link show up"), "t0: <BROADCAST,MULTICAST,UP,LOWER_UP>")
			})
			made := 0
			if c.make == "" {
				made = 3
			}
			if n := s.lines("port=x", "made again"); n != made {
				t.Errorf("%d lines that the tap is made again, want %d:\n%s", n, made, s.logged("port=x"))
			}
			s.stop()
			for _, device := range []string{"vA", "vB"} {
				if n := link(t, b.sw, device).GROMaxSize; n != 200_000 {
					t.Errorf("what was changed on the old tap was put back on %s: gro_max_size %d",
						device, n)
				}
			}
		})
	}
}

// ipNetns runs `ip netns` where all processes see its mounts: a namespace's commands have their own
// mounts.
func ipNetns(t testing.TB, args ...string) {
	t.Helper()
	out, err := exec.Command("ip", append([]string{"netns"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip netns %v: %v: %s", args, err, out)
	}
}
