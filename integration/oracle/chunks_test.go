package oracle_test

import (
	"fmt"
	"testing"

	"sluice/offload"
	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// cut is how a super-packet is cut for an egress.
type cut struct {
	maxLen, maxSegs int
	form            vnet.Form
}

// cuts are limits near 64 KiB and far from it, below two segments, and by count. A length is that
// of the longest frame, which is shorter than gso_max_size.
func cuts(forms ...vnet.Form) (cuts []cut) {
	for _, form := range forms {
		for _, n := range []int{
			65534, 65535, 65535 + vnet.EthLen, 65536 + vnet.EthLen, 131071, 4000, 1499,
		} {
			cuts = append(cuts, cut{n, vnet.MaxSegments, form})
		}
		for _, n := range []int{1, 16, 100} {
			cuts = append(cuts, cut{vnet.MaxFrame, n, form})
		}
	}
	return cuts
}

// TestChunksMakeTheSegmentsOfTheWhole is the purpose of package offload: whether package offload or
// the kernel segments the chunks, the result is what the kernel makes of the super-packet itself.
func TestChunksMakeTheSegmentsOfTheWhole(t *testing.T) {
	const ecn, ending = vnettest.CWR | vnettest.ECE, vnettest.FIN | vnettest.PSH
	k := newKernel(t)
	for _, b := range bigForms {
		t.Run(b.name, func(t *testing.T) {
			if b.form == vnet.FormHBH {
				needJumbo(t, k)
			}
			cuts := cuts(b.form)
			if b.form == vnet.FormHBH { // once: below 64 KiB there is one form
				cuts = append(cuts, cut{vnet.MaxFrame, vnet.MaxSegments, vnet.FormNone})
			}
			try := func(name string, s vnettest.Spec) {
				t.Run(name, func(t *testing.T) {
					f := vnettest.Super(with(s, family(b.v6), form(b.form)))
					sameChunks(t, k, &f, cuts)
				})
			}
			try("plain", tcp(400000, 1448))
			try("flags and wraps",
				tcp(200001, 1401, flags(ecn|ending), id(0xfff0), seq(0xffff0000)))
			try("below 64 KiB", tcp(60001, 1448))
			try("great segments", tcp(200001, 30001))
			try("a tag", tcp(200001, 1448, tags(0x2064)))
			try("without NEEDS_CSUM", tcp(200001, 1448, csum(vnettest.Full)))
			if b.form != vnet.FormHBH {
				// Not after a jumbo option, where the kernel is no oracle.
				try("two tags", tcp(200001, 1448, tags(100, 0xe0c8)))
			}
			switch {
			case b.form == vnet.FormPlain:
				// And not before extension headers, for the same reason.
				try("extension headers",
					tcp(200001, 1400, ext(vnettest.Routing, vnettest.DestOpts)))
			case !b.v6:
				try("IHL 15", tcp(200001, 1400, ipOptions(40)))
			}
		})
	}
}

// TestChunksOfSeveralSegmentsWithChecksumsOf0 leaves chunks of one segment out: the kernel finishes
// their checksums in skb_checksum_help, which makes 0xffff of 0, and all others in tcp_gso_segment,
// which does not. To a receiver both mean the same. TestCompleteIsWhatTheKernelMakes tests the
// other half.
func TestChunksOfSeveralSegmentsWithChecksumsOf0(t *testing.T) {
	k := newKernel(t)
	for _, fam := range families {
		t.Run(fam.name, func(t *testing.T) {
			f := vnettest.Super(zeroSums(tcp(60001, 1448, family(fam.v6))))
			sameChunks(t, k, &f, []cut{
				{32768, vnet.MaxSegments, vnet.FormNone},
				{vnet.MaxFrame, 2, vnet.FormNone},
			})
		})
	}
}

func TestUDPChunksMakeTheSegmentsOfTheWhole(t *testing.T) {
	k := newKernel(t)
	for _, fam := range families {
		for name, s := range map[string]vnettest.Spec{
			"plain":             udp(60001, 1400),
			"128 segments":      udp(128, 1),
			"checksums of 0":    zeroSums(udp(20000, 1000, family(fam.v6))),
			"tags and IDs wrap": udp(20000, 1000, tags(100, 200), id(0xfffe)),
		} {
			t.Run(fam.name+"/"+name, func(t *testing.T) {
				f := vnettest.Super(with(s, family(fam.v6)))
				sameChunks(t, k, &f, []cut{
					{65535, vnet.MaxSegments, vnet.FormNone},
					{30000, vnet.MaxSegments, vnet.FormNone},
					{3000, vnet.MaxSegments, vnet.FormNone},
					{1000, vnet.MaxSegments, vnet.FormNone},
					{vnet.MaxFrame, 7, vnet.FormNone},
				})
			})
		}
	}
}

// sameChunks cuts f in several ways and compares the segments of the chunks.
func sameChunks(t *testing.T, k *kernel, f *vnet.Frame, cuts []cut) {
	t.Helper()
	// One capture for all: first the whole frame, then the chunks of each way.
	frames := []vnet.Frame{*f}
	ends := make([]int, len(cuts))
	for i, c := range cuts {
		frames = append(frames, chunks(t, f, c)...)
		ends[i] = len(frames)
	}
	answers := k.wire(t, frames...)
	want := answered(t, frames[:1], answers[:1])
	from := 1
	for i, c := range cuts {
		chunks, answers := frames[from:ends[i]], answers[from:ends[i]]
		from = ends[i]
		what := fmt.Sprintf("%+v, %d chunks", c, len(chunks))
		same(t, what+": Segment of them", finish(t, chunks...), want)
		same(t, what+": the kernel's segments of them", answered(t, chunks, answers), want)
	}
}

// chunks cuts f, and fails t where a chunk is longer than it may be.
func chunks(t *testing.T, f *vnet.Frame, c cut) []vnet.Frame {
	t.Helper()
	_, p, d := parse(f)
	var s offload.Segmenter
	if d == vnet.Keep {
		d = s.Resegment(f, &p, c.maxLen, c.maxSegs, c.form)
	}
	if d != vnet.Keep {
		t.Fatalf("header %+v: dropped: %v", f.Hdr, d)
	}
	made := drain(&s, f)
	for i := range made {
		if n := made[i].Len(); made[i].Hdr.GSO != vnet.GSONone && n > c.maxLen {
			t.Errorf("%+v: chunk %d of %d is %d bytes long", c, i, len(made), n)
		}
	}
	return made
}
