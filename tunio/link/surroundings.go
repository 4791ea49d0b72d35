package link

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sluice/vnet"
)

// Surroundings is what else handles a netdev's frames, besides the Facts.
type Surroundings struct {
	Ethernet bool // or loopback: its frames have an Ethernet header
	AltNames []string
	Master   string // the bridge or bond that it is a port of; or ""
	// Bridge: it is a bridge or a bridge's port, so that the BridgeCalls apply to its
	// frames.
	Bridge    bool
	Addresses []string // with their prefix lengths, link-local ones too
	HostUse   string   // what the host's own stack needs its frames for; see HostUses

	Switchable Features // those that ethtool -K can switch

	Qdiscs []string // kinds, each once
	// XDP is how an XDP program, which sees frames before everything else, is attached, in ip(8)'s
	// words: "xdpdrv", "xdpgeneric"; or "".
	XDP string
	// TCXIngress and TCXEgress are the names of the tcx programs. TCXErr says why they are not
	// known.
	TCXIngress, TCXEgress []string
	TCXErr                error

	// BridgeCalls are those of net.bridge.bridge-nf-call-* that are on in the namespace:
	// "iptables", "ip6tables", "arptables".
	BridgeCalls []string
}

// xdpMode is by XDP_ATTACHED_* (include/uapi/linux/if_link.h), MULTI being the last.
var xdpMode = map[uint32]string{1: "xdpdrv", 2: "xdpgeneric", 3: "xdpoffload", 4: "xdp"}

// Surroundings reads the surroundings of the netdev that f describes.
func (n *Namespace) Surroundings(f *Facts) (_ *Surroundings, err error) {
	defer func() { err = n.fail("look around", f.Name, err) }()
	l, err := n.byIndex(f.Index)
	if err != nil {
		return nil, err
	}
	a := l.Attrs()
	s := &Surroundings{
		Ethernet: a.EncapType == "ether" || a.EncapType == "loopback",
		AltNames: a.AltNames,
		Bridge:   f.Kind == "bridge",
	}
	if a.Xdp != nil {
		s.XDP = xdpMode[a.Xdp.AttachMode]
	}
	if f.Master != 0 {
		m, err := n.byIndex(f.Master)
		if err != nil {
			return nil, err
		}
		s.Master = m.Attrs().Name
		s.Bridge = s.Bridge || m.Type() == "bridge"
	}
	addresses, err := dump(func() ([]netlink.Addr, error) {
		return n.route.AddrList(l, netlink.FAMILY_ALL)
	})
	if err != nil {
		return nil, err
	}
	for _, a := range addresses {
		s.Addresses = append(s.Addresses, a.IPNet.String())
	}
	can, err := n.ethtool.features(f.Index, unix.ETHTOOL_A_FEATURES_HW)
	if err != nil {
		return nil, err
	}
	s.Switchable = featuresOf(can)
	uses, err := n.HostUses()
	if err != nil {
		return nil, err
	}
	s.HostUse = uses[f.Index]
	qdiscs, err := dump(func() ([]netlink.Qdisc, error) { return n.route.QdiscList(l) })
	if err != nil {
		return nil, err
	}
	for _, q := range qdiscs {
		if kind := q.Type(); !slices.Contains(s.Qdiscs, kind) { // mq has a child for each queue
			s.Qdiscs = append(s.Qdiscs, kind)
		}
	}
	return s, n.Do(func() error {
		s.TCXIngress, err = tcxPrograms(f.Index, ebpf.AttachTCXIngress)
		s.TCXErr = err
		if s.TCXEgress, err = tcxPrograms(f.Index, ebpf.AttachTCXEgress); s.TCXErr == nil {
			s.TCXErr = err
		}
		s.BridgeCalls, err = bridgeCalls()
		return err
	})
}

// tcxPrograms are the names of the programs on a netdev of the calling thread's network
// namespace. A kernel without tcx has none.
func tcxPrograms(index int, at ebpf.AttachType) (names []string, err error) {
	result, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: at})
	switch {
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.EINVAL):
		return nil, nil
	case errors.Is(err, unix.EPERM):
		return nil, hint(unix.EPERM, "CAP_NET_ADMIN and CAP_BPF")
	case err != nil:
		return nil, err
	}
	for _, p := range result.Programs {
		names = append(names, programName(p.ID))
	}
	return names, nil
}

// programName is a program's name, or its number if the name may not be read.
func programName(id ebpf.ProgramID) string {
	if p, err := ebpf.NewProgramFromID(id); err == nil {
		defer p.Close()
		if info, err := p.Info(); err == nil && info.Name != "" {
			return info.Name
		}
	}
	return fmt.Sprintf("program %d", id)
}

// bridgeCalls are those of the calling thread's network namespace.
func bridgeCalls() (on []string, err error) {
	for _, table := range []string{"iptables", "ip6tables", "arptables"} {
		text, err := os.ReadFile("/proc/sys/net/bridge/bridge-nf-call-" + table)
		switch {
		case errors.Is(err, os.ErrNotExist): // no br_netfilter
		case err != nil:
			return nil, err
		case !bytes.HasPrefix(text, []byte("0")):
			on = append(on, table)
		}
	}
	return on, nil
}

// Holder says which process holds a netdev, or nil where none does. Unlike Hold it takes nothing,
// so it hinders no other process.
func (n *Namespace) Holder(f *Facts) (held *HeldError, err error) {
	err = n.Do(func() error {
		h, ok := askHolder(&net.UnixAddr{Net: "unix", Name: holdName(f.Index)})
		if ok {
			h.Netdev, h.index = f.Name, f.Index
			held = h
		}
		return nil
	})
	return held, n.fail("ask who holds", f.Name, err)
}

// TakesAll are the facts about a netdev with the greatest limits. The limits of a port on it are
// then the kernel's.
func TakesAll() *Facts {
	const most = vnet.MaxGSOMaxSize
	return &Facts{
		Sizes: Sizes{
			GSOMaxSize: most, GSOIPv4MaxSize: most, GSOMaxSegs: vnet.MaxSegments,
			GROMaxSize: most, GROIPv4MaxSize: most,
		},
		Features: Features{Csum: true, TSO4: true, TSO6: true, USO: true},
		MTU:      65535, Up: true, Carrier: true,
	}
}
