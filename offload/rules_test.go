package offload

import (
	"bytes"
	"encoding/binary"
	"testing"

	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// add16 adds delta to the 16-bit field at, as sums are added.
func add16(b []byte, at int, delta uint16) {
	field := b[at:][:2]
	var d [2]byte
	binary.BigEndian.PutUint16(d[:], delta)
	binary.BigEndian.PutUint16(field, vnettest.Sum(append(d[:], field...)))
}

// TestSeedWithoutNeedsCsum: the kernel takes a TCP super-packet whose checksum
// nobody asks for, and makes a seed from the addresses.
func TestSeedWithoutNeedsCsum(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		s := tcp(9000, 1000)
		s.V6, s.Csum = v6, vnettest.Zero
		f := vnettest.Super(s)
		binary.BigEndian.PutUint16(f.Head[csumAt(s):], 0xdead)
		sameBytes(t, segment(t, &f, 100), vnettest.Segments(s))
		sameFrames(t, resegment(t, &f, 4000, 3, vnet.FormNone, 100), vnettest.Chunks(s, 3, vnet.FormNone))
	}
}

// TestChecksumZero: the sum that comes to 0 is stored as 0 by TCP's segmentation and as 0xffff by
// UDP's, where 0 means "no checksum".
func TestChecksumZero(t *testing.T) {
	for _, udp := range []bool{false, true} {
		for _, v6 := range []bool{false, true} {
			s := vnettest.Spec{V6: v6, UDP: udp, Payload: vnettest.Pattern(2000), GSOSize: 1000}
			at := csumAt(s)
			// The second segment's checksum becomes 0 when what it is goes into its payload.
			last := vnettest.Segments(s)[1]
			word := s.Payload[1500:][:2]
			add16(word, 0, binary.BigEndian.Uint16(last[at:]))
			want := map[bool]uint16{false: 0, true: 0xffff}[udp]
			f := vnettest.Super(s)
			got := segment(t, &f, 100)
			sameBytes(t, got, vnettest.Segments(s))
			if c := binary.BigEndian.Uint16(got[1][at:]); c != want {
				t.Errorf("udp=%v v6=%v: checksum %#x, want %#x", udp, v6, c, want)
			}
		}
	}
}

// TestUDPChunkOfManySegments: at most 64, which every kernel takes.
func TestUDPChunkOfManySegments(t *testing.T) {
	s := vnettest.Spec{UDP: true, Payload: vnettest.Pattern(128), GSOSize: 1}
	f := vnettest.Super(s)
	sameFrames(t, resegment(t, &f, 65535, 65535, vnet.FormNone, 100), vnettest.Chunks(s, 64, vnet.FormNone))
}

// TestUDPStaysBelow64KiB, also when a hostile frame is longer than UDP can be.
func TestUDPStaysBelow64KiB(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		s := vnettest.Spec{V6: v6, UDP: true, Payload: vnettest.Pattern(100), GSOSize: 1400}
		f := vnettest.Super(s)
		f.Head = append(f.Head, vnettest.Pattern(200000)...)
		got := resegment(t, &f, vnet.MaxFrame, vnet.MaxSegments, vnet.FormPlain, 100)
		want := vnet.EthLen + vnet.IPv4Len + vnet.UDPLen + 46*1400 // 64428; one more is above 65535
		if v6 {
			want += vnet.IPv6Len - vnet.IPv4Len
		}
		if n := got[0].Len(); n != want {
			t.Errorf("v6=%v: a chunk of %d bytes, want %d", v6, n, want)
		}
	}
}

// TestOneSegmentIsPassed: a frame that is one segment is no super-packet for the
// kernel either. Its lengths are not those of the frame when it is padded.
func TestOneSegmentIsPassed(t *testing.T) {
	s := tcp(4, 1448)
	s.TCPOptions = nil
	padded := vnettest.Super(s)
	padded.Head = append(padded.Head, 0, 0)
	for how, f := range map[string]vnet.Frame{"whole": padded, "pieces": vnettest.Scatter(padded, 55, 1, 2)} {
		want := append(vnettest.Segments(s)[0], 0, 0)
		sameWire(t, segment(t, &f, 1), [][]byte{want}, csumAt(s))
		const unknown = 0x44
		f.Hdr.Flags |= vnet.DataValid | unknown
		one := resegment(t, &f, 65535, 10, vnet.FormNone, 1)
		if len(one) != 1 || !bytes.Equal(one[0].Head, padded.Head) {
			t.Errorf("%s: resegmenting changed the frame", how)
		}
		hdr := vnet.Header{Flags: 3, HdrLen: 54, CsumStart: 34, CsumOffset: 16}
		if one[0].Hdr != hdr {
			t.Errorf("%s: header %+v, want %+v", how, one[0].Hdr, hdr)
		}
	}
}

// TestOneSegmentWithoutNeedsCsum: its checksum is finished, right or wrong.
func TestOneSegmentWithoutNeedsCsum(t *testing.T) {
	for _, size := range []int{4, 1448} {
		s := tcp(4, size)
		s.Csum = vnettest.Zero
		f := vnettest.Super(s)
		sameBytes(t, segment(t, &f, 1), [][]byte{f.Head})
		if one := resegment(t, &f, 65535, 10, vnet.FormNone, 1); one[0].Hdr.Flags != 0 {
			t.Errorf("gso_size %d: header %+v", size, one[0].Hdr)
		}
	}
}

// TestJumboBelow64KiB: such an option is invalid, and is copied like any other.
func TestJumboBelow64KiB(t *testing.T) {
	s := tcp(9000, 1000)
	s.V6 = true
	s.Ext = []vnettest.Ext{{Proto: vnet.ProtoHopByHop, Data: []byte{0xc2, 4, 0, 1, 0, 0}}}
	f := vnettest.Super(s)
	if _, p := parse(t, &f); !p.Jumbo {
		t.Fatal("not parsed as jumbo")
	}
	sameBytes(t, segment(t, &f, 100), vnettest.Segments(s))
}

func TestTooManySegments(t *testing.T) {
	out := vnet.NewBatch(1, vnet.MaxHeaders+vnet.JumboHBHLen, 2)
	var seg Segmenter
	for payload, want := range map[int]vnet.Drop{
		vnet.MaxSegments:     vnet.Keep,
		vnet.MaxSegments + 1: vnet.DropTooManySegments,
	} {
		f := vnettest.Super(tcp(payload, 1))
		_, p := parse(t, &f)
		begin := map[string]func() vnet.Drop{
			"Segment":   func() vnet.Drop { return seg.Segment(&f, &p) },
			"Resegment": func() vnet.Drop { return seg.Resegment(&f, &p, 67, 65535, vnet.FormNone) },
		}
		for name, begin := range begin {
			out.Reset()
			if d := begin(); d != want {
				t.Errorf("%s of %d segments: %v, want %v", name, payload, d, want)
			}
			if more := seg.Fill(out); more != (want == vnet.Keep) {
				t.Errorf("%s of %d segments: Fill says %v", name, payload, more)
			}
		}
		if d := seg.Resegment(&f, &p, 65535, 65535, vnet.FormNone); d != vnet.Keep {
			t.Errorf("Resegment of %d segments to chunks of many: %v", payload, d)
		}
	}
}

// TestNothingIsAllocated runs every hot step with its memory in place.
func TestNothingIsAllocated(t *testing.T) {
	v6 := tcp(500000, 1428)
	v6.V6, v6.Form = true, vnet.FormHBH
	udp := vnettest.Spec{UDP: true, Payload: vnettest.Pattern(60000), GSOSize: 1400}
	for name, s := range map[string]vnettest.Spec{"v4": tcp(500000, 1448), "v6": v6, "udp": udp} {
		f := vnettest.Scatter(vnettest.Super(s), 1024, 20001, 10001)
		l2, p := parse(t, &f)
		out := newBatch(&f, 64)
		var seg Segmenter
		fill := func() {
			for more := true; more; {
				out.Reset()
				more = seg.Fill(out)
			}
		}
		one := f
		one.Hdr.GSO, one.Hdr.GSOSize = vnet.GSONone, 0
		sctp := vnettest.Scatter(sctpFrame(), 100, 3)
		var sctpL2 vnet.L2
		sctp.Check(&sctpL2)
		steps := map[string]func(){
			"Resegment": func() { seg.Resegment(&f, &p, 65535, 65535, vnet.FormHBH); fill() },
			"Segment":   func() { seg.Segment(&f, &p); fill() },
			"Complete":  func() { out.Reset(); Complete(out, &one, &l2) },
			"SCTP":      func() { out.Reset(); Complete(out, &sctp, &sctpL2) },
			"Reform":    func() { out.Reset(); Reform(out, &f, &p, vnet.FormPlain) },
		}
		if !p.V6 {
			delete(steps, "Reform")
		}
		for step, run := range steps {
			if n := testing.AllocsPerRun(20, run); n != 0 {
				t.Errorf("%s/%s: %v allocations", step, name, n)
			}
		}
	}
}
