package traffic

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice/integration/netns"
	"sluice/vnet"
)

// TestAltnames: a port's device may be an altname of any length. The log and the summary also have
// the netdev's own name, and the port follows it like any other.
func TestAltnames(t *testing.T) {
	const (
		long = "a-name-that-no-netdev-itself-could-have"
		veth = "ip link add vX type veth peer name far; ip link set far up; ip link set vX up"
		tap  = "ip tuntap add dev tX mode tap vnet_hdr; ip link set tX up"
	)
	for _, c := range []struct{ make, netdev, kind, keys, name string }{
		{veth, "vX", "packet", ",gso_max_size=200000", "nickname"},
		{veth, "vX", "packet", "", long},
		{tap, "tX", "tap", "", "nickname"},
		{tap, "tX", "tap", ",gso_max_size=200000", long},
		{veth + "; " + addMacvtap + "ip link set mX up", "mX", "macvtap", ",lower=other", long},
	} {
		t.Run(c.kind+" "+c.name, func(t *testing.T) {
			b := newBed(t)
			x := b.cabled("a", netns.Link{})
			b.built()
			altname := fmt.Sprintf("; ip link property add dev %s altname %s", c.netdev, c.name)
			shell(t, b.sw, c.make+altname)
			if c.kind == "macvtap" {
				shell(t, b.sw, "ip link property add dev vX altname other")
			}
			before := netdevs(t, b.sw)
			s := run(t, b.sw, "a=packet:vA", "x="+c.kind+":"+c.name+c.keys)
			both := "device=" + c.name + " netdev=" + c.netdev
			s.says(1, "port=x", both)
			from := tapInto(t, x.Namespace, "eth0")
			carries := func() {
				t.Helper()
				was := s.ask().Port("x").TX.Frames
				s.until("a frame to leave", func() bool {
					from.send(vnet.Frame{Head: marker()})
					return s.ask().Port("x").TX.Frames > was
				})
			}
			carries()
			must(t, b.sw, "ip", "link", "set", c.netdev, "down")
			s.says(1, both, "port is down", "ip link set "+c.netdev+" up")
			must(t, b.sw, "ip", "link", "set", c.netdev, "up")
			s.says(2, both, "port is up")
			// Its altname is only a way to find it.
			must(t, b.sw, "ip", "link", "property", "del", "dev", c.netdev, "altname", c.name)
			must(t, b.sw, "ip", "link", "set", c.netdev, "down")
			s.says(2, both, "port is down")
			must(t, b.sw, "ip", "link", "set", c.netdev, "up")
			s.says(3, both, "port is up")
			carries()
			if p := s.port("x"); p.Device != c.name || p.Netdev != c.netdev {
				t.Errorf("the summary has device %q, netdev %q", p.Device, p.Netdev)
			}
			if p := s.port("a"); p.Netdev != "" {
				t.Errorf("the summary names netdev %q beside device vA", p.Netdev)
			}
			if after := netdevs(t, b.sw); after != before {
				t.Errorf("left\n%sof\n%s", after, before)
			}
		})
	}
}

// rename is the commands that rename a netdev: one that is up only since Linux 6.2.
func rename(old, now string) string {
	s := "ip link set " + old + " name " + now
	if !since(6, 2) {
		s = "ip link set " + old + " down; " + s + "; ip link set " + now + " up"
	}
	return s
}

// TestRenamedUnderTraffic: a port stays with its netdev under any name, even when another netdev
// gets the old one. At the end its changed settings are restored.
func TestRenamedUnderTraffic(t *testing.T) {
	b, x, y := pair(t, netns.Link{}, netns.Link{})
	b.built()
	before := netdevs(t, b.sw)
	s := run(t, b.sw, "a=packet:vA,gso_max_size=200000", "b=packet:vB")
	descriptors := s.descriptors()
	stop := background(t, b, x, y)
	shell(t, b.sw, rename("vA", "vZ"))
	s.says(1, "port=a", "device=vA netdev=vZ", "renamed to vZ")
	shell(t, b.sw, "ip link add vA type veth peer name vY; ip link set vA up; ip link set vY up")
	s.says(1, "level=WARN", "port=a", "another netdev is called vA now: the port stays with vZ")
	stop()
	notBusy(t, s, "with a renamed device")
	s.fewDescriptors(descriptors)
	b.exchange(x, y, 4<<20)
	if since(6, 2) && s.lines("port=a", "port is down") > 0 {
		t.Errorf("the port went down:\n%s", s.logged("port=a"))
	}
	if s.lines("gone") > 0 {
		t.Errorf("something is called gone:\n%s", s.logged("gone"))
	}
	if p := s.port("a"); p.Device != "vA" || p.Netdev != "vZ" || !p.Up {
		t.Errorf("the summary has device %q, netdev %q, up %v", p.Device, p.Netdev, p.Up)
	}
	shell(t, b.sw, "ip link del vA; "+rename("vZ", "vA"))
	if after := netdevs(t, b.sw); after != before {
		t.Errorf("left\n%sof\n%s", after, before)
	}
}

// TestRenamedDevices: each kind of port stays with its netdev, and when that is deleted takes the
// one that then has the name. Sluice removes what it made, under any name.
func TestRenamedDevices(t *testing.T) {
	const veth = "ip link add vX type veth peer name far; ip link set far up; ip link set vX up"
	for _, c := range []struct{ make, port, old, now string }{
		{veth, "packet:vX", "vX", "vZ"},
		{"true", "tap:tX", "tX", "tZ"},
		{"ip tuntap add dev tX mode tap vnet_hdr; ip link set tX up", "tap:tX", "tX", "tZ"},
		{veth, "macvtap:mX,lower=vX", "mX", "mZ"},
	} {
		t.Run(c.port, func(t *testing.T) {
			b := newBed(t)
			x := b.cabled("a", netns.Link{})
			b.built()
			shell(t, b.sw, c.make)
			before := netdevs(t, b.sw)
			s := run(t, b.sw, "a=packet:vA", "x="+c.port)
			s.says(1, "port=x", "port is up")
			from := tapInto(t, x.Namespace, "eth0")
			carries := func(what string) {
				t.Helper()
				was := s.ask().Port("x").TX.Frames
				s.until(what+": a frame to leave", func() bool {
					from.send(vnet.Frame{Head: marker()})
					return s.ask().Port("x").TX.Frames > was
				})
			}
			shell(t, b.sw, rename(c.old, c.now))
			s.says(1, "port=x", "renamed to "+c.now)
			carries("renamed")
			shell(t, b.sw, rename(c.now, c.old))
			s.says(1, "port=x", "renamed to "+c.old)
			carries("renamed back")
			shell(t, b.sw, rename(c.old, c.now))
			s.says(2, "port=x", "renamed to "+c.now)
			if s.lines("port=x", "gone") > 0 {
				t.Errorf("it is called gone:\n%s", s.logged("port=x"))
			}
			if c.make != "true" && c.old != "mX" {
				// Another has the name when it is deleted.
				const kind = "packet:"
				other := "ip tuntap add dev " + c.old + " mode tap vnet_hdr; ip link set " + c.old + " up; "
				if strings.HasPrefix(c.port, kind) {
					other = veth[:strings.Index(veth, "far")] + "near; ip link set near up; ip link set vX up; "
				}
				ups := s.lines("port=x", "port is up")
				shell(t, b.sw, other+"ip link del "+c.now)
				s.says(ups+1, "port=x", "port is up")
				carries("with the next of its name")
				s.stop()
				return
			}
			ups := s.lines("port=x", "port is up")
			must(t, b.sw, "ip", "link", "del", c.now)
			s.says(1, "port=x", "made again")
			s.says(ups+1, "port=x", "port is up")
			carries("made again")
			shell(t, b.sw, rename(c.old, c.now))
			s.says(3, "port=x", "renamed to "+c.now)
			s.stop()
			if after := netdevs(t, b.sw); after != before {
				t.Errorf("left\n%sof\n%s", after, before)
			}
		})
	}
}

// TestMakingAgainFails: a device that Sluice made and cannot make again is reported once, and made
// as soon as possible.
func TestMakingAgainFails(t *testing.T) {
	const veth = "ip link add vX mtu 9000 type veth peer name far; ip link set far up; ip link set vX up"
	for _, c := range []struct{ spoil, says, mend string }{
		{"ip link del mX; ip link add mY link vX type macvlan mode passthru",
			"carries another macvtap or macvlan", "ip link del mY"},
		// Half-way: what was made is removed, and each attempt makes netlink events.
		{"ip link set vX mtu 1500; ip link del mX", "set MTU 9000", "ip link set vX mtu 9000"},
	} {
		t.Run(c.says, func(t *testing.T) {
			b := newBed(t)
			b.built()
			shell(t, b.sw, veth)
			s := run(t, b.sw, "x=macvtap:mX,lower=vX,mtu=9000")
			s.says(1, "port=x", "port is up")
			shell(t, b.sw, c.spoil)
			s.says(1, "port=x", "the device is gone, and cannot be made again", c.says)
			// Each netdev has the next index.
			next := func(name string) int {
				must(t, b.sw, "ip", "link", "add", name, "type", "bridge")
				return link(t, b.sw, name).Index
			}
			began, first := time.Now(), next("br0")
			notBusy(t, s, "with a device that cannot be made")
			tries := next("br1") - first - 1
			if most := 1 + int(time.Since(began).Seconds()); tries > most {
				t.Errorf("tried %d times in %v", tries, time.Since(began))
			}
			shell(t, b.sw, c.mend)
			s.says(1, "port=x", "is made again")
			s.says(2, "port=x", "port is up")
			if n := s.lines("port=x", "gone"); n != 3 {
				t.Errorf("%d lines, want gone, not to be made, made again:\n%s", n, s.logged("port=x"))
			}
		})
	}
}
