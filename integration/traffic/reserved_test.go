package traffic

import (
	"bytes"
	"testing"

	"sluice/integration/netns"
	"sluice/vnet"
)

// TestReservedGroups: a packet port and a macvtap forward them, unchanged, to each other
// and to a tap, all but PAUSE. What comes in at a port that says drop is dropped.
func TestReservedGroups(t *testing.T) {
	b := newBed(t)
	x, y, z, w := b.cabled("a", netns.Link{}), b.cabled("b", netns.Link{}), b.host("c"), b.cabled("d", netns.Link{})
	b.built()
	s := run(t, b.sw, "--reserved=forward", "a=packet:vA", "b=macvtap:mB,lower=vB", "c=tap:eth0,netns="+z.Name,
		"d=packet:vD,reserved=drop")
	z.SetLink("eth0", netns.Link{})
	b.built()
	hosts := []*host{x, y, z, w}
	var taps []*tapped
	for _, h := range hosts {
		taps = append(taps, tapInto(t, h.Namespace, "eth0"))
	}
	reserved := func(last byte) []byte {
		frame := marker()
		copy(frame, []byte{0x01, 0x80, 0xc2, 0, 0, last})
		return frame
	}
	for from := range taps {
		for _, d := range taps {
			d.forget()
		}
		for last := range byte(16) {
			taps[from].send(vnet.Frame{Head: reserved(last)})
		}
		taps[from].send(vnet.Frame{Head: marker()})
		for to, d := range taps {
			if to == from {
				continue
			}
			var want [][]byte
			for last := range byte(16) {
				if last != 1 && hosts[from] != w {
					want = append(want, reserved(last))
				}
			}
			want = append(want, marker())
			d.until("the marker to arrive", func() bool {
				n := len(d.seen)
				return n > 0 && bytes.Equal(d.seen[n-1].Head, marker())
			})
			if len(d.seen) != len(want) {
				t.Errorf("from %s to %s: %d frames, want %d", hosts[from].Name, hosts[to].Name, len(d.seen), len(want))
				continue
			}
			for i := range want {
				if !bytes.Equal(d.seen[i].Head, want[i]) {
					t.Errorf("from %s to %s: frame %d is %x, want %x",
						hosts[from].Name, hosts[to].Name, i, d.seen[i].Head, want[i])
				}
			}
		}
	}
	sum := s.stop()
	for name, want := range map[string]uint64{"a": 1, "b": 1, "c": 1, "d": 16} {
		if n := sum.Port(name).Drops.Ingress["reserved_multicast"]; n != want {
			t.Errorf("port %s: %d drops, want %d", name, n, want)
		}
	}
}
