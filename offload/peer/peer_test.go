package peer

import (
	"bytes"
	"fmt"
	"testing"

	"sluice/offload"
	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// super is 64 KiB of TCP with timestamps, 45 segments.
func super(v6 bool) vnet.Frame {
	return vnettest.Super(vnettest.Spec{
		V6: v6, Payload: vnettest.Pattern(45 * 1448), GSOSize: 1448,
		ID: 1, Seq: 1, TCPFlags: vnettest.ACK | vnettest.PSH, TCPOptions: vnettest.Timestamps,
	})
}

// BenchmarkSegment cuts 64 KiB into wire-size segments with finished checksums.
//
//   - impl=ours: headers in scratch memory, the payload referenced.
//   - impl=ours+copy: the same, and each segment copied into a buffer of its own.
//   - impl=wireguard: wireguard/tun's splitter, which copies each segment into a
//     buffer of its own. It is given the packet without its Ethernet header.
//
// So impl=ours against impl=wireguard compares what either switch has to do before
// it can write; impl=ours+copy against it compares the same work.
func BenchmarkSegment(b *testing.B) {
	for _, v6 := range []bool{false, true} {
		f := super(v6)
		run := func(impl string, split func(*testing.B) func() int) {
			b.Run(fmt.Sprintf("v6=%v/impl=%s", v6, impl), func(b *testing.B) {
				split := split(b)
				b.SetBytes(int64(f.Len()))
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					n += split()
				}
				b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "segs/s")
			})
		}
		run("ours", func(b *testing.B) func() int { return ourSplit(b, &f, nil) })
		run("ours+copy", func(b *testing.B) func() int { return ourSplit(b, &f, buffers()) })
		run("wireguard", func(b *testing.B) func() int { return theirSplit(b, &f, buffers(), new([128]int)) })
	}
}

// buffers are as many as wireguard/tun has (conn.IdealBatchSize).
func buffers() [][]byte {
	bufs := make([][]byte, 128)
	for i := range bufs {
		bufs[i] = make([]byte, 2048)
	}
	return bufs
}

// ourSplit makes a function that cuts f and reports how many segments it made,
// and copies them to bufs unless that is nil.
func ourSplit(t testing.TB, f *vnet.Frame, bufs [][]byte) func() int {
	var l2 vnet.L2
	var p vnet.Packet
	if f.Check(&l2) != vnet.Keep || vnet.Parse(f, &l2, &p) != vnet.Keep {
		t.Fatal("the frame is malformed")
	}
	out := vnet.NewBatch(128, 128*(vnet.MaxHeaders+vnet.JumboHBHLen), 128)
	var s offload.Segmenter
	return func() int {
		s.Segment(f, &p)
		out.Reset()
		s.Fill(out)
		for i := range bufs[:min(len(bufs), len(out.Frames))] {
			bufs[i] = out.Frames[i].AppendTo(bufs[i][:0])
		}
		return len(out.Frames)
	}
}

// theirSplit makes a function that has wireguard/tun cut f, and reports how many
// segments it made. They are in bufs, and as long as sizes says.
func theirSplit(t testing.TB, f *vnet.Frame, bufs [][]byte, sizes *[128]int) func() int {
	h := f.Hdr
	h.CsumStart -= vnet.EthLen
	h.HdrLen -= vnet.EthLen
	in := make([]byte, vnet.MinHeaderLen)
	h.Encode(in) // the host's byte order there, which is little-endian on all we run on
	in = append(in, f.AppendTo(nil)[vnet.EthLen:]...)
	return func() int {
		n, err := wireguardSplit(in, bufs, sizes[:], 0)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
}

// TestSplittersAgree: what the benchmark compares is the same work with the same
// result.
func TestSplittersAgree(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		f := super(v6)
		ours, theirs := buffers(), buffers()
		var sizes [128]int
		n, m := ourSplit(t, &f, ours)(), theirSplit(t, &f, theirs, &sizes)()
		if n != 45 || m != 45 {
			t.Fatalf("v6=%v: %d segments, theirs %d, want 45", v6, n, m)
		}
		for i := range n {
			if !bytes.Equal(ours[i][vnet.EthLen:], theirs[i][:sizes[i]]) {
				t.Errorf("v6=%v: segment %d differs", v6, i)
			}
		}
	}
}
