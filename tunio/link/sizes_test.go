package link

import (
	"errors"
	"os"
	"testing"

	"sluice/tunio/release"
	"sluice/vnet"
)

// held is what a kernel keeps of s. Before Linux 6.3 there were no sizes for IPv4: the general ones
// apply, up to 64 KiB.
func held(s Sizes) Sizes {
	if !release.Since(release.Current(), 6, 3) {
		s.GSOIPv4MaxSize = min(s.GSOMaxSize, vnet.LegacyGSOMaxSize)
		s.GROIPv4MaxSize = min(s.GROMaxSize, vnet.LegacyGSOMaxSize)
	}
	return s
}

func TestSetSizes(t *testing.T) {
	n := newNamespace(t)
	n.ip(t, "link add v0 type veth peer name v1")
	legacy := Sizes{65536, 65536, 65535, 65536, 65536}
	big := Sizes{524280, 524280, 65535, 524280, 524280}
	if got := n.get(t, "v0").Sizes; got != legacy {
		t.Fatalf("a new veth has %+v, want %+v", got, legacy)
	}
	for _, c := range []struct {
		name       string
		set, after Sizes
	}{
		{"everything", big, big},
		{"nothing", Sizes{}, big},
		{"a small general size leaves IPv4 alone", Sizes{GSOMaxSize: 65536, GROMaxSize: 40000},
			Sizes{65536, 524280, 65535, 40000, 524280}},
		{"IPv4 alone", Sizes{GSOIPv4MaxSize: 70000, GROIPv4MaxSize: 80000},
			Sizes{65536, 70000, 65535, 40000, 80000}},
		{"both small", Sizes{GSOMaxSize: 30000, GSOIPv4MaxSize: 50000, GSOMaxSegs: 16},
			Sizes{30000, 50000, 16, 40000, 80000}},
		{"more than there is", Sizes{1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20}, big},
	} {
		before, after := n.get(t, "v0").Sizes, held(c.after)
		change, err := n.SetSizes("v0", c.set)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := n.get(t, "v0").Sizes; got != after {
			t.Errorf("%s: %+v, want %+v", c.name, got, after)
		}
		if want := (Change{n.get(t, "v0").Index, before, after}); change != want {
			t.Errorf("%s: change %+v, want %+v", c.name, change, want)
		}
	}
}

func TestSetSizesGrantsATapNoMoreThanItsTSOMaxSize(t *testing.T) {
	n := newNamespace(t)
	n.ip(t, "tuntap add dev t0 mode tap")
	f := n.get(t, "t0")
	c, err := n.SetSizes("t0", Sizes{524280, 524280, 65535, 524280, 524280})
	must(t, err)
	want := held(Sizes{f.TSOMaxSize, f.TSOMaxSize, f.TSOMaxSegs, 524280, 524280})
	if c.After != want || n.get(t, "t0").Sizes != want {
		t.Errorf("granted %+v, has %+v, want %+v", c.After, n.get(t, "t0").Sizes, want)
	}
}

func TestSetSizesReportsWhatHoldsAfterARefusal(t *testing.T) {
	n := newNamespace(t)
	n.ip(t, "link add v0 type veth peer name v1")
	// The kernel has a least gso_max_size, and is asked for that before the GRO sizes.
	c, err := n.SetSizes("v0", Sizes{GSOMaxSize: 1, GROMaxSize: 70000})
	if err == nil {
		t.Skip("this kernel takes a gso_max_size of 1")
	}
	if c.After != c.Before || c.After != n.get(t, "v0").Sizes {
		t.Errorf("error %v, and a change %+v", err, c)
	}
	if _, err := n.SetSizes("nix0", Sizes{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want os.ErrNotExist", err)
	}
}

func TestRestorePutsBackOnlyWhatNobodyElseChanged(t *testing.T) {
	n := newNamespace(t)
	n.ip(t, "link add v0 type veth peer name v1")
	before := held(Sizes{100000, 90000, 100, 65536, 65536})
	_, err := n.SetSizes("v0", before)
	must(t, err)
	big := Sizes{524280, 524280, 65535, 524280, 524280}

	c, err := n.SetSizes("v0", big)
	must(t, err)
	n.ip(t, "link set v0 name e0") // a rename must not prevent the restore
	must(t, n.Restore(c))
	if got := n.get(t, "e0").Sizes; got != before {
		t.Errorf("restored %+v, want %+v", got, before)
	}

	c, err = n.SetSizes("e0", big)
	must(t, err)
	n.ip(t, "link set e0 gso_max_size 200000 gso_max_segs 50")
	must(t, n.Restore(c))
	if got, want := n.get(t, "e0").Sizes, held(Sizes{200000, 90000, 50, 65536, 65536}); got != want {
		t.Errorf("restored %+v, want %+v", got, want)
	}

	n.ip(t, "link del e0")
	if err := n.Restore(c); err != nil {
		t.Errorf("restore a deleted netdev: %v", err)
	}
}
