package link

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// HostUses lists, by a netdev's index, what the host's own stack needs its frames for: "has an
// address", "is a port of br0", "carries eth0.100". The link-local address that every netdev gets
// by itself does not count. A netdev of another namespace on top of it (a container's macvlan)
// cannot be seen from here. It takes two dumps.
func (n *Namespace) HostUses() (map[int]string, error) {
	links, err := dump(func() ([]netlink.Link, error) { return n.route.LinkList() })
	if err != nil {
		return nil, n.fail("list", "netdevs", err)
	}
	addresses, err := dump(func() ([]netlink.Addr, error) {
		return n.route.AddrList(nil, netlink.FAMILY_ALL)
	})
	if err != nil {
		return nil, n.fail("list", "addresses", err)
	}
	names, uses := map[int]string{}, map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	for _, l := range links {
		a := l.Attrs()
		if a.MasterIndex != 0 {
			uses[a.Index] = "is a port of " + names[a.MasterIndex]
		}
		// IFLA_LINK of a veth is its peer, which is not on top of it.
		if a.ParentIndex != 0 && a.NetNsID < 0 && l.Type() != "veth" {
			uses[a.ParentIndex] = "carries " + a.Name
		}
	}
	for _, a := range addresses {
		if a.IP.To4() != nil || !a.IP.IsLinkLocalUnicast() {
			uses[a.LinkIndex] = "has an address"
		}
	}
	return uses, nil
}

// dump repeats a dump that a change interrupted (NLM_F_DUMP_INTR).
func dump[T any](once func() ([]T, error)) (all []T, err error) {
	for range 10 {
		if all, err = once(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}
