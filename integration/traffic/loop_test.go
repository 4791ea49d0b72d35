package traffic

import (
	"encoding/binary"
	"testing"

	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
	"sluice/vnet"
)

// looped is a switch whose ports a and b are joined to a loop by a bridge behind them, and
// bystanders: hosts c and d.
type looped struct {
	*bed
	bridge *netns.Namespace // br over eA and eB
	c, d   *host
	ports  []string
}

func newLooped(t testing.TB) *looped {
	b := newBed(t)
	l := &looped{bed: b, bridge: b.Namespace("bridge")}
	l.bridge.Silent()
	for _, name := range []string{"A", "B"} {
		b.Veth(l.bridge, "e"+name, b.sw, "v"+name, netns.Link{})
	}
	l.bridge.Bridge("br", "eA", "eB")
	l.c, l.d = b.cabled("c", netns.Link{}), b.cabled("d", netns.Link{})
	b.built()
	l.ports = []string{"a=packet:vA", "b=packet:vB", "c=packet:vC", "d=packet:vD"}
	return l
}

// numbered is a marker with its own number.
func numbered(n uint32) vnet.Frame {
	return vnet.Frame{Head: binary.BigEndian.AppendUint32(marker(), n)}
}

// TestLoopIsBrokenAndTold: circulating frames are stopped, whether they come from a bystander or
// from behind the loop; the loop is logged as long as it lasts; and traffic between bystanders
// loses nothing.
func TestLoopIsBrokenAndTold(t *testing.T) {
	l := newLooped(t)
	s := run(t, l.sw, l.ports...)
	outside, behind := tapInto(t, l.c.Namespace, "eth0"), tapInto(t, l.bridge, "br")
	var sent uint32
	send := func() {
		for _, from := range []*tapped{outside, behind} {
			sent++
			from.send(numbered(sent))
		}
	}
	for _, port := range []string{"port=a ", "port=b "} {
		s.until("two warnings of "+port, func() bool {
			send()
			return s.lines("a layer-2 loop", port, "per_second=") >= 2
		})
	}

	in := func() uint64 {
		sum := s.ask()
		return sum.Port("a").RX.Frames + sum.Port("b").RX.Frames
	}
	before := in()
	const frames = 500
	for range frames {
		send()
	}
	l.exchange(l.c, l.d, 16<<20)
	// Each comes in twice, at once or from the bridge, and less than ten times again. The hosts
	// themselves send little.
	if grown := in() - before; grown < 2*frames || grown > 50*frames {
		t.Errorf("of %d frames into the loop, %d came in at its ports", 2*frames, grown)
	}

	sum := s.stop()
	for _, name := range []string{"a", "b"} {
		if n := sum.Port(name).Drops.Ingress["loop"]; n < frames {
			t.Errorf("port %s: %d drops for the loop, want at least %d", name, n, frames)
		}
	}
	for _, name := range []string{"c", "d"} {
		p := sum.Port(name)
		if n := p.Drops.Ingress["loop"]; n > 0 || s.lines("a layer-2 loop", "port="+name) > 0 {
			t.Errorf("port %s is not in the loop: %d drops", name, n)
		}
	}
}

// BenchmarkBystander measures what a loop costs hosts outside it: their throughput with and without
// one, in turn. SLUICE_BINARY names another switch to compare with.
func BenchmarkBystander(b *testing.B) {
	l := newLooped(b)
	run(b, l.sw, l.ports...)
	outside := tapInto(b, l.c.Namespace, "eth0")
	measure := func() float64 {
		r, err := l.Iperf(b.Context(), l.c.Namespace, l.d.Namespace, l.d.v4, netns.Load{Seconds: 1})
		netnstest.Need(b, err)
		return r.Gbits
	}
	var with, without float64
	var sent uint32
	for b.Loop() {
		must(b, l.bridge, "ip", "link", "set", "eB", "nomaster")
		without += measure()
		must(b, l.bridge, "ip", "link", "set", "eB", "master", "br")
		for range 10 {
			sent++
			outside.send(numbered(sent))
		}
		with += measure()
	}
	b.ReportMetric(without/float64(b.N), "Gbit/s-without")
	b.ReportMetric(with/float64(b.N), "Gbit/s-with")
	b.ReportMetric(with/without, "ratio")
}
