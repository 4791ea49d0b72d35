package link

import (
	"os"
	"slices"
	"testing"

	"sluice/tunio/release"
)

// TestSurroundings: what is on and around a netdev.
func TestSurroundings(t *testing.T) {
	n := newNamespace(t)
	if !release.Since(release.Current(), 6, 6) {
		t.Skip("tcx came with Linux 6.6")
	}
	n.ip(t, "link add v0 type veth peer name v1")
	look := func() *Surroundings {
		t.Helper()
		s, err := n.Surroundings(n.get(t, "v0"))
		must(t, err)
		return s
	}
	s := look()
	if !s.Ethernet || s.Master != "" || s.Bridge || s.HostUse != "" || s.XDP != "" || s.TCXErr != nil ||
		len(s.AltNames)+len(s.Addresses)+len(s.Qdiscs)+len(s.TCXIngress)+len(s.TCXEgress) != 0 {
		t.Errorf("a new veth: %+v", s)
	}
	if want := (Features{Csum: true, TSO4: true, TSO6: true, USO: true, GRO: true}); s.Switchable != want {
		t.Errorf("a veth's features that can be switched: %+v", s.Switchable)
	}
	// lo's checksum offload is fixed (loopback.c, gen_lo_setup).
	if lo, err := n.Surroundings(n.get(t, "lo")); err != nil || lo.Switchable.Csum || !lo.Ethernet {
		t.Errorf("lo: %+v, %v", lo, err)
	}

	n.ip(t, "link add br0 type bridge")
	n.ip(t, "link set v0 master br0")
	n.ip(t, "addr add 192.0.2.1/24 dev v0")
	n.ip(t, "link property add dev v0 altname other")
	run(t, "tc -n "+n.name+" qdisc add dev v0 root pfifo")
	index := n.get(t, "v0").Index
	must(t, n.Do(func() error {
		drop, err := HostDrop(index)
		if err == nil {
			t.Cleanup(func() { drop.Close() })
		}
		return err
	}))
	s = look()
	if s.Master != "br0" || !s.Bridge || s.HostUse == "" ||
		!slices.Equal(s.Addresses, []string{"192.0.2.1/24"}) || !slices.Equal(s.AltNames, []string{"other"}) ||
		!slices.Equal(s.Qdiscs, []string{"pfifo"}) || !slices.Equal(s.TCXIngress, []string{"host_drop"}) {
		t.Errorf("%+v", s)
	}
	bridge, err := n.Surroundings(n.get(t, "br0"))
	must(t, err)
	if !bridge.Bridge || bridge.Master != "" {
		t.Errorf("a bridge: %+v", bridge)
	}
}

// TestSurroundingsTellsBridgeNetfilter: each namespace has its own.
func TestSurroundingsTellsBridgeNetfilter(t *testing.T) {
	if _, err := os.Stat("/proc/sys/net/bridge"); err != nil {
		t.Skip("no br_netfilter: ", err)
	}
	n := newNamespace(t)
	set := func(table, value string) {
		t.Helper()
		must(t, n.Do(func() error {
			return os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-"+table, []byte(value), 0)
		}))
	}
	set("iptables", "0")
	set("ip6tables", "1")
	set("arptables", "0")
	s, err := n.Surroundings(n.get(t, "lo"))
	must(t, err)
	if !slices.Equal(s.BridgeCalls, []string{"ip6tables"}) {
		t.Errorf("%q are on", s.BridgeCalls)
	}
}

// TestHolderTakesNothing: Holder says who has a netdev, and hinders no other process.
func TestHolderTakesNothing(t *testing.T) {
	n := newNamespace(t)
	f := n.get(t, "lo")
	if h, err := n.Holder(f); h != nil || err != nil {
		t.Errorf("nobody has it, but %v, %v", h, err)
	}
	hold := n.hold(t, "lo")
	h, err := n.Holder(f)
	must(t, err)
	if h == nil || h.PID != os.Getpid() || h.Netdev != "lo" {
		t.Errorf("held by %+v, want this process", h)
	}
	must(t, hold.Close())
	if h, err := n.Holder(f); h != nil || err != nil {
		t.Errorf("nobody has it now, but %v, %v", h, err)
	}
}
