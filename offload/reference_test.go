package offload

import (
	"bytes"
	"fmt"
	"testing"

	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// segsThatFit is the greatest number of segments of a legal chunk, found by
// building chunks.
func segsThatFit(s vnettest.Spec, maxLen, maxSegs int, form vnet.Form) int {
	if s.UDP {
		maxSegs = min(maxSegs, 64)
	}
	all := (len(s.Payload) + s.GSOSize - 1) / s.GSOSize
	for k := min(all, maxSegs, maxLen/s.GSOSize); k > 1; k-- {
		p := s
		p.Csum = vnettest.Zero // it is not looked at, and sums take long
		p.Form = form
		p.Payload = make([]byte, k*s.GSOSize)
		if s.UDP && vnet.UDPLen+len(p.Payload) > 0xffff {
			continue // no header can say it
		}
		f := vnettest.Super(p)
		var l2 vnet.L2
		f.Check(&l2)
		l3 := len(f.Head) - l2.Len
		big := l3 > 0xffff
		if s.V6 {
			big = l3-vnet.IPv6Len > 0xffff
		}
		switch {
		case len(f.Head) > maxLen:
		case s.UDP && l3 > 0xffff:
		case s.V6 && big && form == vnet.FormNone:
		default:
			return k
		}
	}
	return 1
}

// parse checks and parses a frame that must be well-formed.
func parse(t testing.TB, f *vnet.Frame) (l2 vnet.L2, p vnet.Packet) {
	t.Helper()
	if d := f.Check(&l2); d != vnet.Keep {
		t.Fatalf("Check: %v", d)
	}
	if d := vnet.Parse(f, &l2, &p); d != vnet.Keep {
		t.Fatalf("Parse: %v", d)
	}
	return l2, p
}

// newBatch makes a batch for frames frames that are cut from f.
func newBatch(f *vnet.Frame, frames int) *vnet.Batch {
	return vnet.NewBatch(frames, frames*(vnet.MaxHeaders+vnet.JumboHBHLen), frames*(len(f.Body)+1))
}

// drain runs Fill to the end, frames at a time, and returns copies.
func drain(t testing.TB, s *Segmenter, f *vnet.Frame, frames int) []vnet.Frame {
	t.Helper()
	before := f.AppendTo(nil)
	var all []vnet.Frame
	out := newBatch(f, frames)
	for more := true; more; {
		out.Reset()
		more = s.Fill(out)
		if more && len(out.Frames) != frames {
			t.Fatalf("Fill stopped at %d frames of %d and says there is more", len(out.Frames), frames)
		}
		for i := range out.Frames {
			all = append(all, out.Frames[i].Clone())
		}
	}
	if s.Fill(out); len(out.Frames) > frames {
		t.Fatal("Fill made frames after the last")
	}
	if !bytes.Equal(before, f.AppendTo(nil)) {
		t.Fatal("the received frame was written to")
	}
	return all
}

// segment is f, cut to wire packets.
func segment(t testing.TB, f *vnet.Frame, frames int) [][]byte {
	t.Helper()
	_, p := parse(t, f)
	var s Segmenter
	if d := s.Segment(f, &p); d != vnet.Keep {
		t.Fatalf("Segment: %v", d)
	}
	var packets [][]byte
	for _, o := range drain(t, &s, f, frames) {
		if o.Hdr.Flags != 0 || o.Hdr.GSO != 0 || o.Hdr.GSOSize != 0 {
			t.Fatalf("a segment has the header %+v", o.Hdr)
		}
		packets = append(packets, o.Head)
	}
	return packets
}

// resegment is f, cut to chunks.
func resegment(
	t testing.TB, f *vnet.Frame, maxLen, maxSegs int, form vnet.Form, frames int,
) []vnet.Frame {
	t.Helper()
	_, p := parse(t, f)
	var s Segmenter
	if d := s.Resegment(f, &p, maxLen, maxSegs, form); d != vnet.Keep {
		t.Fatalf("Resegment: %v", d)
	}
	return drain(t, &s, f, frames)
}

// finish is what a receiver's kernel makes of chunk: its segments, or the chunk
// itself with its checksum.
func finish(t testing.TB, chunk *vnet.Frame) [][]byte {
	t.Helper()
	if chunk.Hdr.GSO != vnet.GSONone {
		return segment(t, chunk, 100)
	}
	if chunk.Hdr.Flags&vnet.NeedsCsum == 0 {
		return [][]byte{chunk.AppendTo(nil)}
	}
	var l2 vnet.L2
	if d := chunk.Check(&l2); d != vnet.Keep {
		t.Fatalf("Check of a chunk: %v", d)
	}
	out := newBatch(chunk, 1)
	if d := Complete(out, chunk, &l2); d != vnet.Keep {
		t.Fatalf("Complete of a chunk: %v", d)
	}
	return [][]byte{out.Frames[0].AppendTo(nil)}
}

// sameWire compares wire packets. A TCP checksum of 0 and one of 0xffff are the
// same number: the kernel stores 0 when it segments and 0xffff when it completes.
func sameWire(t testing.TB, got, want [][]byte, csum int) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d packets, want %d", len(got), len(want))
	}
	for i := range got {
		g, w := got[i], want[i]
		if isZero(g[csum:]) && isZero(w[csum:]) {
			g, w = bytes.Clone(g), bytes.Clone(w)
			copy(g[csum:], []byte{0, 0})
			copy(w[csum:], []byte{0, 0})
		}
		if !bytes.Equal(g, w) {
			t.Fatalf("packet %d of %d: %s", i, len(got), diff(g, w))
		}
	}
}

func isZero(csum []byte) bool {
	return csum[0] == 0 && csum[1] == 0 || csum[0] == 0xff && csum[1] == 0xff
}

func sameFrames(t testing.TB, got, want []vnet.Frame) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d chunks, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i].Hdr != want[i].Hdr {
			t.Fatalf("chunk %d of %d: header %+v, want %+v", i, len(got), got[i].Hdr, want[i].Hdr)
		}
		if !bytes.Equal(got[i].Head, want[i].Head) {
			t.Fatalf("chunk %d of %d: %s", i, len(got), diff(got[i].Head, want[i].Head))
		}
	}
}

func diff(got, want []byte) string {
	if len(got) != len(want) {
		return fmt.Sprintf("%d bytes, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			to := min(i+8, len(got))
			return fmt.Sprintf("byte %d: % x, want % x", i, got[i:to], want[i:to])
		}
	}
	return "equal"
}

// csumAt is where the checksum of s's segments lies.
func csumAt(s vnettest.Spec) int {
	s.Payload, s.GSOSize, s.Csum = nil, 0, vnettest.Seed
	f := vnettest.Super(s)
	return int(f.Hdr.CsumStart) + int(f.Hdr.CsumOffset)
}
