package traffic

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
)

// daemon is a program that runs in a host's namespace until the test ends.
type daemon struct {
	*netns.Process
	t   testing.TB
	out *netns.Output
}

func start(t testing.TB, ns *netns.Namespace, command string, args ...string) *daemon {
	t.Helper()
	d := &daemon{t: t, out: &netns.Output{}}
	p, err := ns.Start(context.WithoutCancel(t.Context()), d.out, command, args...)
	netnstest.Need(t, err)
	d.Process = p
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s in %s:\n%s", command, ns.Name, d.log())
		}
	})
	return d
}

func (d *daemon) log() string { return d.out.String() + d.Stderr() }

// says waits until the daemon's log has all of parts in it, in this order.
func (d *daemon) says(parts ...string) {
	d.t.Helper()
	wait(d.t, fmt.Sprintf("a log with %q", parts), func() bool {
		select {
		case <-d.Done():
			d.t.Fatalf("it ended: %v", d.Wait())
		default:
		}
		rest, found := d.log(), true
		for _, part := range parts {
			if found {
				_, rest, found = strings.Cut(rest, part)
			}
		}
		return found
	})
}

// file writes a file for a daemon and returns its name.
func file(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// ownRun runs a shell script in a mount namespace, which `ip netns exec` has made, with a
// /run of its own: daemons keep sockets there, and must not find another's.
const ownRun = "mount -t tmpfs none /run && "

// needs skips a test whose script runs a command that is not there.
func needs(t testing.TB, command string) {
	t.Helper()
	_, err := exec.LookPath(command)
	netnstest.Need(t, err)
}

// frr runs one of FRR's routing daemons, and the zebra that it needs, with what is to be
// configured. They run as the user frr.
func frr(t testing.TB, h *host, name, config string) *daemon {
	t.Helper()
	needs(t, "vtysh") // in PATH, other than the daemons
	return start(t, h.Namespace, "sh", "-c", ownRun+`
		mkdir /run/frr && printf %s "$1" >/run/frr/conf && chown -R frr: /run/frr || exit
		/usr/lib/frr/zebra --log stdout -P 0 -f /dev/null &
		until [ -S /run/frr/zserv.api ]; do sleep 0.05; done
		exec "/usr/lib/frr/$0" --log stdout -P 0 -f /run/frr/conf`, name, config)
}

// TestOSPF: two routers of FRR become neighbours. Hellos go to 224.0.0.5, which is a group
// that bridges forward.
func TestOSPF(t *testing.T) {
	b, x, y := pair(t, netns.Link{}, netns.Link{})
	s := run(t, b.sw, "a=packet:vA", "b=packet:vB")
	var routers []*daemon
	for _, h := range []*host{x, y} {
		routers = append(routers, frr(t, h, "ospfd", fmt.Sprintf(`
interface eth0
 ip ospf network point-to-point
 ip ospf hello-interval 1
 ip ospf dead-interval 4
router ospf
 ospf router-id %s
 log-adjacency-changes detail
 network 10.0.0.0/24 area 0
`, h.v4)))
	}
	for i, h := range []*host{y, x} {
		routers[i].says("AdjChg: Nbr "+h.v4, "-> Full")
	}
	delivered(t, s.stop())
}

// TestISIS: two routers of FRR become neighbours, by frames that are not IP, but LLC, and
// padded to the MTU.
func TestISIS(t *testing.T) {
	b, x, y := pair(t, netns.Link{}, netns.Link{})
	s := run(t, b.sw, "a=packet:vA", "b=packet:vB")
	var routers []*daemon
	for i, h := range []*host{x, y} {
		routers = append(routers, frr(t, h, "isisd", fmt.Sprintf(`
interface eth0
 ip router isis lab
 isis circuit-type level-2-only
 isis hello-interval 1
 isis hello-multiplier 4
router isis lab
 net 49.0001.0000.0000.000%d.00
 is-type level-2-only
 log-adjacency-changes
`, i+1)))
	}
	for _, r := range routers {
		r.says("ADJCHANGE", "to Up")
	}
	delivered(t, s.stop())
}

// TestVRRP: of two routers of keepalived, the one that is master gives way to one of
// higher priority, and takes over when that is gone.
func TestVRRP(t *testing.T) {
	b, x, y := pair(t, netns.Link{}, netns.Link{})
	s := run(t, b.sw, "a=packet:vA", "b=packet:vB")
	router := func(h *host, priority int) *daemon {
		dir := t.TempDir()
		config := file(t, dir, "keepalived.conf", fmt.Sprintf(`
global_defs {
	vrrp_version 3
}
vrrp_instance lab {
	interface eth0
	state BACKUP
	virtual_router_id 7
	priority %d
	advert_int 0.1
	virtual_ipaddress {
		10.0.0.77/24
	}
}
`, priority))
		return start(t, h.Namespace, "keepalived", "-n", "-l", "-D", "-P", "-f", config,
			"-p", filepath.Join(dir, "pid"), "-r", filepath.Join(dir, "vrrp.pid"))
	}
	low := router(x, 100)
	low.says("(lab) Entering MASTER STATE")
	high := router(y, 200)
	high.says("(lab) Entering MASTER STATE")
	low.says("(lab) Entering MASTER STATE", "(lab) Entering BACKUP STATE")
	high.Kill()
	low.says("(lab) Entering BACKUP STATE", "(lab) Entering MASTER STATE")
	delivered(t, s.stop())
}

// TestLLDP: two daemons find each other where the ports forward reserved groups.
func TestLLDP(t *testing.T) {
	needs(t, "lldpd")
	b, x, y := pair(t, netns.Link{}, netns.Link{})
	s := run(t, b.sw, "--reserved=forward", "a=packet:vA", "b=packet:vB")
	daemons := map[*host]*daemon{}
	// ask has lldpcli ask a host's daemon, and reports whether the answer contains a text.
	ask := func(h *host, answer string, command ...string) bool {
		args := append([]string{"--mount", "--target", fmt.Sprint(daemons[h].PID()), "lldpcli", "-f", "keyvalue"}, command...)
		out, err := h.Run(deadline(t, patience), "nsenter", args...)
		return err == nil && strings.Contains(string(out), answer)
	}
	for _, h := range []*host{x, y} {
		daemons[h] = start(t, h.Namespace, "sh", "-c", ownRun+"mkdir /run/lldpd && exec lldpd -d -I eth0")
	}
	for h, d := range daemons {
		d.says("lldpd should resume operations") // until then it ignores what it hears
		wait(t, "lldpd to speak once a second", func() bool { return ask(h, "", "configure", "lldp", "tx-interval", "1") })
	}
	for h, far := range map[*host]*host{x: y, y: x} {
		mac := link(t, far.Namespace, "eth0").HardwareAddr.String()
		wait(t, "the neighbour of "+h.Name, func() bool {
			return ask(h, "lldp.eth0.chassis.mac="+mac, "show", "neighbors")
		})
	}
	delivered(t, s.stop())
}

// TestLACP: two bonds of Open vSwitch, of two links each, agree through Sluice, and carry
// pings. A link of a bond has one partner, so each crosses a switch of its own. (The
// kernel's bonding driver is not everywhere; this one runs in user space.)
func TestLACP(t *testing.T) {
	needs(t, "ovs-vswitchd")
	b := newBed(t)
	x, y := b.host("a"), b.host("b")
	for _, n := range []string{"1", "2"} {
		b.Veth(x.Namespace, "m"+n, b.sw, "vA"+n, netns.Link{})
		b.Veth(y.Namespace, "m"+n, b.sw, "vB"+n, netns.Link{})
	}
	for _, h := range []*host{x, y} {
		h.Sysctl("net.ipv4.conf.all.arp_ignore", "1") // else the links' own netdevs answer, too
	}
	b.built()
	var switches []*sluice
	for _, n := range []string{"1", "2"} {
		switches = append(switches, run(t, b.sw, "a=packet:vA"+n+",reserved=forward", "b=packet:vB"+n+",reserved=forward"))
	}
	bonds := map[*host]*daemon{}
	for _, h := range []*host{x, y} {
		bonds[h] = start(t, h.Namespace, "sh", "-ec", ownRun+`
			mkdir /run/openvswitch
			ovsdb-tool create /run/db /usr/share/openvswitch/vswitch.ovsschema
			ovsdb-server /run/db --remote=punix:/run/openvswitch/db.sock --unixctl=/run/db.ctl &
			until [ -S /run/openvswitch/db.sock ]; do sleep 0.05; done
			ovs-vsctl --no-wait init
			ovs-vsctl --no-wait add-br eth0 -- set bridge eth0 datapath_type=netdev -- \
				add-bond eth0 bond m1 m2 lacp=active bond_mode=balance-tcp other_config:lacp-time=fast
			exec ovs-vswitchd --unixctl=/run/ctl`)
	}
	for _, h := range []*host{x, y} {
		wait(t, "the bond of "+h.Name, func() bool {
			out, err := h.Run(deadline(t, patience), "nsenter", "--mount", "--target", fmt.Sprint(bonds[h].PID()),
				"ovs-appctl", "--target=/run/ctl", "lacp/show", "bond")
			return err == nil && strings.Contains(string(out), "status: active negotiated") &&
				strings.Count(string(out), ": current attached") == 2
		})
		h.Address("eth0", h.addresses()...)
		h.SetLink("eth0", netns.Link{})
	}
	b.built()
	// No TCP: Open vSwitch loses the checksums that a veth leaves unfinished.
	wait(t, "an answer to a ping", func() bool {
		_, err := x.Run(deadline(t, patience), "busybox", "ping", "-c", "1", "-W", "1", y.v4)
		return err == nil
	})
	for _, s := range switches {
		delivered(t, s.stop())
	}
}
