package tunio

import (
	"encoding/binary"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// netdev is what rtnetlink says about a device, as far as it is needed to open it.
type netdev struct {
	index  int
	hwType uint16 // ARPHRD_*
	kind   string // rtnl_link_ops.kind: "tun", "macvtap", "veth"; empty for hardware

	// Valid with kind "tun".
	isTap      bool // else a TUN
	multiQueue bool
	queues     int // attached to a multi_queue device; 0 if there are none or the kernel does not say
}

// lookup finds a device in the calling thread's network namespace. It asks rtnetlink, not sysfs:
// the mounted sysfs may show another namespace.
func lookup(op, name string) (dev netdev, found bool, err error) {
	dump, err := syscall.NetlinkRIB(unix.RTM_GETLINK, unix.AF_UNSPEC)
	if err != nil {
		return dev, false, &OpError{op, name, err, ""}
	}
	messages, err := syscall.ParseNetlinkMessage(dump)
	if err != nil {
		return dev, false, &OpError{op, name, err, ""}
	}
	for i := range messages {
		m := &messages[i]
		if m.Header.Type != unix.RTM_NEWLINK {
			continue
		}
		attributes, err := syscall.ParseNetlinkRouteAttr(m)
		if err != nil {
			return dev, false, &OpError{op, name, err, ""}
		}
		dev = netdev{
			hwType: binary.NativeEndian.Uint16(m.Data[2:]),
			index:  int(int32(binary.NativeEndian.Uint32(m.Data[4:]))),
		}
		match := false
		for _, a := range attributes {
			switch a.Attr.Type {
			case unix.IFLA_IFNAME:
				match = cString(a.Value) == name
			case unix.IFLA_LINKINFO:
				dev.parseInfo(a.Value)
			}
		}
		if match {
			return dev, true, nil
		}
	}
	return netdev{}, false, nil
}

func (d *netdev) parseInfo(info []byte) {
	for typ, v := range nested(info) {
		switch typ {
		case unix.IFLA_INFO_KIND:
			d.kind = cString(v)
		case unix.IFLA_INFO_DATA:
			if d.kind == "tun" { // KIND comes first: rtnl_link_info_fill
				d.parseTun(v)
			}
		}
	}
}

func (d *netdev) parseTun(data []byte) {
	// include/uapi/linux/if_link.h, IFLA_TUN_*
	const typeAttr, multiQueueAttr, numQueuesAttr = 3, 7, 8
	for typ, v := range nested(data) {
		switch {
		case typ == typeAttr && len(v) >= 1:
			d.isTap = v[0] == unix.IFF_TAP
		case typ == multiQueueAttr && len(v) >= 1:
			d.multiQueue = v[0] != 0
		case typ == numQueuesAttr && len(v) >= 4:
			d.queues = int(binary.NativeEndian.Uint32(v))
		}
	}
}

// nested yields the attributes in the value of an attribute, by type.
func nested(b []byte) func(yield func(uint16, []byte) bool) {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofRtAttr {
			n := int(binary.NativeEndian.Uint16(b))
			typ := binary.NativeEndian.Uint16(b[2:]) &^ unix.NLA_F_NESTED
			if n < unix.SizeofRtAttr || n > len(b) || !yield(typ, b[unix.SizeofRtAttr:n]) {
				return
			}
			b = b[min(len(b), (n+unix.RTA_ALIGNTO-1)&^(unix.RTA_ALIGNTO-1)):]
		}
	}
}

// cString is b up to its terminating zero.
func cString(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}
