package link

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sluice/vnet"
)

// The greatest lengths of a netdev's name and altname, in bytes: IFNAMSIZ and ALTIFNAMSIZ without
// the terminator (include/uapi/linux/if.h).
const (
	maxName    = unix.IFNAMSIZ - 1
	maxAltName = 127
)

// Facts is what the kernel said about a netdev, all at once.
type Facts struct {
	Index   int
	Name    string
	Kind    string // IFLA_INFO_KIND: "veth", "tun", "macvtap", "bridge"; empty for hardware
	MTU     int
	Up      bool // IFF_UP: what the administrator wants
	Carrier bool // IFF_LOWER_UP: what the driver says

	Master int // index of the bridge or bond that it is a port of; 0 for none
	Lower  int // index of the lower netdev, or of a veth's peer; 0 for none
	// LowerElsewhere: Lower is an index of another namespace.
	LowerElsewhere bool

	Sizes
	TSOMaxSize int // what GSOMaxSize and GSOIPv4MaxSize can be raised to
	TSOMaxSegs int // what GSOMaxSegs can be raised to

	Features
	Drops
	Tun *Tun // of a TUN or TAP, and nil for any other kind
}

// Features are the offloads that are on: those that a sender to the netdev can use, and
// GRO.
type Features struct {
	Csum bool // completes the checksum of TCP and UDP over IPv4 and IPv6
	TSO4 bool // cuts TCP over IPv4
	TSO6 bool // cuts TCP over IPv6
	USO  bool // cuts UDP (UDP_L4)
	GRO  bool // the kernel merges what the netdev receives
}

// Drops are cumulative counters of the netdev: frames that the kernel took and then
// lost (struct rtnl_link_stats64 in include/uapi/linux/if_link.h).
type Drops struct {
	Rx, Tx   uint64 // rx_dropped, tx_dropped
	RxMissed uint64 // rx_missed_errors: no room in the device
}

// Tun says how a TUN or TAP was made. Whoever opens it must ask for the same.
type Tun struct {
	Tap        bool // otherwise a TUN: packets without an Ethernet header
	MultiQueue bool
	VnetHdr    bool
	Persist    bool // stays when no process has it open
}

// Get reads the facts about the netdev that has this name or altname. Its error is os.ErrNotExist
// if there is none.
func (n *Namespace) Get(name string) (*Facts, error) {
	l, err := n.byName(name)
	if err != nil {
		return nil, n.fail("read facts about", name, err)
	}
	f, err := n.facts(l)
	return f, n.fail("read facts about", name, err)
}

// GetIndex is Get by index.
func (n *Namespace) GetIndex(index int) (*Facts, error) {
	l, err := n.byIndex(index)
	if err != nil {
		return nil, n.fail("read facts about", fmt.Sprintf("netdev %d", index), err)
	}
	f, err := n.facts(l)
	return f, n.fail("read facts about", l.Attrs().Name, err)
}

func (n *Namespace) byName(name string) (netlink.Link, error) {
	if err := checkName(name, maxAltName); err != nil {
		return nil, err
	}
	return found(n.route.LinkByName(name))
}

func (n *Namespace) byIndex(index int) (netlink.Link, error) {
	return found(n.route.LinkByIndex(index))
}

// found tells a netdev that does not exist from other errors.
func found(l netlink.Link, err error) (netlink.Link, error) {
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil, noNetdev{}
	}
	return l, err
}

// checkName rejects a name of a length that no netdev can have. The other rules of dev_valid_name
// (net/core/dev.c) are left to the kernel.
func checkName(name string, longest int) error {
	if name == "" || len(name) > longest {
		return fmt.Errorf("name of %d bytes, a netdev's has 1 to %d: %w", len(name), longest,
			unix.EINVAL)
	}
	return nil
}

func (n *Namespace) facts(l netlink.Link) (*Facts, error) {
	f := factsOf(l)
	on, err := n.ethtool.features(f.Index, unix.ETHTOOL_A_FEATURES_ACTIVE)
	if err != nil {
		return nil, err
	}
	f.Features = featuresOf(on)
	return f, nil
}

// factsOf is everything that an RTM_NEWLINK message says. For attributes that an older kernel does
// not send, it fills in what that kernel does.
func factsOf(l netlink.Link) *Facts {
	a := l.Attrs()
	f := &Facts{
		Index:          a.Index,
		Name:           a.Name,
		Kind:           l.Type(),
		MTU:            a.MTU,
		Up:             a.Flags&net.FlagUp != 0,
		Carrier:        a.RawFlags&unix.IFF_LOWER_UP != 0,
		Master:         a.MasterIndex,
		Lower:          a.ParentIndex,
		LowerElsewhere: a.NetNsID >= 0,
		Sizes:          sizesOf(a),
		TSOMaxSize:     int(a.TSOMaxSize),
		TSOMaxSegs:     int(a.TSOMaxSegs),
	}
	if f.TSOMaxSize == 0 { // IFLA_TSO_MAX_SIZE and _SEGS: Linux 5.19
		f.TSOMaxSize, f.TSOMaxSegs = vnet.LegacyGSOMaxSize, vnet.MaxSegments
	}
	if s := a.Statistics; s != nil {
		f.Drops = Drops{Rx: s.RxDropped, Tx: s.TxDropped, RxMissed: s.RxMissedErrors}
	}
	switch l := l.(type) {
	case *netlink.Device:
		f.Kind = ""
	case *netlink.Tuntap:
		f.Kind = "tun"
		f.Tun = &Tun{
			Tap:        l.Mode == netlink.TUNTAP_MODE_TAP,
			MultiQueue: l.Flags&netlink.TUNTAP_MULTI_QUEUE != 0,
			VnetHdr:    l.Flags&netlink.TUNTAP_VNET_HDR != 0,
			Persist:    !l.NonPersist,
		}
	}
	return f
}

// featuresOf picks from the kernel's feature names (net/ethtool/common.c).
func featuresOf(on map[string]bool) Features {
	return Features{
		Csum: on["tx-checksum-ip-generic"] || on["tx-checksum-ipv4"] && on["tx-checksum-ipv6"],
		TSO4: on["tx-tcp-segmentation"],
		TSO6: on["tx-tcp6-segmentation"],
		USO:  on["tx-udp-segmentation"],
		GRO:  on["rx-gro"],
	}
}
