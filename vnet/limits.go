package vnet

// Limits of a length in bytes, Ethernet header and tags included.
const (
	// MaxGSOMaxSize is the greatest gso_max_size that a kernel grants: GSO_MAX_SIZE,
	// 8 * 65535 (include/linux/netdevice.h).
	MaxGSOMaxSize = 524280
	// LegacyGSOMaxSize is the gso_max_size of a device without BIG TCP:
	// GSO_LEGACY_MAX_SIZE (include/linux/netdevice.h).
	LegacyGSOMaxSize = 65536
	// MaxFrame is the longest frame: a super-packet is shorter than gso_max_size
	// (netif_get_gso_max_size against skb->len in gso_features_check).
	MaxFrame = MaxGSOMaxSize - 1
)

// Form is how IPv6 says that a packet is longer than 65535 bytes of payload.
type Form uint8

// Forms of an IPv6 BIG TCP packet.
const (
	FormNone  Form = iota // no form works: IPv6 is cut to below 64 KiB
	FormHBH               // hop-by-hop jumbo option (RFC 2675), Linux 5.19 to 6.19
	FormPlain             // payload_len 0 without an option, Linux 7.0 and later
)

var formNames = [...]string{FormNone: "none", FormHBH: "hbh", FormPlain: "plain"}

// String is the form as the summary prints it.
func (f Form) String() string { return formNames[f] }

// Limits is what an egress takes now: what was granted, not what was asked for.
type Limits struct {
	GSOMaxSize     int // a super-packet is shorter than this
	GSOIPv4MaxSize int // the same, for IPv4
	GSOMaxSegs     int // a super-packet stands for at most this many segments
	MTU            int // longest packet, from the IP header on
	MaxWrite       int // longest frame that one write takes

	Csum bool // takes NeedsCsum
	TSO4 bool // takes GSOTCPv4
	TSO6 bool // takes GSOTCPv6
	USO  bool // takes GSOUDPL4

	IPv6Form Form // how it takes IPv6 above 64 KiB

	// TaggedIPv6AsIPv4: an IPv6 frame with an in-band tag is measured against
	// GSOIPv4MaxSize too. Packet sockets: the kernel looks at skb->protocol, which
	// is then the tag's (netif_get_gso_max_size, measured on 6.18).
	TaggedIPv6AsIPv4 bool
}

// Takes reports whether the egress takes super-packets of GSO type g whole.
func (l *Limits) Takes(g GSO) bool {
	switch g.Type() {
	case GSOTCPv4:
		return l.Csum && l.TSO4
	case GSOTCPv6:
		return l.Csum && l.TSO6
	case GSOUDPL4:
		return l.Csum && l.USO
	}
	return false
}

// MaxSuper is the length of the longest super-packet that the egress takes for a frame with the
// Ethernet header l2. IPv6 stays below 64 KiB where no BIG TCP form works, and UDP always does.
func (l *Limits) MaxSuper(l2 *L2, g GSO) int {
	max := l.GSOMaxSize
	v6 := l2.EtherType == EtherTypeIPv6
	if !v6 || l2.Tags > 0 && l.TaggedIPv6AsIPv4 {
		max = min(max, l.GSOIPv4MaxSize)
		if !v6 {
			max = l.GSOIPv4MaxSize
		}
	}
	if g.Type() == GSOUDPL4 || v6 && l.IPv6Form == FormNone {
		max = min(max, LegacyGSOMaxSize)
	}
	return min(max-1, l.MaxWrite, MaxFrame)
}
