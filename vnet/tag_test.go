package vnet_test

import (
	"bytes"
	"testing"

	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// TestRetag edits frames however they lie in pieces: the bytes, the header and what Check
// says of the result are those of the frame built so from the start.
func TestRetag(t *testing.T) {
	ack := func(payload, gso int, tags ...uint16) vnettest.Spec {
		return vnettest.Spec{Payload: vnettest.Pattern(payload), GSOSize: gso, Tags: tags, TCPFlags: vnettest.ACK}
	}
	with := func(s vnettest.Spec, edit func(*vnettest.Spec)) vnettest.Spec {
		edit(&s)
		return s
	}
	six := func(s *vnettest.Spec) {
		s.V6, s.TCPOptions = true, vnettest.Timestamps
		s.Ext = []vnettest.Ext{vnettest.HopByHop, vnettest.Routing}
	}
	full := func(s *vnettest.Spec) { s.Csum = vnettest.Full }
	long := func(s *vnettest.Spec) {
		s.V6, s.Csum = true, vnettest.Full
		s.Ext = []vnettest.Ext{{Proto: vnet.ProtoDestOpts, Data: make([]byte, 126)}}
	}
	for _, c := range []struct {
		name     string
		from, to vnettest.Spec
		edit     vnet.TagEdit
		head     int // the longest head that is worth a copy
	}{
		{"push", ack(100, 0), ack(100, 0, 0xa00a), vnet.TagEdit{Op: vnet.TagPush, TCI: 0xa00a}, 98},
		{"pop", ack(100, 0, 0xa00a), ack(100, 0), vnet.TagEdit{Op: vnet.TagPop}, 94},
		{"set", ack(100, 0, 0xa00a), ack(100, 0, 0xb00b), vnet.TagEdit{Op: vnet.TagSet, TCI: 0xb00b}, 98},
		{"push, super-packet", ack(200000, 1448), ack(200000, 1448, 10),
			vnet.TagEdit{Op: vnet.TagPush, TCI: 10}, 98},
		{"pop, IPv6", with(ack(5000, 1400, 9), six), with(ack(5000, 1400), six),
			vnet.TagEdit{Op: vnet.TagPop}, 14 + 40 + 8 + 16 + 60},
		{"pop, no checksum to finish", with(ack(5000, 1400, 9), full), with(ack(5000, 1400), full),
			vnet.TagEdit{Op: vnet.TagPop}, vnet.MaxHeaders},
		{"push, long headers, no checksum to finish", with(ack(5000, 1300), long), with(ack(5000, 1300, 9), long),
			vnet.TagEdit{Op: vnet.TagPush, TCI: 9}, vnet.MaxHeaders + vnet.VLANLen},
		{"push, nothing to do", with(ack(1000, 0), full), with(ack(1000, 0, 9), full),
			vnet.TagEdit{Op: vnet.TagPush, TCI: 9}, 14 + 4 + 40 + 60},
		{"push, small", with(ack(0, 0), full), with(ack(0, 0, 9), full),
			vnet.TagEdit{Op: vnet.TagPush, TCI: 9}, 14 + 4 + 40},
		{"set, outer of two", ack(100, 0, 0, 7), ack(100, 0, 5, 7), vnet.TagEdit{Op: vnet.TagSet, TCI: 5}, 102},
		{"pop, outer of two", ack(100, 0, 0, 7), ack(100, 0, 7), vnet.TagEdit{Op: vnet.TagPop}, 98},
	} {
		whole := vnettest.Super(c.from)
		want := vnettest.Super(c.to)
		n := min(whole.Len(), vnet.MaxHeaders)
		for _, f := range []vnet.Frame{whole, vnettest.Scatter(whole, n), vnettest.Scatter(whole, n, 0, min(3, whole.Len()-n))} {
			var l2, edited, wantL2 vnet.L2
			if d := f.Check(&l2); d != vnet.Keep {
				t.Fatalf("%s: the frame is no good: %v", c.name, d)
			}
			if d := want.Check(&wantL2); d != vnet.Keep {
				t.Fatalf("%s: the wanted frame is no good: %v", c.name, d)
			}
			out := vnet.NewBatch(1, vnet.MaxHeaders+vnet.VLANLen, len(f.Body)+1)
			was := f.Clone()
			if d := vnet.Retag(out, &f, &l2, c.edit, &edited); d != vnet.Keep {
				t.Errorf("%s: %v", c.name, d)
				continue
			}
			got := &out.Frames[0]
			if got.Hdr != want.Hdr || !bytes.Equal(got.AppendTo(nil), want.Head) {
				t.Errorf("%s:\ngot  %+v %x\nwant %+v %x", c.name, got.Hdr, got.Head[:54], want.Hdr, want.Head[:54])
			}
			if edited != wantL2 {
				t.Errorf("%s: %+v, want %+v", c.name, edited, wantL2)
			}
			if len(got.Head) > c.head {
				t.Errorf("%s: a head of %d bytes, want at most %d", c.name, len(got.Head), c.head)
			}
			var p vnet.Packet
			if f.Hdr.GSO != vnet.GSONone {
				if d := vnet.Parse(got, &edited, &p); d != vnet.Keep {
					t.Errorf("%s: its headers are not in its head: %v", c.name, d)
				}
			}
			if f.Hdr != was.Hdr || !bytes.Equal(f.AppendTo(nil), was.Head) {
				t.Errorf("%s: the frame was changed", c.name)
			}
		}
	}
}

// TestRetagCopiesNoPayload: what is behind the headers is the received memory.
func TestRetagCopiesNoPayload(t *testing.T) {
	f := vnettest.Super(vnettest.Spec{Payload: vnettest.Pattern(100000), GSOSize: 1448, TCPFlags: vnettest.ACK})
	var l2, edited vnet.L2
	f.Check(&l2)
	out := vnet.NewBatch(1, vnet.MaxHeaders+vnet.VLANLen, 2)
	vnet.Retag(out, &f, &l2, vnet.TagEdit{Op: vnet.TagPush, TCI: 1}, &edited)
	got := &out.Frames[0]
	if n := len(got.Head) - vnet.VLANLen; len(got.Body) != 1 || &got.Body[0][0] != &f.Head[n] {
		t.Errorf("%d pieces behind %d bytes", len(got.Body), n)
	}
}

// FuzzRetag: whatever Check accepts is edited as bytes are, or refused.
func FuzzRetag(f *testing.F) {
	for _, tags := range [][]uint16{nil, {10}, {0xa000, 7}} {
		fr := vnettest.Super(vnettest.Spec{Payload: vnettest.Pattern(1200), GSOSize: 500, Tags: tags})
		data := make([]byte, vnet.HeaderLen)
		fr.Hdr.Encode(data)
		for op := range uint8(vnet.NumTagOps) {
			f.Add(fr.AppendTo(data), op, uint16(0x600a))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, op uint8, tci uint16) {
		if len(data) < vnet.HeaderLen {
			return
		}
		e := vnet.TagEdit{Op: vnet.TagOp(op) % vnet.NumTagOps, TCI: tci}
		var h vnet.Header
		h.Decode(data)
		b := data[vnet.HeaderLen:]
		fr := vnettest.Scatter(vnet.Frame{Hdr: h, Head: b}, min(len(b), vnet.MaxHeaders))
		var l2, edited vnet.L2
		if fr.Check(&l2) != vnet.Keep || e.Op == vnet.TagKeep || e.Op != vnet.TagPush && l2.Tags == 0 {
			return
		}
		out := vnet.NewBatch(1, vnet.MaxHeaders+vnet.VLANLen, len(fr.Body)+1)
		if vnet.Retag(out, &fr, &l2, e, &edited) != vnet.Keep {
			return
		}
		want := bytes.Clone(b[:12])
		switch e.Op {
		case vnet.TagPush:
			want = append(want, 0x81, 0, byte(tci>>8), byte(tci))
			want = append(want, b[12:]...)
		case vnet.TagPop:
			want = append(want, b[16:]...)
		case vnet.TagSet:
			want = append(want, b[12], b[13], byte(tci>>8), byte(tci))
			want = append(want, b[16:]...)
		}
		got := &out.Frames[0]
		if !bytes.Equal(got.AppendTo(nil), want) {
			t.Fatalf("got  %x\nwant %x", got.AppendTo(nil), want)
		}
		moved := len(want) - len(b)
		if h.Flags&vnet.NeedsCsum != 0 && int(got.Hdr.CsumStart) != int(h.CsumStart)+moved {
			t.Fatalf("csum_start %d was %d", got.Hdr.CsumStart, h.CsumStart)
		}
		if got.Hdr.GSO == vnet.GSONone && got.Len() <= vnet.MaxFrame {
			var again vnet.L2
			if d := got.Check(&again); d != vnet.Keep || again != edited {
				t.Fatalf("%v, %+v, want %+v", d, again, edited)
			}
		}
	})
}
