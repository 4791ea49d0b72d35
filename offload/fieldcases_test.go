package offload

import (
	"encoding/binary"
	"slices"
	"testing"

	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// Faults that people have met in software of this kind, by the number that the
// integration tests use too. TestSegment and TestResegment cover the same rules at
// large; here each stands alone, with numbers.

// p01 is 10 segments of TCP over IPv4 with timestamps.
func p01() vnettest.Spec {
	s := tcp(14480, 1448)
	s.TCPFlags |= vnettest.FIN | vnettest.PSH
	return s
}

// Where fields lie in a segment of p01.
const (
	p01ID    = 18
	p01Seq   = 38
	p01Flags = 47
)

func u16s(packets [][]byte, at int) (v []uint16) {
	for _, p := range packets {
		v = append(v, binary.BigEndian.Uint16(p[at:]))
	}
	return v
}

func heads(frames []vnet.Frame) (b [][]byte) {
	for _, f := range frames {
		b = append(b, f.Head)
	}
	return b
}

func TestFieldP01Segments(t *testing.T) {
	f := vnettest.Super(p01())
	want := vnet.Header{Flags: 1, GSO: 1, HdrLen: 66, GSOSize: 1448, CsumStart: 34, CsumOffset: 16}
	if f.Hdr != want {
		t.Fatalf("the builder made %+v, want %+v", f.Hdr, want)
	}
	got := segment(t, &f, 100)
	sameBytes(t, got, vnettest.Segments(p01()))
	if len(got) != 10 {
		t.Fatalf("%d segments, want 10", len(got))
	}
	for i, p := range got {
		seq, id := binary.BigEndian.Uint32(p[p01Seq:]), binary.BigEndian.Uint16(p[p01ID:])
		if seq != 0xfedcba98+uint32(i)*1448 || id != 0x1234+uint16(i) {
			t.Errorf("segment %d: seq %#x, id %#x", i, seq, id)
		}
		if finPSH := p[p01Flags]&(vnettest.FIN|vnettest.PSH) != 0; finPSH != (i == 9) {
			t.Errorf("segment %d: flags %#x", i, p[p01Flags])
		}
	}
}

func TestFieldP02HdrLenIsAHint(t *testing.T) {
	for _, hint := range []uint16{0, 34, 66 + 14480, 0xffff} {
		f := vnettest.Super(p01())
		f.Hdr.HdrLen = hint
		sameBytes(t, segment(t, &f, 100), vnettest.Segments(p01()))
		sameFrames(t, resegment(t, &f, 5000, 100, vnet.FormNone, 100), vnettest.Chunks(p01(), 3, vnet.FormNone))
	}
}

func TestFieldP03FlagsOfPieces(t *testing.T) {
	s := p01()
	s.TCPFlags |= vnettest.CWR | vnettest.ECE
	for _, gso := range []vnet.GSO{0x81, 0x01} {
		f := vnettest.Super(s)
		f.Hdr.GSO = gso
		segs := segment(t, &f, 100)
		sameBytes(t, segs, vnettest.Segments(s))
		want := []uint16{0xd0, 0x50, 0x50, 0x50, 0x50, 0x50, 0x50, 0x50, 0x50, 0x59}
		if got := flagsOf(segs); !slices.Equal(got, want) {
			t.Errorf("gso_type %#x: flags of segments %#x, want %#x", gso, got, want)
		}
		parts := resegment(t, &f, 5000, 100, vnet.FormNone, 100)
		if got, want := flagsOf(heads(parts)), []uint16{0xd0, 0x50, 0x50, 0x59}; !slices.Equal(got, want) {
			t.Errorf("gso_type %#x: flags of chunks %#x, want %#x", gso, got, want)
		}
		var types []vnet.GSO
		for _, c := range parts {
			types = append(types, c.Hdr.GSO)
		}
		if want := []vnet.GSO{gso, 1, 1, 0}; !slices.Equal(types, want) {
			t.Errorf("gso_type %#x: that of chunks %#x, want %#x", gso, types, want)
		}
	}
}

func flagsOf(packets [][]byte) (v []uint16) {
	for _, p := range packets {
		v = append(v, uint16(p[p01Flags]))
	}
	return v
}

// TestECNBitGoesWithCWR: an ECN bit without CWR, which the kernel takes too, says
// nothing that a chunk could say.
func TestECNBitGoesWithCWR(t *testing.T) {
	f := vnettest.Super(p01())
	f.Hdr.GSO |= vnet.GSOECN
	sameFrames(t, resegment(t, &f, 5000, 100, vnet.FormNone, 100), vnettest.Chunks(p01(), 3, vnet.FormNone))
}

func TestFieldP04OddTailOverIPv6(t *testing.T) {
	s := tcp(4285, 1428)
	s.V6 = true
	f := vnettest.Super(s)
	got := segment(t, &f, 100)
	sameBytes(t, got, vnettest.Segments(s))
	const tcp32 = 32
	want := []uint16{1428 + tcp32, 1428 + tcp32, 1428 + tcp32, 1 + tcp32}
	if lengths := u16s(got, vnet.EthLen+ipv6PayloadLen); !slices.Equal(lengths, want) {
		t.Errorf("payload_len %d, want %d", lengths, want)
	}
}

func TestFieldP07IPv4Options(t *testing.T) {
	for _, n := range []int{4, 40} {
		s := p01()
		s.IPOptions = vnettest.Pattern(n)
		f := vnettest.Super(s)
		got := segment(t, &f, 100)
		sameBytes(t, got, vnettest.Segments(s))
		for i, p := range got {
			if sum := vnettest.Sum(p[vnet.EthLen:][:vnet.IPv4Len+n]); sum != 0xffff {
				t.Errorf("IHL %d, segment %d: header sums to %#x", 5+n/4, i, sum)
			}
		}
		for _, c := range resegment(t, &f, 5000, 100, vnet.FormNone, 100) {
			if want := uint16(34 + n); c.Hdr.CsumStart != want {
				t.Errorf("IHL %d: csum_start %d, want %d", 5+n/4, c.Hdr.CsumStart, want)
			}
		}
	}
}

func TestFieldP09P10BigIPv6(t *testing.T) {
	for _, form := range []vnet.Form{vnet.FormHBH, vnet.FormPlain} {
		s := tcp(200000, 1428)
		s.V6, s.Form = true, form
		f := vnettest.Super(s)
		wantStart := map[vnet.Form]uint16{vnet.FormHBH: 62, vnet.FormPlain: 54}[form]
		if f.Hdr.CsumStart != wantStart {
			t.Fatalf("%v: built with csum_start %d, want %d", form, f.Hdr.CsumStart, wantStart)
		}
		sameBytes(t, segment(t, &f, 100), vnettest.Segments(s))
		for _, c := range resegment(t, &f, 65535, 65535, vnet.FormHBH, 100) {
			next, start := c.Head[vnet.EthLen+ipv6NextHeader], c.Hdr.CsumStart
			if next != vnet.ProtoTCP || start != 54 {
				t.Errorf("%v: below 64 KiB, next header %d, csum_start %d", form, next, start)
			}
		}
		c := resegment(t, &f, 131071, 65535, vnet.FormHBH, 100)[0]
		next, start := c.Head[vnet.EthLen+ipv6NextHeader], c.Hdr.CsumStart
		if next != vnet.ProtoHopByHop || start != 62 {
			t.Errorf("%v: above 64 KiB, next header %d, csum_start %d", form, next, start)
		}
	}
}

func TestFieldP11BigIPv4(t *testing.T) {
	s := tcp(520000, 1448)
	s.Seq = 1
	f := vnettest.Super(s)
	if tot := binary.BigEndian.Uint16(f.Head[vnet.EthLen+ipv4TotalLen:]); tot != 0 {
		t.Fatalf("the builder made tot_len %d", tot)
	}
	got := segment(t, &f, 100)
	sameBytes(t, got, vnettest.Segments(s))
	if len(got) != 360 {
		t.Fatalf("%d segments, want 360", len(got))
	}
	if seq := binary.BigEndian.Uint32(got[359][p01Seq:]); seq != 1+359*1448 {
		t.Errorf("the last sequence number is %d, want %d", seq, 1+359*1448)
	}
}

func TestFieldP14AroundOneSegment(t *testing.T) {
	for payload, want := range map[int]int{1447: 1, 1448: 1, 1449: 2, 0: 1} {
		s := tcp(payload, 1448)
		s.TCPFlags |= vnettest.CWR | vnettest.FIN
		f := vnettest.Super(s)
		sameBytes(t, segment(t, &f, 100), vnettest.Segments(s))
		if got := len(segment(t, &f, 100)); got != want {
			t.Errorf("payload %d: %d segments, want %d", payload, got, want)
		}
		one := resegment(t, &f, 65535, 1, vnet.FormNone, 100)
		sameFrames(t, one, vnettest.Chunks(s, 1, vnet.FormNone))
		if len(one) != want {
			t.Errorf("payload %d: %d chunks, want %d", payload, len(one), want)
		}
		for _, c := range one {
			if c.Hdr.GSO != vnet.GSONone || c.Hdr.GSOSize != 0 || c.Hdr.Flags != vnet.NeedsCsum {
				t.Errorf("payload %d: a chunk of one segment has the header %+v", payload, c.Hdr)
			}
		}
	}
}

func TestFieldP27SequenceWraps(t *testing.T) {
	s := p01()
	s.Seq = 0xfffff000
	f := vnettest.Super(s)
	got := segment(t, &f, 100)
	sameBytes(t, got, vnettest.Segments(s))
	if seq := binary.BigEndian.Uint32(got[9][p01Seq:]); seq != 9*1448-0x1000 {
		t.Errorf("the last sequence number is %#x", seq)
	}
}

func TestFieldP28IDWraps(t *testing.T) {
	s := tcp(4000, 1000)
	s.ID = 0xfffe
	f := vnettest.Super(s)
	got := segment(t, &f, 100)
	sameBytes(t, got, vnettest.Segments(s))
	if ids, want := u16s(got, p01ID), []uint16{0xfffe, 0xffff, 0, 1}; !slices.Equal(ids, want) {
		t.Errorf("IDs of segments %#x, want %#x", ids, want)
	}
	parts := heads(resegment(t, &f, 65535, 2, vnet.FormNone, 100))
	if ids, want := u16s(parts, p01ID), []uint16{0xfffe, 0}; !slices.Equal(ids, want) {
		t.Errorf("IDs of chunks %#x, want %#x", ids, want)
	}
}

func TestFieldP31Limits(t *testing.T) {
	const payload, size, headers = 400000, 1448, 66
	for _, c := range []struct{ maxSize, maxSegs, segs int }{
		{65536, 65535, 45}, // 66 + 45*1448 = 65226; one more is 66674
		{65535, 65535, 45},
		{131072, 65535, 90},
		{1500, 65535, 1},
		{524280, 16, 16},
	} {
		s := tcp(payload, size)
		f := vnettest.Super(s)
		l2, _ := parse(t, &f)
		limits := vnet.Limits{GSOIPv4MaxSize: c.maxSize, GSOMaxSize: c.maxSize, MaxWrite: vnet.MaxFrame}
		got := resegment(t, &f, limits.MaxSuper(&l2, f.Hdr.GSO), c.maxSegs, vnet.FormNone, 100)
		sameFrames(t, got, vnettest.Chunks(s, c.segs, vnet.FormNone))
		for i, chunk := range got {
			n := chunk.Len()
			if c.segs > 1 && n >= c.maxSize {
				t.Errorf("%+v: chunk %d is %d bytes long", c, i, n)
			}
			if i < len(got)-1 && (n-headers)%size != 0 {
				t.Errorf("%+v: chunk %d holds %d bytes", c, i, n-headers)
			}
		}
	}
}
