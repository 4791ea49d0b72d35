package link

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ethtool asks the kernel's generic netlink family of this name for the features of a netdev.
// Unlike the ioctl it works by index, so a rename cannot make it answer for another netdev.
type ethtool struct {
	socket *nl.SocketHandle
	family uint16
}

// newEthtool opens a socket in the calling thread's namespace.
func newEthtool() (*ethtool, error) {
	s, err := socket(unix.NETLINK_GENERIC)
	if err != nil {
		return nil, err
	}
	e := &ethtool{socket: &nl.SocketHandle{Socket: s}}
	if e.family, err = e.lookup(unix.ETHTOOL_GENL_NAME); err != nil {
		e.close()
		return nil, fmt.Errorf("ethtool over netlink (CONFIG_ETHTOOL_NETLINK): %w",
			errors.Join(errors.ErrUnsupported, err))
	}
	return e, nil
}

func (e *ethtool) close() { e.socket.Close() }

// call sends one generic netlink request and returns the attributes of its answer.
func (e *ethtool) call(family uint16, command, version uint8, attr *nl.RtAttr) (attrs, error) {
	req := nl.NewNetlinkRequest(int(family), 0)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_GENERIC: e.socket}
	// Written out, since nl.Genlmsg.Serialize reads past the end of its own struct.
	req.AddRawData(append([]byte{command, version, 0, 0}, attr.Serialize()...))
	answer, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return nil, err
	}
	if len(answer) != 1 || len(answer[0]) < nl.SizeofGenlmsg {
		return nil, fmt.Errorf("%d answers to one request", len(answer))
	}
	return parseAttrs(answer[0][nl.SizeofGenlmsg:])
}

// lookup finds the number of a generic netlink family.
func (e *ethtool) lookup(name string) (uint16, error) {
	a, err := e.call(unix.GENL_ID_CTRL, unix.CTRL_CMD_GETFAMILY, nl.GENL_CTRL_VERSION,
		nl.NewRtAttr(unix.CTRL_ATTR_FAMILY_NAME, nl.ZeroTerminated(name)))
	if err != nil {
		return 0, err
	}
	id := a.get(unix.CTRL_ATTR_FAMILY_ID)
	if len(id) != 2 {
		return 0, fmt.Errorf("no number for family %s", name)
	}
	return nl.NativeEndian().Uint16(id), nil
}

// features are the names of the features in one of the sets that the kernel reports
// (ETHTOOL_A_FEATURES_ACTIVE: those that are on). They are the kernel's own names, which `ethtool
// -k` prints (net/ethtool/common.c, netdev_features_strings).
func (e *ethtool) features(index int, in uint16) (map[string]bool, error) {
	header := nl.NewRtAttr(unix.ETHTOOL_A_FEATURES_HEADER|unix.NLA_F_NESTED, nil)
	header.AddRtAttr(unix.ETHTOOL_A_HEADER_DEV_INDEX, nl.Uint32Attr(uint32(index)))
	a, err := e.call(e.family, unix.ETHTOOL_MSG_FEATURES_GET, unix.ETHTOOL_GENL_VERSION, header)
	if err != nil {
		return nil, err
	}
	// A bit set without a mask lists just the bits that are set, one with a mask all bits
	// (Documentation/networking/ethtool-netlink.rst, Bit sets).
	set, err := a.nested(in)
	if err != nil {
		return nil, err
	}
	bits, err := set.nested(unix.ETHTOOL_A_BITSET_BITS)
	if err != nil {
		return nil, err
	}
	names := make(map[string]bool, len(bits))
	for _, b := range bits {
		bit, err := parseAttrs(b.Value)
		if err != nil {
			return nil, err
		}
		if set.has(unix.ETHTOOL_A_BITSET_NOMASK) || bit.has(unix.ETHTOOL_A_BITSET_BIT_VALUE) {
			names[nl.BytesToString(bit.get(unix.ETHTOOL_A_BITSET_BIT_NAME))] = true
		}
	}
	return names, nil
}
