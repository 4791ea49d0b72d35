package link

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// CreateMacvtap makes a macvtap over the netdev lower. It is in passthru mode and promiscuous,
// since otherwise it filters multicast, and neighbour discovery fails. It is down, as every new
// netdev is. It takes all of lower: the error is EBUSY if lower is already a port of something
// else.
func (n *Namespace) CreateMacvtap(name, lower string) (err error) {
	defer func() { err = n.fail("create macvtap", name, err) }()
	if err := checkName(name, maxName); err != nil {
		return err
	}
	low, err := n.byName(lower)
	if err != nil {
		return fmt.Errorf("lower netdev %s: %w", lower, err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	attrs.ParentIndex = low.Attrs().Index
	m := &netlink.Macvtap{Macvlan: netlink.Macvlan{
		LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_PASSTHRU,
	}}
	switch err := n.route.LinkAdd(m); {
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EINVAL):
		// netdev_rx_handler_register answers EBUSY, macvlan_common_newlink EINVAL
		// (drivers/net/macvlan.c).
		return fmt.Errorf("lower netdev %s is a port of a bridge or bond, or carries another "+
			"macvtap or macvlan (see `ip -d link show %s`): %w", lower, lower, err)
	case err != nil:
		return err
	}
	if err := n.route.SetPromiscOn(m); err != nil {
		return errors.Join(err, n.route.LinkDel(m))
	}
	return nil
}

// Move moves a netdev into another namespace, under a new name. It is down there. The error is
// os.ErrExist if the name is taken; the netdev is then where it was.
func (n *Namespace) Move(name string, to *Namespace, newName string) (err error) {
	defer func() { err = n.fail("move netdev", name, err) }()
	l, err := n.byName(name)
	if err != nil {
		return err
	}
	if err := checkName(newName, maxName); err != nil {
		return err
	}
	// The kernel moves first and then renames: check the name before it is too late.
	if _, err := to.byName(newName); err == nil {
		return fmt.Errorf("%s in network namespace %s: %w", newName, to, os.ErrExist)
	}
	// One message, so that only the new name must be free over there (__dev_change_net_namespace in
	// net/core/dev.c).
	req := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(l.Attrs().Index)
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(to.fd))))
	req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(newName)))
	return n.Do(func() error {
		_, err := req.Execute(unix.NETLINK_ROUTE, 0)
		return err
	})
}

// Delete removes a netdev.
func (n *Namespace) Delete(name string) error {
	return n.with("delete netdev", name, n.route.LinkDel)
}

// SetUp sets a netdev up.
func (n *Namespace) SetUp(name string) error {
	return n.with("set up netdev", name, n.route.LinkSetUp)
}

// SetMTU sets the MTU of a netdev.
func (n *Namespace) SetMTU(name string, mtu int) error {
	return n.with(fmt.Sprintf("set MTU %d of", mtu), name, func(l netlink.Link) error {
		return n.route.LinkSetMTU(l, mtu)
	})
}

// with looks up a netdev and does one thing to it.
func (n *Namespace) with(op, name string, do func(netlink.Link) error) error {
	l, err := n.byName(name)
	if err == nil {
		err = do(l)
	}
	return n.fail(op, name, err)
}
