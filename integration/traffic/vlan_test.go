package traffic

import (
	"bytes"
	"testing"

	"sluice/integration/netns"
	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// TestTagsSurvive: frames and super-packets, with one and two tags, priority tags
// included, arrive tagged as they were, between packet ports (where the kernel takes
// the outer tag out of band) and at a tap.
func TestTagsSurvive(t *testing.T) {
	b := newBed(t)
	x := b.cabled("a", netns.Link{GSO: big})
	y := b.cabled("b", netns.Link{GSO: 65536})
	z := b.host("c")
	b.built()
	s := run(t, b.sw, "a=packet:vA", "b=packet:vB", "c=tap:eth0,netns="+z.Name)
	from := tapInto(t, x.Namespace, "eth0")
	packet, tap := tapInto(t, y.Namespace, "eth0"), tapInto(t, z.Namespace, "eth0")
	for _, c := range []struct {
		name    string
		tags    []uint16
		v6      bool
		n, size int
		frames  int
	}{
		{"one tag", []uint16{100}, false, 1000, 0, 1},
		{"one tag, IPv6", []uint16{4094}, true, 1000, 0, 1},
		{"a priority tag", []uint16{5 << 13}, false, 1000, 0, 1},
		{"two tags", []uint16{200, 100}, false, 1000, 0, 1},
		{"two tags, IPv6", []uint16{7<<13 | 200, 100}, true, 1000, 0, 1},
		{"one tag, whole", []uint16{100}, false, 60_000, 1448, 1},
		{"two tags, whole", []uint16{200, 100}, true, 60_000, 1428, 1},
		{"one tag, cut", []uint16{100}, false, 200_000, 1448, 4},
		{"two tags, cut", []uint16{200, 100}, false, 200_000, 1448, 4},
		{"one tag, IPv6, cut", []uint16{100}, true, 200_000, 1428, 4},
		{"two tags, IPv6, cut", []uint16{200, 100}, true, 200_000, 1428, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			from.t, packet.t, tap.t = t, t, t
			spec := super(c.v6, c.n, c.size, c.tags...)
			tap.forget()
			want := vnettest.Super(spec)
			l2 := want.Head[:vnet.EthLen+len(c.tags)*vnet.VLANLen]
			atPacket := cross(from, packet, spec)
			atTap := tap.whole(spec)
			for where, got := range map[string][]vnet.Frame{"packet": atPacket, "tap": atTap} {
				if len(got) != c.frames {
					t.Errorf("%s: arrived %v, want %d frames", where, lengths(got), c.frames)
				}
				for i := range got {
					if begin := got[i].Head[:len(l2)]; !bytes.Equal(begin, l2) {
						t.Errorf("%s: frame %d begins %x, want %x", where, i, begin, l2)
					}
				}
				if c.frames == 1 && !bytes.Equal(got[0].Head, want.Head) {
					t.Errorf("%s: the bytes differ", where)
				}
			}
		})
	}
	for _, name := range []string{"b", "c"} {
		if d := dropped(s.port(name), "no_egress"); len(d) > 0 {
			t.Errorf("port %s: drops %v", name, d)
		}
	}
}
