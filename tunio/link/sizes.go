package link

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"

	"sluice/vnet"
)

// Sizes are the limits of a netdev that can be set. Changing one sends no netlink event (measured
// on 6.18): to follow them, read them again and again.
type Sizes struct {
	GSOMaxSize     int // a super-packet that is sent through it is shorter than this
	GSOIPv4MaxSize int // the same, for IPv4
	GSOMaxSegs     int // and stands for at most this many segments
	GROMaxSize     int // what the receive side merges to
	GROIPv4MaxSize int // the same, for IPv4
}

// sizesOf fills in, for sizes that an older kernel does not report, what that kernel does.
func sizesOf(a *netlink.LinkAttrs) Sizes {
	s := Sizes{
		GSOMaxSize:     int(a.GSOMaxSize),
		GSOIPv4MaxSize: int(a.GSOIPv4MaxSize),
		GSOMaxSegs:     int(a.GSOMaxSegs),
		GROMaxSize:     int(a.GROMaxSize),
		GROIPv4MaxSize: int(a.GROIPv4MaxSize),
	}
	if s.GROMaxSize == 0 { // Linux 5.19
		s.GROMaxSize = vnet.LegacyGSOMaxSize
	}
	if s.GSOIPv4MaxSize == 0 { // IPv4 BIG TCP: Linux 6.3
		s.GSOIPv4MaxSize = min(s.GSOMaxSize, vnet.LegacyGSOMaxSize)
		s.GROIPv4MaxSize = min(s.GROMaxSize, vnet.LegacyGSOMaxSize)
	}
	return s
}

// list is pointers to all sizes, for loops over them.
func (s *Sizes) list() [5]*int {
	return [...]*int{&s.GSOMaxSize, &s.GSOIPv4MaxSize, &s.GSOMaxSegs, &s.GROMaxSize,
		&s.GROIPv4MaxSize}
}

// or is s with its zeros replaced by what d has.
func (s Sizes) or(d Sizes) Sizes {
	from := d.list()
	for i, v := range s.list() {
		if *v == 0 {
			*v = *from[i]
		}
	}
	return s
}

// Change is what SetSizes did to a netdev.
type Change struct {
	Index         int
	Before, After Sizes
}

// grantable is what of want the kernel takes: do_setlink (net/core/rtnetlink.c)
// refuses a GSO size above tso_max_size, and a GRO size above GRO_MAX_SIZE.
func (f *Facts) grantable(want Sizes) Sizes {
	return Sizes{
		GSOMaxSize:     min(want.GSOMaxSize, f.TSOMaxSize),
		GSOIPv4MaxSize: min(want.GSOIPv4MaxSize, f.TSOMaxSize),
		GSOMaxSegs:     min(want.GSOMaxSegs, f.TSOMaxSegs),
		GROMaxSize:     min(want.GROMaxSize, vnet.MaxGSOMaxSize),
		GROIPv4MaxSize: min(want.GROIPv4MaxSize, vnet.MaxGSOMaxSize),
	}
}

// SetSizes sets the sizes that are not zero in want, as far as the kernel grants them. The change's
// After is what holds afterwards, even after an error. The caller decides whether to warn when less
// was granted.
func (n *Namespace) SetSizes(name string, want Sizes) (Change, error) {
	l, err := n.byName(name)
	if err != nil {
		return Change{}, n.fail("set sizes of", name, err)
	}
	f := factsOf(l)
	c := Change{Index: f.Index, Before: f.Sizes, After: f.Sizes}
	err = n.applySizes(l, f.Sizes, f.grantable(want))
	l, again := n.byIndex(f.Index)
	if again == nil {
		c.After = sizesOf(l.Attrs())
	}
	return c, n.fail("set sizes of", name, errors.Join(err, again))
}

// Restore puts back what a change altered, except what was changed again since. It does nothing for
// a netdev that is gone.
func (n *Namespace) Restore(c Change) error {
	l, err := n.byIndex(c.Index)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return n.fail("restore sizes of", fmt.Sprintf("netdev %d", c.Index), err)
	}
	now := sizesOf(l.Attrs())
	want := now
	before, after := c.Before.list(), c.After.list()
	for i, v := range want.list() {
		if *v == *after[i] {
			*v = *before[i]
		}
	}
	return n.fail("restore sizes of", l.Attrs().Name, n.applySizes(l, now, want))
}

// applySizes changes l from now to want; a zero in want keeps the present value. IPv4 comes after
// the general size, because setting that to GSO_LEGACY_MAX_SIZE or less also sets the IPv4 size
// (netif_set_gso_max_size and netif_set_gro_max_size in net/core/dev.h).
func (n *Namespace) applySizes(l netlink.Link, now, want Sizes) error {
	want = want.or(now)
	for _, s := range []struct {
		name  string
		now   *int
		want  int
		set   func(netlink.Link, int) error
		along *int // the IPv4 size that setting this one may change
	}{
		{"gso_max_size", &now.GSOMaxSize, want.GSOMaxSize, n.route.LinkSetGSOMaxSize,
			&now.GSOIPv4MaxSize},
		{"gso_ipv4_max_size", &now.GSOIPv4MaxSize, want.GSOIPv4MaxSize,
			n.route.LinkSetGSOIPv4MaxSize, nil},
		{"gso_max_segs", &now.GSOMaxSegs, want.GSOMaxSegs, n.route.LinkSetGSOMaxSegs, nil},
		{"gro_max_size", &now.GROMaxSize, want.GROMaxSize, n.route.LinkSetGROMaxSize,
			&now.GROIPv4MaxSize},
		{"gro_ipv4_max_size", &now.GROIPv4MaxSize, want.GROIPv4MaxSize,
			n.route.LinkSetGROIPv4MaxSize, nil},
	} {
		if *s.now == s.want {
			continue
		}
		if err := s.set(l, s.want); err != nil {
			return fmt.Errorf("%s %d: %w", s.name, s.want, err)
		}
		*s.now = s.want
		if s.along != nil && s.want <= vnet.LegacyGSOMaxSize {
			*s.along = s.want
		}
	}
	return nil
}
