package traffic

import (
	"context"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"sluice/dataplane/summary"
	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
)

// big is the gso_max_size of a sender of BIG TCP.
const big = 389120

// bed is a namespace for the switch, and hosts around it.
type bed struct {
	*netns.Lab
	t  testing.TB
	sw *netns.Namespace
}

func newBed(t testing.TB) *bed {
	lab := netnstest.New(t)
	b := &bed{lab, t, lab.Namespace("sw")}
	b.sw.Silent()
	return b
}

// host is a namespace with one netdev eth0, and addresses on it.
type host struct {
	*netns.Namespace
	v4, v6 string
}

// addresses is both, with the prefixes that all hosts share.
func (h *host) addresses() []string { return []string{h.v4 + "/24", h.v6 + "/64"} }

// hosts are numbered by their names: a is 10.0.0.1 and fd00::1.
func (b *bed) host(name string) *host {
	n := string(rune('1' + name[0] - 'a'))
	return &host{Namespace: b.Namespace(name), v4: "10.0.0." + n, v6: "fd00::" + n}
}

// cabled is a host whose eth0 is one end of a cable; the other, vA for a, is the
// switch's.
func (b *bed) cabled(name string, link netns.Link) *host {
	h := b.host(name)
	b.Veth(h.Namespace, "eth0", b.sw, "v"+string(name[0]-'a'+'A'), link)
	h.Address("eth0", h.addresses()...)
	return h
}

// pair is hosts a and b, each on a cable to the switch.
func pair(t testing.TB, linkA, linkB netns.Link) (*bed, *host, *host) {
	b := newBed(t)
	x, y := b.cabled("a", linkA), b.cabled("b", linkB)
	b.built()
	return b, x, y
}

// built stops the test if the topology could not be made.
func (b *bed) built() {
	b.t.Helper()
	netnstest.Need(b.t, b.Err())
}

// deadline is a context for one step of a test.
func deadline(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// swap moves size bytes each way at once, to one of y's addresses, and compares
// checksums.
func (b *bed) swap(x, y *host, address string, size int64) error {
	ctx, cancel := context.WithTimeout(b.t.Context(), 3*patience)
	defer cancel()
	return b.Exchange(ctx, x.Namespace, y.Namespace, address, size)
}

// exchange moves size bytes each way at once, over IPv4 and then over IPv6, and
// compares checksums.
func (b *bed) exchange(x, y *host, size int64) {
	b.t.Helper()
	for _, address := range []string{y.v4, y.v6} {
		if err := b.swap(x, y, address, size); err != nil {
			b.t.Error(err)
		}
	}
	clean(b.t, x, y)
}

// iperf sends one TCP stream for a second over each family.
func (b *bed) iperf(x, y *host) {
	b.t.Helper()
	for _, address := range []string{y.v4, y.v6} {
		r, err := b.Iperf(b.t.Context(), x.Namespace, y.Namespace, address, netns.Load{Seconds: 1})
		netnstest.Need(b.t, err)
		b.t.Logf("%s: %.1f Gbit/s, %d retransmits", address, r.Gbits, r.Retransmits)
	}
	clean(b.t, x, y)
}

// clean fails the test if a host received anything corrupt.
func clean(t testing.TB, hosts ...*host) {
	t.Helper()
	for _, h := range hosts {
		c, err := h.Counters()
		if err != nil {
			t.Fatal(err)
		}
		if bad := c.TCPErrors(); bad != "" {
			t.Errorf("%s received corrupt packets: %s", h.Name, bad)
		}
	}
}

// link is what the kernel says of a netdev.
func link(t testing.TB, ns *netns.Namespace, device string) *netlink.LinkAttrs {
	t.Helper()
	a, err := ns.Link(device)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// received is how many frames a host's eth0 has received: what the kernel cuts on
// the way counts as what it is cut into.
func received(t testing.TB, h *host) uint64 {
	t.Helper()
	return link(t, h.Namespace, "eth0").Statistics.RxPackets
}

// delivered fails the test if a port dropped anything but what nobody was there for, or
// if more got lost than a queue that was full for a moment explains. TCP makes up for
// losses: only counters tell.
func delivered(t testing.TB, sum summary.Summary) {
	t.Helper()
	for _, p := range sum.Ports {
		if d := dropped(p, "full"); len(d) > 0 {
			t.Errorf("port %s: drops %v", p.Name, d)
		}
		passed := p.RX.Frames + p.TX.Offered
		lost := p.Drops.Egress["full"] + p.KernelDrops
		if lost > 8+passed/1000 {
			t.Errorf("port %s: %d full and %d lost by the kernel, of %d frames",
				p.Name, p.Drops.Egress["full"], p.KernelDrops, passed)
		}
	}
}

// dropped is the sum of all drops of a port but those for the given reasons, and those
// of frames for which no other port was up: what a host's kernel sent by itself while
// the switch was still starting.
func dropped(p summary.Port, except ...string) map[string]uint64 {
	sum := map[string]uint64{}
	for _, drops := range []map[string]uint64{p.Drops.Ingress, p.Drops.Egress} {
		for reason, n := range drops {
			sum[reason] += n
		}
	}
	for _, reason := range append(except, "no_egress") {
		delete(sum, reason)
	}
	return sum
}
