package traffic

import (
	"fmt"
	"strings"
	"testing"

	"sluice/integration/netns"
	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// TestQueueingDisciplineWithoutRoom: what it drops is counted as full, a super-packet
// longer than its room leaves in chunks, and frames behind what is lost pass.
func TestQueueingDisciplineWithoutRoom(t *testing.T) {
	// The limit, in bytes, is below the MTU and a header: else an empty discipline lets a
	// frame of any length by (TCQ_F_CAN_BYPASS in fifo_init, net/sched/sch_fifo.c).
	b, x, y := pair(t, netns.Link{GSO: big}, netns.Link{GSO: big, MTU: 65_535})
	const room = 65_540
	must(t, b.sw, "tc", "qdisc", "add", "dev", "vB", "root", "bfifo", "limit", fmt.Sprint(room))
	s := run(t, b.sw, "a=packet:vA", "b=packet:vB")
	from, to := tapInto(t, x.Namespace, "eth0"), tapInto(t, y.Namespace, "eth0")
	if since(6, 6) {
		// Long segments: the kernel adds the headers of all of them to what a super-packet
		// takes of the room (qdisc_pkt_len_init).
		got := cross(from, to, super(false, 300_000, 8948))
		if n := longest(got); n > room || n < 60_000 {
			t.Errorf("arrived: %v", lengths(got))
		}
		// Halves, and chunks of each.
		if p := s.port("b"); p.TX.Retried != 3 || p.TX.Chunks != 8 || len(dropped(p)) != 0 {
			t.Errorf("%+v, drops %v", p.TX, p.Drops)
		}
	}
	s.stop()

	must(t, b.sw, "tc", "qdisc", "replace", "dev", "vB", "root", "bfifo", "limit", "1000")
	s = run(t, b.sw, "a=packet:vA", "b=packet:vB")
	n := taken(300_000)
	for _, spec := range []vnettest.Spec{
		super(false, 60_000, 1448), super(false, n, 1448), super(false, 1400, 0),
	} {
		if got, ok := tryCross(from, to, spec); ok {
			t.Errorf("arrived: %v", lengths(got))
		}
	}
	p := s.port("b")
	if n := p.Drops.Egress["full"]; n < 3 || len(dropped(p, "full")) != 0 {
		t.Errorf("drops %v", p.Drops)
	}
	// Whole, a half, and one chunk are tried.
	if n > vnet.LegacyGSOMaxSize && p.TX.Retried != 2 {
		t.Errorf("retried %d times", p.TX.Retried)
	}
}

// TestTrafficThroughAShaper: TCP works through a token bucket, and a burst that it has no room for
// is counted as full, not as no_memory.
func TestTrafficThroughAShaper(t *testing.T) {
	b, x, y := pair(t, netns.Link{GSO: big}, netns.Link{GSO: big})
	out, err := b.sw.Run(deadline(t, patience), "tc", "qdisc", "add", "dev", "vB", "root",
		"tbf", "rate", "50mbit", "burst", "64kb", "latency", "5ms")
	if err != nil {
		if strings.Contains(err.Error()+string(out), "qdisc kind is unknown") {
			t.Skip("this kernel has no tbf")
		}
		t.Fatal(err)
	}
	s := run(t, b.sw, "a=packet:vA", "b=packet:vB")
	from := tapInto(t, x.Namespace, "eth0")
	burst := vnettest.Super(super(false, 1400, 0))
	for range 1000 { // 12 times what fits
		from.send(burst)
	}
	b.exchange(x, y, 1<<20)
	p := s.port("b")
	if len(dropped(p, "full")) > 0 || p.Drops.Egress["full"] == 0 {
		t.Errorf("drops %v", p.Drops)
	}
}
