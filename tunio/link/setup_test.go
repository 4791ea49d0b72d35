package link

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCreateMacvtapIsPassthruAndPromiscuous(t *testing.T) {
	n := newNamespace(t)
	n.ip(t, "link add v0 type veth peer name v1")
	must(t, n.CreateMacvtap("m0", "v0"))
	if f := n.get(t, "m0"); f.Kind != "macvtap" || f.Lower != n.get(t, "v0").Index || f.Up {
		t.Errorf("made %+v", f)
	}
	out := string(n.ip(t, "-details link show m0"))
	if !strings.Contains(out, "mode passthru") || !strings.Contains(out, "PROMISC") {
		t.Errorf("made %s", out)
	}
	_, err := n.SetSizes("v0", Sizes{GSOMaxSize: 524280})
	must(t, err)
	c, err := n.SetSizes("m0", Sizes{GSOMaxSize: 524280})
	if err != nil || c.After.GSOMaxSize != 524280 {
		t.Errorf("raised to %+v, %v: a macvtap has its lower netdev's tso_max_size", c.After, err)
	}
}

func TestCreateMacvtapExplains(t *testing.T) {
	n := newNamespace(t)
	n.ip(t, "link add v0 type veth peer name v1")
	n.ip(t, "link add v2 type veth peer name v3")
	n.ip(t, "link add br0 type bridge")
	n.ip(t, "link set v0 master br0")
	n.ip(t, "link add link v2 name m2 type macvtap mode bridge")
	for _, c := range []struct {
		name, lower string
		is          error
		says        string
	}{
		{"m0", "v0", unix.EBUSY, "lower netdev v0 is a port of a bridge"},
		{"m0", "v2", unix.EINVAL, "carries another macvtap"},
		{"m0", "nix0", os.ErrNotExist, "lower netdev nix0"},
		{"v3", "v1", os.ErrExist, "create macvtap v3"},
		{"sixteen-bytes-16", "v1", unix.EINVAL, "16 bytes"},
	} {
		err := n.CreateMacvtap(c.name, c.lower)
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s over %s: error %v, want %v and %q", c.name, c.lower, err, c.is, c.says)
		}
	}
	if _, err := n.Get("m0"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("m0 after failures: %v", err)
	}
}

func TestMoveRenames(t *testing.T) {
	a, b := newNamespace(t), newNamespace(t)
	a.ip(t, "link add v0 type veth peer name v1")
	b.ip(t, "link add v0 type veth peer name e0") // its old name is taken over there
	must(t, a.Move("v0", b, "v9"))
	if _, err := a.Get("v0"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("v0 where it was: %v", err)
	}
	if f := b.get(t, "v9"); f.Kind != "veth" || !f.LowerElsewhere {
		t.Errorf("arrived: %+v", f)
	}
	err := a.Move("v1", b, "e0")
	if !errors.Is(err, os.ErrExist) {
		t.Errorf("error %v, want os.ErrExist", err)
	}
	a.get(t, "v1") // still there
}

func TestSetUpMTUDelete(t *testing.T) {
	n := newNamespace(t)
	n.ip(t, "link add v0 type veth peer name v1")
	must(t, n.SetUp("v0"))
	must(t, n.SetMTU("v0", 9000))
	if f := n.get(t, "v0"); !f.Up || f.MTU != 9000 {
		t.Errorf("up with MTU 9000: %+v", f)
	}
	err := n.SetMTU("v0", 1<<20)
	if !errors.Is(err, unix.EINVAL) || !strings.HasPrefix(err.Error(), "set MTU 1048576 of v0") {
		t.Errorf("error %v", err)
	}
	must(t, n.Delete("v0"))
	if _, err := n.Get("v1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the peer of a deleted veth: %v", err)
	}
}
