package link

import "testing"

func TestHostUses(t *testing.T) {
	n, other := newNamespace(t), newNamespace(t)
	n.ip(t, "link add v0 type veth peer name v1")
	n.ip(t, "link add br0 type bridge")
	for _, step := range []struct{ do, v0, v1 string }{
		{"link set v0 up", "", ""},
		{"addr add fe80::1/64 dev v0 nodad", "", ""}, // link-local, as every netdev gets by itself
		{"addr add 2001:db8::1/64 dev v0 nodad", "has an address", ""},
		{"addr add 192.0.2.1/24 dev v1", "has an address", "has an address"},
		{"addr flush dev v0", "", "has an address"},
		{"link set v0 master br0", "is a port of br0", "has an address"},
		{"link set v0 nomaster", "", "has an address"},
		{"link add mv0 link v0 type macvlan", "carries mv0", "has an address"},
		{"link del mv0", "", "has an address"},
		{"addr flush dev v1", "", ""},
		{"link set v1 netns " + other.name, "", ""}, // both name the other's index
	} {
		n.ip(t, step.do)
		got, err := n.HostUses()
		must(t, err)
		want := map[string]string{"v0": step.v0, "v1": step.v1}
		for name, use := range want {
			f, err := n.Get(name)
			if err == nil && got[f.Index] != use {
				t.Errorf("%s: %s %q, want %q", step.do, name, got[f.Index], use)
			}
		}
	}
}
