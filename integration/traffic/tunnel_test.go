package traffic

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sluice/integration/netns"
	"sluice/vnet"
	"sluice/vnet/vnettest"
)

const (
	unsupportedGSO = "unsupported_gso"
	// size is how much the tests move through a tunnel, each way.
	size = 4 << 20
)

// tunnel is a kind of tunnel between two hosts' netdevs eth0.
type tunnel struct {
	kind         string
	outer, inner family
	link         string // type and options of the netdev, for ip link add; LOCAL and REMOTE are replaced
	features     string // what the warning names
}

// family is 4 or 6.
type family int

// of is a host's address in a network of that family.
func (f family) of(h *host) string {
	if f == 4 {
		return h.v4
	}
	return h.v6
}

// What a sender has to switch off, by kind.
const (
	udpFeatures = "tx-udp_tnl-segmentation off tx-udp_tnl-csum-segmentation off"
	greFeatures = "tx-gre-segmentation off tx-gre-csum-segmentation off"
	ipFeatures  = "tx-ipxip4-segmentation off tx-ipxip6-segmentation off"
	tagFeatures = "tso off tx-udp-segmentation off"
)

// tunnels is the matrix: each kind, inner and outer family, with and without a checksum of
// the outer header.
func tunnels() (all []tunnel) {
	const ends = " local LOCAL remote REMOTE"
	for _, t := range []tunnel{
		{"VXLAN", 4, 0, "vxlan id 7 dstport 4789 dev eth0 noudpcsum" + ends, udpFeatures},
		{"VXLAN with checksum", 4, 0, "vxlan id 7 dstport 4789 dev eth0 udpcsum" + ends, udpFeatures},
		{"VXLAN", 6, 0, "vxlan id 7 dstport 4789 dev eth0 udp6zerocsumtx udp6zerocsumrx" + ends, udpFeatures},
		{"VXLAN with checksum", 6, 0, "vxlan id 7 dstport 4789 dev eth0 noudp6zerocsumtx" + ends, udpFeatures},
		{"Geneve", 4, 0, "geneve id 7 noudpcsum remote REMOTE", udpFeatures},
		{"Geneve with checksum", 4, 0, "geneve id 7 udpcsum remote REMOTE", udpFeatures},
		{"Geneve", 6, 0, "geneve id 7 udp6zerocsumtx udp6zerocsumrx remote REMOTE", udpFeatures},
		{"Geneve with checksum", 6, 0, "geneve id 7 noudp6zerocsumtx remote REMOTE", udpFeatures},
		{"GRE", 4, 0, "gre" + ends, greFeatures},
		{"GRE with checksum", 4, 0, "gre csum" + ends, greFeatures},
		{"GRE", 6, 0, "ip6gre" + ends, greFeatures},
		{"gretap", 4, 0, "gretap" + ends, greFeatures},
		{"gretap", 6, 0, "ip6gretap" + ends, greFeatures},
		{"IPIP", 4, 4, "ipip" + ends, ipFeatures},
		{"SIT", 4, 6, "sit" + ends, ipFeatures},
		{"ip6tnl", 6, 0, "ip6tnl mode any" + ends, ipFeatures},
		{"three VLAN tags", 4, 0, "tags", tagFeatures}, // of no netdev: always a program
	} {
		for _, inner := range []family{4, 6} {
			if t.inner == 0 || t.inner == inner {
				one := t
				one.inner = inner
				all = append(all, one)
			}
		}
	}
	return all
}

func (t tunnel) String() string {
	return fmt.Sprintf("%s over IPv%d, IPv%d inside", t.kind, t.outer, t.inner)
}

func (t tunnel) prefix() string {
	if t.inner == 4 {
		return "/24"
	}
	return "/64"
}

// inside is the address of a host's end of the tunnel.
func (t tunnel) inside(h *host) string {
	n := h.v4[strings.LastIndexByte(h.v4, '.')+1:]
	if t.inner == 4 {
		return "10.1.0." + n
	}
	return "fd01::" + n
}

// between makes the tunnel's ends on two hosts: of netdevs, or where the kernel does not
// have them, of programs that do the same.
func (t tunnel) between(b *bed, x, y *host) {
	b.t.Helper()
	if t.netdevs(b, x, y) {
		return
	}
	typ, _, _ := strings.Cut(t.link, " ")
	switch e, ok := encaps(typ, t.inner); {
	case !ok:
		b.t.Skip("this kernel has no " + typ)
	case strings.Contains(t.kind, "checksum"):
		b.t.Skip("this kernel has no " + typ + ", and a program makes no checksum outside")
	default:
		e.between(b, t, x, y)
	}
}

// netdevs makes the tunnel's ends. It reports false where the kernel does not
// have the kind.
func (t tunnel) netdevs(b *bed, x, y *host) bool {
	for _, h := range []*host{x, y} {
		far := y
		if h == y {
			far = x
		}
		link := strings.NewReplacer("LOCAL", t.outer.of(h), "REMOTE", t.outer.of(far)).Replace(t.link)
		// The error says no more than the exit code: ip's words are on standard error.
		out, err := h.Run(deadline(b.t, patience), "sh", "-c", "ip link add t0 type "+link+" 2>&1")
		if err != nil && strings.Contains(string(out), "Unknown device type") {
			return false
		}
		if err != nil {
			b.t.Fatalf("%s: %v: %s", link, err, out)
		}
		h.Address("t0", t.inside(h)+t.prefix())
		h.SetLink("t0", netns.Link{})
	}
	b.built()
	return true
}

// hint is the command that the log of a port with unsupported_gso says to type, for a
// netdev.
func (s *sluice) hint(port, features, device string) string {
	s.t.Helper()
	s.says(1, "level=WARN", "port="+port+" ", unsupportedGSO, features)
	line := s.logged("level=WARN", "port="+port+" ", unsupportedGSO, features)
	_, hint, ok := strings.Cut(line, "where they are sent: ")
	hint, _, end := strings.Cut(hint, "\"")
	if !ok || !end {
		s.t.Fatalf("no hint in\n%s", line)
	}
	return strings.ReplaceAll(hint, "DEV", device)
}

// settled is how many super-packets of tunnels the ports have dropped, once none is in flight.
func (s *sluice) settled() (n uint64) {
	s.t.Helper()
	drops := func() (n uint64) {
		for _, p := range s.ask().Ports {
			n += p.Drops.Ingress[unsupportedGSO]
		}
		return n
	}
	n = drops()
	s.until("the last drop to be counted", func() bool {
		was := n
		n = drops()
		return n == was
	})
	return n
}

// TestTunnelHintMends: super-packets of a tunnel are dropped as such, since nobody here
// can cut them, and what the warning says to type has their sender cut them.
func TestTunnelHintMends(t *testing.T) {
	for _, c := range tunnels() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			b, x, y := pair(t, netns.Link{}, netns.Link{})
			c.between(b, x, y)
			s := run(t, b.sw, "a=packet:vA", "b=packet:vB")
			ctx, cancel := context.WithCancel(t.Context())
			stalled := make(chan error, 1)
			go func() { stalled <- b.Exchange(ctx, x.Namespace, y.Namespace, c.inside(y), size) }()
			hint := s.hint("a", c.features, "eth0")
			cancel()
			<-stalled
			for _, h := range []*host{x, y} {
				shell(t, h.Namespace, hint)
			}
			before := s.settled()
			if err := b.swap(x, y, c.inside(y), size); err != nil {
				t.Error(err)
			}
			if after := s.settled(); before == 0 || after != before {
				t.Errorf("%d drops after the command, %d before", after, before)
			}
			clean(t, x, y)
			for _, p := range s.stop().Ports {
				if d := dropped(p, unsupportedGSO, "full"); len(d) > 0 {
					t.Errorf("port %s: drops %v", p.Name, d)
				}
			}
		})
	}
}

// TestTunnelGROHintMends: where the sender cuts, GRO at the port's own device may merge
// again, and the log says what to do about that.
func TestTunnelGROHintMends(t *testing.T) {
	for _, c := range tunnels() {
		// UDP tunnels are merged only where the host has an end of one, and tagged frames
		// only by what the tags stand for.
		if c.features == udpFeatures || c.features == tagFeatures || strings.Contains(c.kind, "checksum") {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			b, x, y := pair(t, netns.Link{}, netns.Link{})
			c.between(b, x, y)
			for _, h := range []*host{x, y} {
				// A veth merges only what a sender without TSO sends (veth_skb_is_eligible_for_gro).
				shell(t, h.Namespace, "ethtool -K eth0 tso off "+c.features)
			}
			shell(t, b.sw, "ethtool -K vA gro on; ethtool -K vB gro on")
			s := run(t, b.sw, "a=packet:vA", "b=packet:vB")
			ctx, cancel := context.WithCancel(t.Context())
			stalled := make(chan error, 1)
			go func() { stalled <- b.Exchange(ctx, x.Namespace, y.Namespace, c.inside(y), size) }()
			for _, port := range []string{"a", "b"} {
				s.says(1, "level=WARN", "port="+port+" ", unsupportedGSO, "gro off")
				_, hint, _ := strings.Cut(s.logged("port="+port+" ", "gro off"), "try: ")
				hint, _, _ = strings.Cut(hint, "\"")
				shell(t, b.sw, hint)
			}
			cancel()
			<-stalled
			before := s.settled()
			if err := b.swap(x, y, c.inside(y), size); err != nil {
				t.Error(err)
			}
			if after := s.settled(); before == 0 || after != before {
				t.Errorf("%d drops after the command, %d before", after, before)
			}
		})
	}
}

// TestTunnelFramesByHand: super-packets as a packet socket shows those of each kind, and
// malformed ones, which are told from them, come out of a TAP as from a virtual machine.
func TestTunnelFramesByHand(t *testing.T) {
	features := map[vnet.Tunnel]string{
		vnet.TunnelUDP: udpFeatures, vnet.TunnelGRE: greFeatures, vnet.TunnelIP: ipFeatures,
	}
	for _, e := range vnettest.Encaps {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			b.cabled("b", netns.Link{})
			b.built()
			shell(t, b.sw, "ip tuntap add dev tA mode tap vnet_hdr; ip link set tA up")
			guest := openTap(t, b.sw, "tA").Transmitter()
			s := run(t, b.sw, "a=packet:tA", "b=packet:vB")
			n := uint64(0)
			for i := range 8 {
				whole := e.Wrap(super(i&1 != 0, 5000, 1000), i&2 != 0, i&4 != 0)
				malformed := whole.Clone()
				malformed.Hdr.CsumStart += 2
				for _, f := range []vnet.Frame{whole, malformed} {
					if _, r, err := guest.WriteBatch([]vnet.Frame{f}); err != nil || r != vnet.Accepted {
						t.Fatal(r, err)
					}
				}
				n++
			}
			s.says(1, "level=WARN", "port=a ", unsupportedGSO, features[e.Kind])
			s.says(1, "level=WARN", "port=a ", "bad_gso", "tso off")
			if got := s.port("a").Drops.Ingress; got[unsupportedGSO] != n || got["bad_gso"] != n {
				t.Errorf("drops %v, want %d of each", got, n)
			}
		})
	}
}

// TestTunnelsOutOfTaps are whole without a hint: a TAP has its kernel cut what is in a
// tunnel.
func TestTunnelsOutOfTaps(t *testing.T) {
	for _, c := range tunnels() {
		if !strings.HasPrefix(c.kind, "VXLAN") {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			x, y := b.host("a"), b.host("b")
			b.built()
			s := run(t, b.sw, "a=tap:eth0,netns="+x.Name, "b=tap:eth0,netns="+y.Name)
			for _, h := range []*host{x, y} {
				h.Address("eth0", h.addresses()...)
			}
			c.between(b, x, y)
			if err := b.swap(x, y, c.inside(y), size); err != nil {
				t.Error(err)
			}
			clean(t, x, y)
			delivered(t, s.stop())
		})
	}
}
