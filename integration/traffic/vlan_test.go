package traffic

import (
	"bytes"
	"encoding/binary"
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
		if d := dropped(s.port(name)); len(d) > 0 {
			t.Errorf("port %s: drops %v", name, d)
		}
	}
}

// TestTagsCountTowardsTheMTU, as AF_PACKET counts them: not the first, unless it is an
// 802.1ad one, and every second.
func TestTagsCountTowardsTheMTU(t *testing.T) {
	b, x, y := pair(t, netns.Link{MTU: 9000, GSO: big}, netns.Link{})
	s := run(t, b.sw, "a=packet:vA", "b=packet:vB")
	from, to := tapInto(t, x.Namespace, "eth0"), tapInto(t, y.Namespace, "eth0")
	const most = 1500 - vnet.IPv4Len - 32 // bytes of payload that make a packet of the MTU
	over := 0
	for _, c := range []struct {
		name string
		spec vnettest.Spec
		ad   bool // the outer tag is an 802.1ad one
		fits bool
	}{
		{"802.1Q", super(false, most, 0, 100), false, true},
		{"802.1Q, a byte more", super(false, most+1, 0, 100), false, false},
		{"802.1ad", super(false, most-vnet.VLANLen, 0, 100), true, true},
		{"802.1ad, a byte more", super(false, most-vnet.VLANLen+1, 0, 100), true, false},
		{"both", super(false, most-2*vnet.VLANLen, 0, 200, 100), true, true},
		{"both, a byte more", super(false, most-2*vnet.VLANLen+1, 0, 200, 100), true, false},
		// It does not look at segments: there no tag counts.
		{"802.1ad, segments", super(false, 40_000, most, 100), true, true},
		{"802.1ad, segments a byte longer", super(false, 40_000, most+1, 100), true, false},
	} {
		f := vnettest.Super(c.spec)
		if c.ad {
			binary.BigEndian.PutUint16(f.Head[12:], vnet.EtherTypeQinQ) // behind the addresses
		}
		to.forget()
		from.send(f)
		from.send(vnet.Frame{Head: marker()})
		to.until("the marker to arrive", func() bool {
			n := len(to.seen)
			return n > 0 && bytes.Equal(to.seen[n-1].Head, marker())
		})
		if arrived := len(to.seen) > 1; arrived != c.fits {
			t.Errorf("%s: arrived %v, want %v: %v", c.name, arrived, c.fits, lengths(to.seen))
		}
		if !c.fits {
			over++
		}
		var n uint64 // a batch is counted when it has left
		s.until("the drop to be counted", func() bool {
			n = s.ask().Port("b").Drops.Egress["over_mtu"]
			return n >= uint64(over)
		})
		if n != uint64(over) {
			t.Errorf("%s: over_mtu %d, want %d", c.name, n, over)
		}
	}
	s.says(1, "level=WARN", "port=b", "over_mtu", "mtu=1500")
	if d := dropped(s.port("b")); d["over_mtu"] != uint64(over) || len(d) != 1 {
		t.Errorf("drops %v, want over_mtu %d", d, over)
	}
}
