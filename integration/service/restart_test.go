package service

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
)

// guest opens a TAP as a virtual machine does.
func guest(t *testing.T, ns *netns.Namespace, name string) {
	t.Helper()
	var fd int
	netnstest.Need(t, ns.Do(func() (err error) {
		fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		r, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		r.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		return unix.IoctlIfreq(fd, unix.TUNSETIFF, r)
	}))
	t.Cleanup(func() { unix.Close(fd) })
}

// linkOf is what a restart has to leave as it is: index, administrative state, MTU and sizes,
// and how often the carrier changed.
func linkOf(t *testing.T, ns *netns.Namespace, device string) (what string, carrier string) {
	t.Helper()
	l, err := ns.Link(device)
	if err != nil {
		t.Fatal(err)
	}
	up := l.RawFlags&unix.IFF_UP != 0
	carrier = need(t, ns, "cat", "/sys/class/net/"+device+"/carrier_changes")
	return fmt.Sprintf("%d up=%v mtu=%d gso=%d", l.Index, up, l.MTU, l.GSOMaxSize), strings.TrimSpace(carrier)
}

// TestRestartKeepsLinks: netdevs that were there before the switch are there after it, with
// their index and up, and whoever is behind a packet port does not see a thing. A TAP that
// only the switch has open has no carrier in between.
func TestRestartKeepsLinks(t *testing.T) {
	lab, sw, a, b := hosts(t)
	for _, tap := range []string{"tG", "tP"} {
		need(t, sw, "ip", "tuntap", "add", "dev", tap, "mode", "tap", "vnet_hdr")
		need(t, sw, "ip", "link", "set", tap, "up")
	}
	guest(t, sw, "tG")
	ports := []string{
		"-p", "a=packet:vA", "-p", "b=packet:vB,gso_max_size=100000", "-p", "g=packet:tG", "-p", "p=tap:tP",
	}
	devices := []struct {
		ns     *netns.Namespace
		device string
		blips  bool // its carrier goes and comes
	}{{sw, "vA", false}, {sw, "vB", false}, {a, "eth0", false}, {b, "eth0", false}, {sw, "tG", false}, {sw, "tP", true}}
	m := newManager(t)
	ports = append(ports, "--control", m.control())
	var before []string
	for _, d := range devices {
		what, _ := linkOf(t, d.ns, d.device)
		before = append(before, what)
	}
	m.start(sw, nil, append([]string{"run"}, ports...)...)
	m.told()
	exchange(t, lab, a, b)
	wait(t, "the tap's carrier", func() bool { return why(t, m.control(), "p") == "up" })
	var carriers []string
	for _, d := range devices {
		_, carrier := linkOf(t, d.ns, d.device)
		carriers = append(carriers, carrier)
	}
	m.stop()
	m = newManager(t)
	m.start(sw, nil, append([]string{"run"}, append(ports[:len(ports)-1], m.control())...)...)
	m.told()
	wait(t, "the tap's carrier", func() bool { return why(t, m.control(), "p") == "up" })
	m.stop()
	for i, d := range devices {
		what, carrier := linkOf(t, d.ns, d.device)
		if what != before[i] {
			t.Errorf("%s was %s, and is %s", d.device, before[i], what)
		}
		if blipped := carrier != carriers[i]; blipped != d.blips {
			t.Errorf("%s: the carrier changed %s times before the restart, and %s after it", d.device, carriers[i], carrier)
		}
	}
}
