package offload

import (
	"fmt"
	"slices"
	"testing"

	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// BenchmarkResegment cuts 512 KiB into 64 KiB chunks. What a chunk costs does not
// depend on how much payload it holds.
func BenchmarkResegment(b *testing.B) {
	for _, v6 := range []bool{false, true} {
		for _, c := range []struct{ size, max int }{
			{524200, 65535}, {262144, 65535}, {131072, 65535}, // 64 KiB chunks, fewer and fewer
			{524200, 131071}, {524200, 16384}, {524200, 524279}, // chunks of other sizes
		} {
			b.Run(fmt.Sprintf("v6=%v/size=%d/max=%d", v6, c.size, c.max), func(b *testing.B) {
				s := tcp(c.size-100, 1448)
				s.V6 = v6
				f := vnettest.Super(s)
				_, p := parse(b, &f)
				out := newBatch(&f, 64)
				var seg Segmenter
				b.SetBytes(int64(f.Len()))
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					seg.Resegment(&f, &p, c.max, vnet.MaxSegments, vnet.FormPlain)
					for more := true; more; n += len(out.Frames) {
						out.Reset()
						more = seg.Fill(out)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/chunk")
			})
		}
	}
}

// BenchmarkSegment cuts 64 KiB into wire-size segments with finished checksums.
// Package peer compares it with wireguard/tun.
func BenchmarkSegment(b *testing.B) {
	for _, v6 := range []bool{false, true} {
		for _, pieces := range []int{1, 16} { // of payload; a guest's memory is in pages
			b.Run(fmt.Sprintf("v6=%v/pieces=%d", v6, pieces), func(b *testing.B) {
				s := tcp(45*1448, 1448)
				s.V6 = v6
				f := vnettest.Super(s)
				if pieces > 1 {
					f = vnettest.Scatter(f, 1024, slices.Repeat([]int{4096}, pieces-1)...)
				}
				_, p := parse(b, &f)
				out := newBatch(&f, 64)
				var seg Segmenter
				b.SetBytes(int64(f.Len()))
				b.ReportAllocs()
				for b.Loop() {
					seg.Segment(&f, &p)
					out.Reset()
					seg.Fill(out)
				}
				b.ReportMetric(float64(b.N*len(out.Frames))/b.Elapsed().Seconds(), "segs/s")
			})
		}
	}
}
