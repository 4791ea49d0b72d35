package traffic

import (
	"testing"

	"sluice/integration/netns"
	"sluice/vnet"
)

// TestFramesThatGROMakesCrossWhole: a sender without TSO sends segments, and GRO on the
// port's netdev makes super-packets of them, above 64 KiB where gro_max_size allows. The
// switch forwards them like a sender's own, and loses none.
//
// What TCP sends again here was lost before the switch: the ring behind a veth whose peer
// has GRO on holds 256 packets (VETH_RING_SIZE in drivers/net/veth.c), and the sender's
// kernel cuts a super-packet of 389120 bytes into 269. The sender's eth0 counts them.
func TestFramesThatGROMakesCrossWhole(t *testing.T) {
	for _, family := range []string{"IPv4", "IPv6"} {
		t.Run(family, func(t *testing.T) {
			b := newBed(t)
			x, y := b.cabled("a", netns.Link{GSO: big}), b.cabled("b", netns.Link{GSO: big})
			x.Eager()
			y.Eager()
			x.Offloads("eth0", false, netns.TCPSegmentation...)
			b.sw.Offloads("vA", true, "rx-gro")
			b.sw.SetLink("vA", netns.Link{GRO: big})
			b.built()
			s := run(t, b.sw, "a=packet:vA", "b=packet:vB")
			address := y.v4
			if family == "IPv6" {
				address = y.v6
			}
			if err := b.swap(x, y, address, 32<<20); err != nil {
				t.Error(err)
			}
			clean(t, x, y)
			sum := s.stop()
			delivered(t, sum)
			rx, sent := sum.Port("a").RX, link(t, x.Namespace, "eth0").Statistics
			if rx.MaxFrame <= vnet.LegacyGSOMaxSize && since(6, 6) || rx.Frames > sent.TxPackets/2 {
				t.Errorf("GRO made %d frames of up to %d bytes from %d segments",
					rx.Frames, rx.MaxFrame, sent.TxPackets)
			}
			c, err := x.Counters()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d frames of up to %d bytes from %d segments; eth0 lost %d, TCP sent %d again",
				rx.Frames, rx.MaxFrame, sent.TxPackets, sent.TxDropped, c["TcpRetransSegs"])
		})
	}
}
