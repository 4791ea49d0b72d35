package offload

import (
	"encoding/binary"
	"testing"

	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// crc32c is the checksum of RFC 9260, appendix A, bit by bit.
func crc32c(b []byte) uint32 {
	crc := ^uint32(0)
	for _, c := range b {
		crc ^= uint32(c)
		for range 8 {
			odd := crc&1 != 0
			crc >>= 1
			if odd {
				crc ^= 0x82f63b78
			}
		}
	}
	return ^crc
}

// TestCRC32cReference holds the reference against the check value of CRC-32/ISCSI.
func TestCRC32cReference(t *testing.T) {
	if got := crc32c([]byte("123456789")); got != 0xe3069283 {
		t.Fatalf("%#x, want 0xe3069283", got)
	}
}

// sctpFrame is a tagged SCTP packet over IPv4 that needs its checksum, with
// something where that goes.
func sctpFrame() vnet.Frame {
	s := vnettest.Spec{Tags: []uint16{7}, Csum: vnettest.Zero, Payload: vnettest.Pattern(333)}
	f := vnettest.Super(s)
	const l3 = vnet.EthLen + vnet.VLANLen
	f.Head[l3+9] = vnet.ProtoSCTP
	binary.BigEndian.PutUint32(f.Head[l3+vnet.IPv4Len+vnet.SCTPCsumOffset:], 0xdeadbeef)
	f.Hdr = vnet.Header{Flags: vnet.NeedsCsum, CsumStart: l3 + vnet.IPv4Len, CsumOffset: vnet.SCTPCsumOffset}
	return f
}

// completeAll runs Complete on f in several scatterings and compares with want.
func completeAll(t *testing.T, f vnet.Frame, want []byte) {
	t.Helper()
	n := f.Len()
	head := int(f.Hdr.CsumStart) + int(f.Hdr.CsumOffset) + 4
	for _, f := range []vnet.Frame{
		f,
		vnettest.Scatter(f, min(n, head)),
		vnettest.Scatter(f, min(n, head+1), min(3, max(0, n-head-1))),
	} {
		var l2 vnet.L2
		if d := f.Check(&l2); d != vnet.Keep {
			t.Fatalf("Check: %v", d)
		}
		before := f.AppendTo(nil)
		out := vnet.NewBatch(1, vnet.MaxHeaders, len(f.Body)+1)
		if d := Complete(out, &f, &l2); d != vnet.Keep {
			t.Fatalf("Complete: %v", d)
		}
		o := &out.Frames[0]
		if d := diff(o.AppendTo(nil), want); d != "equal" {
			t.Error(d)
		}
		if o.Hdr.Flags != 0 || o.Hdr.GSO != 0 || int(o.Hdr.HdrLen) != len(o.Head) {
			t.Errorf("header %+v with a head of %d bytes", o.Hdr, len(o.Head))
		}
		if d := diff(f.AppendTo(nil), before); d != "equal" {
			t.Errorf("the received frame was written to: %s", d)
		}
	}
}

func TestComplete(t *testing.T) {
	for _, s := range []vnettest.Spec{
		{Payload: vnettest.Pattern(1448)},
		{Payload: vnettest.Pattern(1447), Tags: []uint16{1, 2}, TCPOptions: vnettest.Timestamps},
		{V6: true, Payload: vnettest.Pattern(1001), Ext: []vnettest.Ext{vnettest.Routing}},
		{UDP: true, Payload: vnettest.Pattern(77), IPOptions: vnettest.Pattern(40)},
		{UDP: true, V6: true, Payload: vnettest.Pattern(1)},
		{UDP: true},
	} {
		f := vnettest.Super(s)
		s.Csum = vnettest.Full
		want := vnettest.Super(s)
		completeAll(t, f, want.Head)
	}
}

// TestFieldP18DHCPOffer: the frame that a DHCP client with a raw socket gets.
func TestFieldP18DHCPOffer(t *testing.T) {
	s := vnettest.Spec{UDP: true, Payload: vnettest.Pattern(330 - 14 - 20 - 8)}
	f := vnettest.Super(s)
	s.Csum = vnettest.Full
	want := vnettest.Super(s)
	for _, f := range []*vnet.Frame{&f, &want} {
		binary.BigEndian.PutUint16(f.Head[34:], 67)
		binary.BigEndian.PutUint16(f.Head[36:], 68)
	}
	f.Hdr.HdrLen = 0
	if hdr := (vnet.Header{Flags: 1, CsumStart: 34, CsumOffset: 6}); f.Hdr != hdr || f.Len() != 330 {
		t.Fatalf("built %+v and %d bytes", f.Hdr, f.Len())
	}
	binary.BigEndian.PutUint16(want.Head[40:], 0)
	pseudo := append([]byte{}, want.Head[26:34]...)
	pseudo = append(pseudo, 0, vnet.ProtoUDP, want.Head[38], want.Head[39])
	binary.BigEndian.PutUint16(want.Head[40:], ^vnettest.Sum(append(pseudo, want.Head[34:]...)))
	completeAll(t, f, want.Head)
}

// TestCompleteStoresNoZero: skb_checksum_help stores CSUM_MANGLED_0, for TCP too.
func TestCompleteStoresNoZero(t *testing.T) {
	for _, udp := range []bool{false, true} {
		s := vnettest.Spec{UDP: udp, Payload: vnettest.Pattern(100)}
		at := csumAt(s)
		s.Csum = vnettest.Full
		full := vnettest.Super(s)
		add16(s.Payload, 50, binary.BigEndian.Uint16(full.Head[at:]))
		want := vnettest.Super(s)
		binary.BigEndian.PutUint16(want.Head[at:], 0xffff)
		s.Csum = vnettest.Seed
		completeAll(t, vnettest.Super(s), want.Head)
	}
}

// TestCompleteAnyInternetChecksum: csum_start and csum_offset alone say what to
// do, also where they are odd.
func TestCompleteAnyInternetChecksum(t *testing.T) {
	for _, c := range []struct{ start, offset int }{{14, 0}, {34, 2}, {35, 3}, {35, 4}, {54, 8}, {77, 21}, {98, 0}} {
		f := vnet.Frame{Head: vnettest.Pattern(100)}
		f.Head[12], f.Head[13] = 0x88, 0xb5 // IEEE 802's local experimental EtherType
		f.Hdr = vnet.Header{Flags: vnet.NeedsCsum, CsumStart: uint16(c.start), CsumOffset: uint16(c.offset)}
		want := append([]byte{}, f.Head...)
		binary.BigEndian.PutUint16(want[c.start+c.offset:], ^vnettest.Sum(want[c.start:]))
		completeAll(t, f, want)
	}
}

// TestCompleteTakesNothingElseForSCTP: the offset alone does not make a CRC32c.
func TestCompleteTakesNothingElseForSCTP(t *testing.T) {
	other := sctpFrame()
	other.Head[vnet.EthLen+vnet.VLANLen+9] = 99 // any private encryption scheme (IANA)
	inner := sctpFrame()
	inner.Hdr.CsumStart += 12
	for _, f := range []vnet.Frame{other, inner} {
		want := append([]byte{}, f.Head...)
		start := int(f.Hdr.CsumStart)
		binary.BigEndian.PutUint16(want[start+8:], ^vnettest.Sum(want[start:]))
		completeAll(t, f, want)
	}
}

func TestCompleteSCTP(t *testing.T) {
	f := sctpFrame()
	want := append([]byte{}, f.Head...)
	packet := want[f.Hdr.CsumStart:]
	binary.LittleEndian.PutUint32(packet[8:], 0)
	binary.LittleEndian.PutUint32(packet[8:], crc32c(packet))
	completeAll(t, f, want)
}

// TestCompleteReasons: what cannot be completed is dropped by name.
func TestCompleteReasons(t *testing.T) {
	needs := func(n, start, offset int) vnet.Frame {
		f := vnet.Frame{Head: vnettest.Pattern(n)}
		f.Hdr = vnet.Header{Flags: vnet.NeedsCsum, CsumStart: uint16(start), CsumOffset: uint16(offset)}
		return f
	}
	short := sctpFrame()
	short.Head = short.Head[:int(short.Hdr.CsumStart)+10]
	for name, c := range map[string]struct {
		f    vnet.Frame
		want vnet.Drop
	}{
		"ends at MaxHeaders":   {needs(2000, 1000, 22), vnet.Keep},
		"ends behind it":       {needs(2000, 1000, 23), vnet.DropHeadersTooLong},
		"far behind it":        {needs(200000, 0xffff, 0xffff), vnet.DropHeadersTooLong},
		"SCTP without its end": {short, vnet.DropBadCsum},
	} {
		var l2 vnet.L2
		if d := c.f.Check(&l2); d != vnet.Keep {
			t.Fatalf("%s: Check: %v", name, d)
		}
		out := vnet.NewBatch(1, vnet.MaxHeaders, len(c.f.Body)+1)
		if d := Complete(out, &c.f, &l2); d != c.want {
			t.Errorf("%s: %v, want %v", name, d, c.want)
		}
		if len(out.Frames) != map[bool]int{true: 1}[c.want == vnet.Keep] {
			t.Errorf("%s: %d frames", name, len(out.Frames))
		}
	}
}

// TestCompleteSCTPInATunnel: the kernel leaves the checksum of an SCTP packet in VXLAN to
// a device that says that it can do it, as a veth does.
func TestCompleteSCTPInATunnel(t *testing.T) {
	for _, outer6 := range []bool{false, true} {
		for _, inner6 := range []bool{false, true} {
			inner := vnettest.Super(vnettest.Spec{V6: inner6, Payload: vnettest.Pattern(333)})
			protocol := map[bool]int{false: 9, true: 6}[inner6]
			inner.Head[vnet.EthLen+protocol] = vnet.ProtoSCTP
			f := vnettest.Super(vnettest.Spec{
				V6: outer6, UDP: true, Csum: vnettest.Zero,
				Payload: append(vnettest.Pattern(8), inner.Head...), // VXLAN
			})
			start := f.Len() - inner.Len() + int(inner.Hdr.CsumStart)
			f.Hdr = vnet.Header{
				Flags: vnet.NeedsCsum, CsumStart: uint16(start), CsumOffset: vnet.SCTPCsumOffset,
			}
			want := append([]byte{}, f.Head...)
			binary.LittleEndian.PutUint32(want[start+8:], 0)
			binary.LittleEndian.PutUint32(want[start+8:], crc32c(want[start:]))
			completeAll(t, f, want)
		}
	}
}
