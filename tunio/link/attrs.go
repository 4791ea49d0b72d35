package link

import (
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// attrs are the attributes of a netlink message, or those nested in one attribute.
type attrs []syscall.NetlinkRouteAttr

func parseAttrs(b []byte) (attrs, error) {
	a, err := nl.ParseRouteAttr(b)
	return attrs(a), err
}

// get is the value of the first attribute of this type, or nil.
func (a attrs) get(kind uint16) []byte {
	for _, attr := range a {
		if attr.Attr.Type&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER) == kind {
			return attr.Value
		}
	}
	return nil
}

// has reports whether there is an attribute of this type, which may be empty (a flag).
func (a attrs) has(kind uint16) bool { return a.get(kind) != nil }

// nested are the attributes inside the first attribute of this type.
func (a attrs) nested(kind uint16) (attrs, error) { return parseAttrs(a.get(kind)) }
