package offload

import (
	"bytes"
	"testing"

	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// seedFuzz gives f one frame of each kind: a header, then the frame.
func seedFuzz(add func(data []byte)) {
	for _, s := range []vnettest.Spec{
		tcp(300, 100),
		with(tcp(301, 100), func(s *vnettest.Spec) { s.V6, s.TCPFlags = true, 0xfff }),
		with(tcp(30, 1), func(s *vnettest.Spec) { s.Tags, s.IPOptions = []uint16{1, 2}, vnettest.Pattern(8) }),
		with(tcp(301, 100), func(s *vnettest.Spec) { s.Csum = vnettest.Zero }),
		with(tcp(301, 100), func(s *vnettest.Spec) {
			s.V6, s.Ext = true, []vnettest.Ext{vnettest.HopByHop, vnettest.Routing}
		}),
		with(tcp(66000, 1400), func(s *vnettest.Spec) { s.V6, s.Form = true, vnet.FormHBH }),
		tcp(66000, 1400),
		tcp(10, 100),
		{UDP: true, Payload: vnettest.Pattern(333), GSOSize: 50},
		{UDP: true, V6: true, Payload: vnettest.Pattern(70), GSOSize: 1},
	} {
		f := vnettest.Super(s)
		data := make([]byte, vnet.HeaderLen)
		f.Hdr.Encode(data)
		add(f.AppendTo(data))
	}
}

// received is the frame that data holds, as a queue would hand it over: a header,
// a head of at least MaxHeaders bytes, and a body in pieces of odd length. It
// reports false for what is dropped before it is cut.
func received(data []byte) (f vnet.Frame, p vnet.Packet, ok bool) {
	if len(data) < vnet.HeaderLen {
		return f, p, false
	}
	f.Hdr.Decode(data)
	data = data[vnet.HeaderLen:]
	head := min(len(data), vnet.MaxHeaders)
	f.Head = data[:head]
	for rest := data[head:]; len(rest) > 0; {
		n := min(len(rest), 4097)
		f.Body = append(f.Body, rest[:n])
		rest = rest[n:]
	}
	var l2 vnet.L2
	ok = f.Check(&l2) == vnet.Keep && f.Hdr.GSO != vnet.GSONone && vnet.Parse(&f, &l2, &p) == vnet.Keep
	return f, p, ok
}

// conserved fails t unless the frames hold payload, in order, at most step bytes
// each and none less but the last.
func conserved(t *testing.T, frames []vnet.Frame, payload []byte, step int) {
	t.Helper()
	for i, o := range frames {
		_, body := split(t, &o)
		if !bytes.HasPrefix(payload, body) {
			t.Fatalf("frame %d of %d holds other payload", i, len(frames))
		}
		payload = payload[len(body):]
		if len(body) > step || len(body) < step && i < len(frames)-1 {
			t.Fatalf("frame %d of %d holds %d bytes, want %d", i, len(frames), len(body), step)
		}
	}
	if len(payload) > 0 {
		t.Fatalf("%d bytes of payload are left", len(payload))
	}
}

// split is what precedes the payload of a made frame, and the payload. The headers are read again.
func split(t *testing.T, f *vnet.Frame) (headers, payload []byte) {
	t.Helper()
	var l2 vnet.L2
	var p vnet.Packet
	if d := f.Check(&l2); d != vnet.Keep {
		t.Fatalf("Check of a made frame: %v", d)
	}
	if d := vnet.ParseNetwork(f, &l2, &p); d != vnet.Keep {
		t.Fatalf("ParseNetwork of a made frame: %v", d)
	}
	n := p.L4 + vnet.UDPLen
	if p.Proto == vnet.ProtoTCP {
		n = p.L4 + int(f.Head[p.L4+12]>>4)*4
	}
	return f.Head[:n], f.Head[n:]
}

// verified fails t where the checksum of a segment is wrong. It knows packets without
// options and extension headers, and no others.
func verified(t *testing.T, segments []vnet.Frame) {
	t.Helper()
	for i := range segments {
		var l2 vnet.L2
		var p vnet.Packet
		f := &segments[i]
		f.Check(&l2)
		vnet.ParseNetwork(f, &l2, &p)
		addrs := f.Head[p.L3+ipv4Addrs:][:8]
		switch {
		case p.V6 && p.L4 == p.L3+vnet.IPv6Len:
			addrs = f.Head[p.L3+ipv6Addrs:][:32]
		case p.V6 || p.L4 != p.L3+vnet.IPv4Len:
			return
		}
		if sum := sumOf(addrs, p.Proto, f.Head[p.L4:]); sum != 0xffff {
			t.Fatalf("segment %d of %d sums to %#x", i, len(segments), sum)
		}
	}
}

func FuzzSegment(f *testing.F) {
	seedFuzz(func(data []byte) { f.Add(data) })
	f.Fuzz(func(t *testing.T, data []byte) {
		f, p, ok := received(data)
		if !ok {
			return
		}
		var s Segmenter
		if d := s.Segment(&f, &p); d != vnet.Keep {
			if d != vnet.DropTooManySegments || f.Len()-p.Payload <= vnet.MaxSegments {
				t.Fatalf("Segment: %v", d)
			}
			return
		}
		frames := drain(t, &s, &f, 64)
		conserved(t, frames, f.AppendTo(nil)[p.Payload:], int(f.Hdr.GSOSize))
		if len(frames) > 1 {
			verified(t, frames)
		}

		one := f.Clone() // the same bytes in one piece
		if d := s.Segment(&one, &p); d != vnet.Keep {
			t.Fatalf("Segment of one piece: %v", d)
		}
		sameFrames(t, drain(t, &s, &one, 7), frames)
	})
}

func FuzzResegment(f *testing.F) {
	seedFuzz(func(data []byte) {
		for form := range uint8(3) {
			f.Add(data, 1514, 65535, form)
			f.Add(data, 65535, 3, form)
			f.Add(data, 65700, 65535, form)
		}
	})
	f.Fuzz(func(t *testing.T, data []byte, maxLen, maxSegs int, form uint8) {
		f, p, ok := received(data)
		if !ok {
			return
		}
		var s Segmenter
		if d := s.Resegment(&f, &p, maxLen, maxSegs, vnet.Form(form%3)); d != vnet.Keep {
			if d != vnet.DropTooManySegments || f.Len()-p.Payload <= vnet.MaxSegments {
				t.Fatalf("Resegment: %v", d)
			}
			return
		}
		frames := drain(t, &s, &f, 64)
		payload, size := f.AppendTo(nil)[p.Payload:], int(f.Hdr.GSOSize)
		step := size
		if len(frames) > 0 {
			_, body := split(t, &frames[0])
			step = max(size, len(body))
		}
		if step%size != 0 && len(frames) > 1 {
			t.Fatalf("chunks of %d bytes, not a multiple of %d", step, size)
		}
		conserved(t, frames, payload, step)
		for i := range frames {
			c := &frames[i]
			switch super := c.Hdr.GSO != vnet.GSONone; {
			case super && c.Len() > maxLen:
				t.Fatalf("chunk %d is %d bytes long, above %d", i, c.Len(), maxLen)
			case super && (step+size-1)/size > maxSegs:
				t.Fatalf("chunks of %d segments, above %d", (step+size-1)/size, maxSegs)
			}
		}

		// Cut in two steps or in one, the wire packets are the same.
		if d := s.Segment(&f, &p); d != vnet.Keep {
			return // too many; chunks may still do
		}
		direct := heads(drain(t, &s, &f, 64))
		var steps [][]byte
		for i := range frames {
			steps = append(steps, finish(t, &frames[i])...)
		}
		offset := vnet.TCPCsumOffset
		if p.Proto == vnet.ProtoUDP {
			offset = vnet.UDPCsumOffset
		}
		l4 := p.L4
		if p.Jumbo && BigForm(&f, &p) == vnet.FormHBH && len(payload) > size {
			l4 -= vnet.JumboHBHLen
		}
		sameWire(t, steps, direct, l4+offset)
	})
}
