package oracle_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"sluice/offload"
	"sluice/vnet"
)

// batchFrames is so small that the cutting of most super-packets has to be
// resumed.
const batchFrames = 7

// parse is what the switch does with a received frame before it cuts it.
func parse(f *vnet.Frame) (l2 vnet.L2, p vnet.Packet, d vnet.Drop) {
	if d = f.Check(&l2); d == vnet.Keep && f.Hdr.GSO != vnet.GSONone {
		d = vnet.Parse(f, &l2, &p)
	}
	return l2, p, d
}

func newBatch(f *vnet.Frame) *vnet.Batch {
	return vnet.NewBatch(batchFrames, batchFrames*(vnet.MaxHeaders+vnet.JumboHBHLen),
		batchFrames*(len(f.Body)+1))
}

// drain takes all frames from a Segmenter that has begun to cut f.
func drain(s *offload.Segmenter, f *vnet.Frame) (frames []vnet.Frame) {
	out := newBatch(f)
	for more := true; more; {
		out.Reset()
		more = s.Fill(out)
		for i := range out.Frames {
			frames = append(frames, out.Frames[i].Clone())
		}
	}
	return frames
}

// finish is what package offload puts on the wire for frames: super-packets are
// cut, checksums completed.
func finish(t testing.TB, frames ...vnet.Frame) (packets [][]byte) {
	t.Helper()
	for i := range frames {
		f := &frames[i]
		l2, p, d := parse(f)
		if d != vnet.Keep {
			t.Fatalf("frame %d, header %+v: dropped: %v", i, f.Hdr, d)
		}
		made := []vnet.Frame{*f}
		switch {
		case f.Hdr.GSO != vnet.GSONone:
			var s offload.Segmenter
			d = s.Segment(f, &p)
			made = drain(&s, f)
		case f.Hdr.Flags&vnet.NeedsCsum != 0:
			out := newBatch(f)
			d = offload.Complete(out, f, &l2)
			made = out.Frames
		}
		if d != vnet.Keep {
			t.Fatalf("frame %d, header %+v: dropped: %v", i, f.Hdr, d)
		}
		for j := range made {
			if h := made[j].Hdr; h.GSO != vnet.GSONone || h.Flags&vnet.NeedsCsum != 0 {
				t.Fatalf("frame %d, packet %d is not finished: header %+v", i, j, h)
			}
			packets = append(packets, made[j].AppendTo(nil))
		}
	}
	return packets
}

// same fails t where got, which what names, is not what the kernel made.
func same(t testing.TB, what string, got, kernel [][]byte) {
	t.Helper()
	if len(kernel) == 0 {
		t.Fatal("the kernel sent nothing")
	}
	if i := firstDifference(got, kernel); i >= 0 {
		t.Errorf("%s: %s\n%s", what, difference(i, got, kernel), keep(t, got, kernel))
	}
}

// firstDifference is the first packet that differs or that only one side has, or
// -1.
func firstDifference(got, kernel [][]byte) int {
	for i := range max(len(got), len(kernel)) {
		if i >= len(got) || i >= len(kernel) || !bytes.Equal(got[i], kernel[i]) {
			return i
		}
	}
	return -1
}

// difference tells how packet i differs.
func difference(i int, got, kernel [][]byte) string {
	counts := fmt.Sprintf("%d packets, the kernel made %d", len(got), len(kernel))
	if i >= len(got) || i >= len(kernel) {
		return counts + "; those that both made are equal"
	}
	g, k := got[i], kernel[i]
	at := firstByte(g, k)
	const context = 16
	show := func(b []byte) string {
		from := min(at, len(b))
		return fmt.Sprintf("%d bytes, from there %x", len(b), b[from:min(from+context, len(b))])
	}
	return fmt.Sprintf("%s; packet %d differs first at offset %d, %s:\n  got    %s\n  kernel %s",
		counts, i, at, field(k, at), show(g), show(k))
}

// firstByte is the offset of the first byte that differs or that only one side
// has.
func firstByte(a, b []byte) int {
	at := 0
	for at < min(len(a), len(b)) && a[at] == b[at] {
		at++
	}
	return at
}

// keep leaves both sides as pcap files, which outlive the test, and tells where.
func keep(t testing.TB, got, kernel [][]byte) string {
	dir, err := os.MkdirTemp("", "sluice-oracle-*")
	if err == nil {
		err = writePcap(filepath.Join(dir, "got.pcap"), got)
	}
	if err == nil {
		err = writePcap(filepath.Join(dir, "kernel.pcap"), kernel)
	}
	if err != nil {
		return fmt.Sprintf("pcap files: %v", err)
	}
	return "see got.pcap and kernel.pcap in " + dir
}

// writePcap writes a capture file (draft-ietf-opsawg-pcap) without times.
func writePcap(name string, packets [][]byte) error {
	const magic, major, minor, ethernet = 0xa1b2c3d4, 2, 4, 1
	b := binary.LittleEndian.AppendUint32(nil, magic)
	b = binary.LittleEndian.AppendUint16(b, major)
	b = binary.LittleEndian.AppendUint16(b, minor)
	b = append(b, make([]byte, 8)...)
	b = binary.LittleEndian.AppendUint32(b, vnet.MaxFrame)
	b = binary.LittleEndian.AppendUint32(b, ethernet)
	for _, p := range packets {
		b = append(b, make([]byte, 8)...) // seconds, microseconds
		b = binary.LittleEndian.AppendUint32(b, uint32(len(p)))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(p)))
		b = append(b, p...)
	}
	return os.WriteFile(name, b, 0o644)
}

// field names what lies at an offset of a packet.
func field(packet []byte, at int) string {
	decoded := gopacket.NewPacket(packet, layers.LayerTypeEthernet, gopacket.NoCopy)
	start := 0
	for _, l := range decoded.Layers() {
		n := len(l.LayerContents())
		if at < start+n {
			return fieldOf(l.LayerType(), at-start)
		}
		start += n
	}
	return fmt.Sprintf("byte %d of the payload", at-start)
}

// fieldEnds names the fields of fixed headers by the offsets of their ends.
var fieldEnds = map[gopacket.LayerType][]struct {
	end  int
	name string
}{
	layers.LayerTypeEthernet: {{6, "destination"}, {12, "source"}, {14, "type"}},
	layers.LayerTypeDot1Q:    {{2, "TCI"}, {4, "type"}},
	layers.LayerTypeIPv4: {{1, "version and IHL"}, {2, "TOS"}, {4, "total length"}, {6, "ID"},
		{8, "fragment offset"}, {9, "TTL"}, {10, "protocol"}, {12, "checksum"}, {16, "source"},
		{20, "destination"}, {60, "options"}},
	layers.LayerTypeIPv6: {{4, "version, class and flow label"}, {6, "payload length"},
		{7, "next header"}, {8, "hop limit"}, {24, "source"}, {40, "destination"}},
	layers.LayerTypeTCP: {{2, "source port"}, {4, "destination port"}, {8, "sequence number"},
		{12, "acknowledgement"}, {14, "data offset and flags"}, {16, "window"}, {18, "checksum"},
		{20, "urgent pointer"}, {60, "options"}},
	layers.LayerTypeUDP: {{2, "source port"}, {4, "destination port"}, {6, "length"},
		{8, "checksum"}},
}

func fieldOf(layer gopacket.LayerType, at int) string {
	for _, f := range fieldEnds[layer] {
		if at < f.end {
			return fmt.Sprintf("%v %s", layer, f.name)
		}
	}
	return fmt.Sprintf("byte %d of %v", at, layer)
}

// put16 edits a frame that a test has built.
func put16(f *vnet.Frame, at int, v uint16) { binary.BigEndian.PutUint16(f.Head[at:], v) }
