package traffic

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
	netdev "sluice/tunio/link"
	"sluice/vnet"
)

// TestOneSwitchHoldsADevice: a second switch on it is refused, with any kind of port and by any
// name, and its error names the process that has it. It changes nothing, and the first switch keeps
// running. When that is killed, the second can have the device.
func TestOneSwitchHoldsADevice(t *testing.T) {
	const (
		altname = "; ip link property add dev vX altname nickname"
		tap     = "ip tuntap add dev tX mode tap vnet_hdr; ip link set tX up"
		veth    = "ip link add vX type veth peer name eth0 netns $FAR; ip -n $FAR link set eth0 up; ip link set vX up"
		macvtap = veth + "; " + addMacvtap + "ip link set mX up"
	)
	for _, c := range []struct {
		make, first string
		others      []string
	}{
		{veth + altname, "packet:vX", []string{"packet:vX,gso_max_size=200000", "packet:nickname", "packet:vX,queues=2"}},
		{tap, "tap:tX", []string{"tap:tX,gso_max_size=200000", "packet:tX"}},
		{tap, "packet:tX", []string{"packet:tX,queues=2", "tap:tX"}},
		{"true", "tap:tX", []string{"tap:tX,queues=2", "packet:tX"}},
		{macvtap, "macvtap:mX", []string{"macvtap:mX,gso_max_size=200000", "packet:mX"}},
	} {
		t.Run(c.first, func(t *testing.T) {
			b := newBed(t)
			x := b.cabled("a", netns.Link{})
			far := b.Namespace("far")
			far.Silent()
			b.built()
			shell(t, b.sw, strings.ReplaceAll(c.make, "$FAR", far.Name))
			if c.first == "packet:tX" {
				openTap(t, b.sw, "tX") // or it has no carrier
			}
			first := launch(t, b.sw, "a=packet:vA", "x="+c.first)
			first.until("ready", func() bool { return first.out.String() == "ready\n" })
			first.says(1, "port=x", "port is")
			before, told := netdevs(t, b.sw), first.lines()
			_, device, _ := strings.Cut(c.first, ":")
			name := filepath.Base(netnstest.Binary(t))
			for _, other := range c.others {
				s := launch(t, b.sw, "z="+other)
				if code, out := s.exit(), s.out.String(); code != 1 || out != "" {
					t.Errorf("%s: exit code %d, and it printed %q", other, code, out)
				}
				holder := fmt.Sprintf("netdev %s is in use by process %d (%s): ", device, first.PID(), name)
				if n := s.lines("sluice: port z: ", holder); n != 1 {
					t.Errorf("%s: want %q in:\n%s", other, holder, s.logged(""))
				}
				t.Log(s.logged("sluice:"))
			}
			if after := netdevs(t, b.sw); after != before {
				t.Errorf("left\n%sof\n%s", after, before)
			}
			if n := first.lines(); n != told {
				t.Errorf("the first told of it:\n%s", first.logged())
			}
			from := tapInto(t, x.Namespace, "eth0")
			first.until("the first to carry frames", func() bool {
				from.send(vnet.Frame{Head: marker()})
				return first.ask().Port("x").TX.Frames > 0
			})
			first.Kill()
			if c.make != "true" {
				run(t, b.sw, "a=packet:vA", "x="+c.others[0]).stop()
			}
			run(t, b.sw, "a=packet:vA", "x="+c.first)
		})
	}
}

// TestHoldOfAnotherUser: a device may be held by any user, and the error names the user.
func TestHoldOfAnotherUser(t *testing.T) {
	const nobody = "65534"
	b := newBed(t)
	b.cabled("a", netns.Link{})
	b.built()
	file := everybodys(t, netnstest.Binary(t))
	s := launchUnder(t, b.sw, []string{"setpriv", "--pdeathsig", "KILL", "--reuid", nobody,
		"--regid", nobody, "--clear-groups", "--inh-caps", "-all,+net_raw", "--ambient-caps", "-all,+net_raw"},
		file, filepath.Dir(file), "a=packet:vA,host=keep")
	s.until("ready", func() bool { return s.out.String() == "ready\n" })
	other := launch(t, b.sw, "a=packet:vA")
	if code := other.exit(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if other.lines(fmt.Sprintf("process %d (sluice) of user %s:", s.PID(), nobody)) != 1 {
		t.Errorf("it says:\n%s", other.logged())
	}
	s.stop()
	run(t, b.sw, "a=packet:vA")
}

// TestReadersAreNotHindered: a process may read from a port's netdev, whether it starts before or
// after the switch, and sees what the port sees.
func TestReadersAreNotHindered(t *testing.T) {
	b, x, y := pair(t, netns.Link{}, netns.Link{})
	b.built()
	reader := func() (*netns.Process, *netns.Output) {
		t.Helper()
		out := &netns.Output{}
		p, err := b.sw.Start(t.Context(), out, "tcpdump", "-i", "vA", "-l", "-n", "tcp")
		netnstest.Need(t, err)
		wait(t, "tcpdump to listen", func() bool { return strings.Contains(p.Stderr(), "listening on vA") })
		return p, out
	}
	early, earlySaw := reader()
	run(t, b.sw, "a=packet:vA", "b=packet:vB")
	late, lateSaw := reader()
	b.exchange(x, y, 1<<20)
	for _, r := range []struct {
		p   *netns.Process
		saw *netns.Output
	}{{early, earlySaw}, {late, lateSaw}} {
		wait(t, "tcpdump to see the transfer", func() bool { return strings.Contains(r.saw.String(), x.v4+".") })
		if err := r.p.Interrupt(patience); err != nil {
			t.Error(err)
		}
	}
}

// TestDeviceComesBackHeld: while another process has the device the port is down, with one line in
// the log, and it is up again when that process releases it.
func TestDeviceComesBackHeld(t *testing.T) {
	b := newBed(t)
	x := b.cabled("a", netns.Link{})
	b.built()
	const veth = "ip link add vX index 4242 type veth peer name far; ip link set far up; ip link set vX up"
	shell(t, b.sw, veth)
	s := run(t, b.sw, "a=packet:vA", "x=packet:vX")
	s.says(1, "port=x", "port is up")
	must(t, b.sw, "ip", "link", "del", "vX")
	s.says(1, "port=x", "the device is gone")

	ns, err := netdev.OpenNamespace(b.sw.Name)
	netnstest.Need(t, err)
	defer ns.Close()
	h, err := ns.Hold(&netdev.Facts{Index: 4242, Name: "vX"})
	netnstest.Need(t, err)
	shell(t, b.sw, veth)
	s.says(1, "port=x", fmt.Sprintf("why=\"netdev vX is in use by process %d ", os.Getpid()))
	notBusy(t, s, "with a device that another has")
	before := s.ask().Port("x").RX.Frames
	from := tapInto(t, b.sw, "far")
	from.send(vnet.Frame{Head: marker()})
	to := tapInto(t, x.Namespace, "eth0")
	if n := s.ask().Port("x").RX.Frames; n != before {
		t.Errorf("%d frames came in through it", n-before)
	}
	h.Close()
	s.says(2, "port=x", "port is up")
	to.until("a frame to come through", func() bool {
		from.send(vnet.Frame{Head: marker()})
		return len(to.seen) > 0
	})
	if n := s.lines("port=x"); n != 4 {
		t.Errorf("%d lines, want up, gone, in use, up:\n%s", n, s.logged("port=x"))
	}
}
