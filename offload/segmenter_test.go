package offload

import (
	"fmt"
	"testing"

	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// tcp is the plain case, with something in every field.
func tcp(payload, gsoSize int) vnettest.Spec {
	return vnettest.Spec{
		Payload: vnettest.Pattern(payload), GSOSize: gsoSize,
		ID: 0x1234, Seq: 0xfedcba98, Ack: 0x01020304, Window: 0x0203,
		TCPFlags: vnettest.ACK, TCPOptions: vnettest.Timestamps,
	}
}

func with(s vnettest.Spec, edit func(*vnettest.Spec)) vnettest.Spec {
	edit(&s)
	return s
}

// shape is a super-packet; the table crosses families, tags and the options and
// flags that have to survive a cut.
type shape struct {
	name string
	spec vnettest.Spec
}

func shapes() []shape {
	options := []byte{7, 7, 4, 0, 0, 0, 0, 1} // record route, NOP
	edits := []shape{
		{"plain", tcp(14480, 1448)},
		{"odd-tail", tcp(4285, 1428)},
		{"odd-size", tcp(10001, 777)},
		{"one-byte-segments", tcp(200, 1)},
		{"just-two", tcp(1449, 1448)},
		{"no-options", with(tcp(5000, 1460), func(s *vnettest.Spec) { s.TCPOptions = nil })},
		{"all-options", with(tcp(5000, 1400), func(s *vnettest.Spec) {
			s.TCPOptions = append(append([]byte{}, vnettest.Timestamps...), vnettest.Pattern(28)...)
		})},
		{"all-flags", with(tcp(5000, 1000), func(s *vnettest.Spec) { s.TCPFlags = 0xfff; s.Urgent = 77 })},
		{"cwr", with(tcp(5000, 1000), func(s *vnettest.Spec) { s.TCPFlags |= vnettest.CWR })},
		{"fin-psh", with(tcp(5000, 1000), func(s *vnettest.Spec) { s.TCPFlags |= vnettest.FIN | vnettest.PSH })},
		{"tos-flow-label", with(tcp(5000, 1000), func(s *vnettest.Spec) { s.TOS = 0xbb; s.FlowLabel = 0xabcde })},
		{"id-wraps", with(tcp(5000, 1000), func(s *vnettest.Spec) { s.ID = 0xfffe })},
		{"seq-wraps", with(tcp(5000, 1000), func(s *vnettest.Spec) { s.Seq = 0xfffff000 })},
		{"longer-than-64k", tcp(200001, 1448)},
		{"greatest-size", tcp(200001, vnet.MaxGSOSize)},
		{"udp", vnettest.Spec{UDP: true, Payload: vnettest.Pattern(14001), GSOSize: 1400, ID: 9}},
		{"udp-many", vnettest.Spec{UDP: true, Payload: vnettest.Pattern(130), GSOSize: 1, ID: 0xfff0}},
	}
	var all []shape
	for _, e := range edits {
		for _, v6 := range []bool{false, true} {
			for _, tags := range [][]uint16{nil, {0x2064}, {100, 0xe0c8}} {
				s := e.spec
				s.V6, s.Tags = v6, tags
				all = append(all, shape{fmt.Sprintf("%s/v6=%v/tags=%d", e.name, v6, len(tags)), s})
			}
		}
	}
	for _, n := range []int{4, 8, 40} {
		s := tcp(9000, 1000)
		s.IPOptions = append(append([]byte{}, options...), make([]byte, 40)...)[:n]
		all = append(all, shape{fmt.Sprintf("ihl=%d", 5+n/4), s})
		s.UDP, s.TCPOptions = true, nil
		all = append(all, shape{fmt.Sprintf("udp/ihl=%d", 5+n/4), s})
	}
	for name, ext := range map[string][]vnettest.Ext{
		"hop-by-hop": {vnettest.HopByHop},
		"routing":    {vnettest.Routing},
		"dest-opts":  {vnettest.DestOpts},
		"all-ext":    {vnettest.HopByHop, vnettest.DestOpts, vnettest.Routing, vnettest.DestOpts},
	} {
		for _, n := range []int{9000, 200000} {
			s := tcp(n, 1000)
			s.V6, s.Ext = true, ext
			all = append(all, shape{fmt.Sprintf("%s/payload=%d", name, n), s})
		}
	}
	jumbo := tcp(200000, 1428)
	jumbo.V6, jumbo.Form = true, vnet.FormHBH
	all = append(all, shape{"jumbo", jumbo})
	jumbo.Ext = []vnettest.Ext{vnettest.Routing}
	all = append(all, shape{"jumbo-routing", jumbo})
	jumbo.Ext, jumbo.Tags = nil, []uint16{1, 2}
	all = append(all, shape{"jumbo/tags=2", jumbo})
	return all
}

// scatterings are ways in which a received frame may lie in memory: whole, with
// its payload apart, and in pieces of odd lengths.
func scatterings(f vnet.Frame) map[string]vnet.Frame {
	n, all := int(f.Hdr.HdrLen), f.Len()
	m := map[string]vnet.Frame{"whole": f, "headers": vnettest.Scatter(f, n)}
	if all-n > 30 {
		m["odd"] = vnettest.Scatter(f, n+1, 3, 0, 7, 1, 11)
	}
	if all-n > 5000 {
		m["pages"] = vnettest.Scatter(f, n, 1001, 1003, 1000, 999)
	}
	return m
}

func TestSegment(t *testing.T) {
	for _, c := range shapes() {
		t.Run(c.name, func(t *testing.T) {
			want := vnettest.Segments(c.spec)
			for how, f := range scatterings(vnettest.Super(c.spec)) {
				for _, frames := range []int{1, 7, 1000} {
					t.Logf("%s, %d frames a batch", how, frames)
					sameBytes(t, segment(t, &f, frames), want)
				}
			}
		})
	}
}

// sameBytes compares packets without mercy for 0 and 0xffff.
func sameBytes(t testing.TB, got, want [][]byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d packets, want %d", len(got), len(want))
	}
	for i := range got {
		if d := diff(got[i], want[i]); d != "equal" {
			t.Fatalf("packet %d of %d: %s", i, len(got), d)
		}
	}
}

// TestResegment compares chunks and their headers with chunks built from nothing, and the segments
// of the chunks with the segments of the super-packet.
func TestResegment(t *testing.T) {
	limits := []struct{ len, segs int }{
		{65535, 65535}, {65534, 65535}, {131071, 65535}, {65600, 65535}, {70000, 40}, {1499, 65535},
		{4000, 65535}, {100, 65535}, {524279, 65535}, {65535, 16}, {65535, 1}, {65535, 2},
	}
	for _, c := range shapes() {
		t.Run(c.name, func(t *testing.T) {
			whole := vnettest.Segments(c.spec)
			for _, form := range []vnet.Form{vnet.FormNone, vnet.FormHBH, vnet.FormPlain} {
				if !c.spec.V6 && form != vnet.FormNone {
					continue
				}
				if len(c.spec.Ext) > 0 && c.spec.Ext[0].Proto == vnet.ProtoHopByHop && form == vnet.FormHBH {
					continue // TestResegmentAddsNoSecondHopByHop
				}
				for _, l := range limits {
					t.Logf("max %d, %d segments, %v", l.len, l.segs, form)
					want := vnettest.Chunks(c.spec, segsThatFit(c.spec, l.len, l.segs, form), form)
					for _, f := range scatterings(vnettest.Super(c.spec)) {
						sameFrames(t, resegment(t, &f, l.len, l.segs, form, 5), want)
					}
					var finished [][]byte
					for i := range want {
						finished = append(finished, finish(t, &want[i])...)
					}
					sameWire(t, finished, whole, csumAt(c.spec))
				}
			}
		})
	}
}

// TestResegmentAtTheEdges looks where a length field just suffices, where the
// jumbo option comes in, and where it no longer fits, byte by byte.
func TestResegmentAtTheEdges(t *testing.T) {
	const headers4, headers6 = 14 + 20 + 20, 14 + 40 + 20
	// at cuts at the limit edge+d; 16 bits say the length of a frame of edge bytes.
	at := func(v6 bool, in, form vnet.Form, edge, d int) {
		s := tcp(70000, 1)
		s.V6, s.Form, s.TCPOptions = v6, in, nil
		f := vnettest.Super(s)
		want := vnettest.Chunks(s, segsThatFit(s, edge+d, 65535, form), form)
		t.Logf("v6=%v, %v to %v, %d above the edge", v6, in, form, d)
		sameFrames(t, resegment(t, &f, edge+d, 65535, form, 5), want)
	}
	for _, d := range []int{-1, 0, 1} {
		at(false, vnet.FormNone, vnet.FormNone, headers4+65535-40, d)
	}
	for _, in := range []vnet.Form{vnet.FormHBH, vnet.FormPlain} {
		for _, form := range []vnet.Form{vnet.FormNone, vnet.FormHBH, vnet.FormPlain} {
			for _, d := range []int{-1, 0, 1, 8, 9, 10, 1000} {
				at(true, in, form, headers6+65535-20, d)
			}
		}
	}
}

// TestResegmentAddsNoSecondHopByHop: RFC 8200 allows one hop-by-hop header, so a
// packet that has one already stays below 64 KiB where the form is a second.
func TestResegmentAddsNoSecondHopByHop(t *testing.T) {
	s := tcp(200000, 1000)
	s.V6, s.Ext = true, []vnettest.Ext{vnettest.HopByHop}
	f := vnettest.Super(s)
	k := segsThatFit(s, 131071, 65535, vnet.FormNone)
	sameFrames(t, resegment(t, &f, 131071, 65535, vnet.FormHBH, 5), vnettest.Chunks(s, k, vnet.FormNone))
}
