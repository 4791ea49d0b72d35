package oracle_test

import (
	"fmt"
	"testing"

	"sluice/offload"
	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// bigForms are the ways to say that a packet is longer than 64 KiB, by family.
var bigForms = []struct {
	name string
	v6   bool
	form vnet.Form
}{
	{"IPv4 total length 0", false, vnet.FormNone},
	{"IPv6 jumbo option", true, vnet.FormHBH},
	{"IPv6 payload length 0", true, vnet.FormPlain},
}

// needJumbo skips t on a kernel that is no oracle for the jumbo option: from Linux
// 7.0 on it is an option like any other, and copied into every segment.
func needJumbo(t *testing.T, k *kernel) {
	t.Helper()
	f := vnettest.Super(with(tcp(100000, 1000), func(s *vnettest.Spec) { s.V6 = true }))
	packets := k.packets(t, f)
	if len(packets) == 0 {
		t.Fatal("the kernel sends nothing of a packet with a jumbo option")
	}
	if nextHeader := packets[0][vnet.EthLen+6]; nextHeader == vnet.ProtoHopByHop {
		t.Skip("this kernel copies the jumbo option into every segment")
	}
}

// payload is how much of it makes a frame of n bytes of s, whose own payload is of
// no account.
func payload(s vnettest.Spec, n int) int {
	s.Payload = nil
	f := vnettest.Super(s)
	n -= f.Len()
	if s.V6 && s.Form == vnet.FormHBH {
		n -= vnet.JumboHBHLen
	}
	return n
}

// TestSegmentBig cuts frames up to the longest. Between 516097 and 520192 bytes
// there is none: a tap never finds memory for those (measured on 6.18).
func TestSegmentBig(t *testing.T) {
	k := newKernel(t)
	for _, b := range bigForms {
		t.Run(b.name, func(t *testing.T) {
			if b.form == vnet.FormHBH {
				needJumbo(t, k)
			}
			var all []rule
			add := func(name string, s vnettest.Spec) {
				s.V6, s.Form = b.v6, b.form
				for _, tag := range tagged {
					s.Tags = tag.tags
					if !jumboIsNoOracle(s) {
						all = append(all, rule{name: name + "/" + tag.name, spec: s})
					}
				}
			}
			add("sequence numbers beyond the 46th segment", tcp(200001, 1448))
			add("flags and ECN", with(tcp(150000, 1400), func(s *vnettest.Spec) {
				s.TCPFlags |= vnettest.CWR | vnettest.ECE | vnettest.PSH | vnettest.FIN
			}))
			add("IDs and sequence numbers wrap", with(tcp(150000, 1400), func(s *vnettest.Spec) {
				s.ID, s.Seq = 0xfff0, 0xffff0000
			}))
			add("without NEEDS_CSUM", with(tcp(150000, 1400), func(s *vnettest.Spec) { s.Csum = vnettest.Full }))
			add("no options", with(tcp(150000, 1400), func(s *vnettest.Spec) { s.TCPOptions = nil }))
			for _, n := range []int{65536 + 14, 131072, 262143, 389119, 516096, 524000, vnet.MaxFrame} {
				s := tcp(0, 1448)
				s.V6, s.Form = b.v6, b.form
				s.Payload = vnettest.Pattern(payload(s, n))
				if f := vnettest.Super(s); f.Len() != n {
					t.Fatalf("built %d bytes, want %d", f.Len(), n)
				}
				all = append(all, rule{name: fmt.Sprintf("frame of %d bytes", n), spec: s})
			}
			// 6000 segments, 92 at a time of which 16 bits could not count.
			add("small segments", tcp(300000, 50))
			all = append(all, rule{name: "great segments", spec: with(tcp(500000, 65000), func(s *vnettest.Spec) {
				s.V6, s.Form = b.v6, b.form
			})})
			sameAll(t, k, all)
		})
	}
}

// TestFormsMakeEqualSegments asks the kernel about one packet in both forms of IPv6.
func TestFormsMakeEqualSegments(t *testing.T) {
	k := newKernel(t)
	needJumbo(t, k)
	s := with(tcp(200001, 1440), func(s *vnettest.Spec) { s.V6 = true })
	for _, tag := range tagged[:3] { // behind two tags the option is no oracle
		t.Run(tag.name, func(t *testing.T) {
			s.Tags = tag.tags
			jumbo := vnettest.Super(s)
			plain := vnettest.Super(with(s, func(s *vnettest.Spec) { s.Form = vnet.FormPlain }))
			same(t, "the kernel's segments of the plain form", k.packets(t, plain), k.packets(t, jumbo))
		})
	}
}

func TestReformKeepsTheSegments(t *testing.T) {
	k := newKernel(t)
	needJumbo(t, k)
	for _, from := range []vnet.Form{vnet.FormHBH, vnet.FormPlain} {
		for _, to := range []vnet.Form{vnet.FormHBH, vnet.FormPlain} {
			for _, tag := range tagged[:3] { // behind two tags the option is no oracle
				t.Run(fmt.Sprintf("%v to %v/%s", from, to, tag.name), func(t *testing.T) {
					f := vnettest.Super(with(tcp(200001, 1440), func(s *vnettest.Spec) {
						s.V6, s.Form, s.Tags = true, from, tag.tags
					}))
					_, p, d := parse(&f)
					out := newBatch(&f)
					if d == vnet.Keep {
						d = offload.Reform(out, &f, &p, to)
					}
					if d != vnet.Keep {
						t.Fatalf("dropped: %v", d)
					}
					want := k.packets(t, f)
					same(t, "the kernel's segments of the other form", k.packets(t, out.Frames[0]), want)
					same(t, "Segment of the other form", finish(t, out.Frames[0]), want)
				})
			}
		}
	}
}

// cut is how an egress has a super-packet cut.
type cut struct {
	maxLen, maxSegs int
	form            vnet.Form
}

// cuts are limits at 64 KiB and its neighbours, off it, below two segments, and by
// count; as bytes of the longest frame, which is shorter than gso_max_size.
func cuts(form vnet.Form) []cut {
	return []cut{
		{65535, vnet.MaxSegments, form},
		{65534, vnet.MaxSegments, form},
		{65535 + vnet.EthLen, vnet.MaxSegments, form},
		{65536 + vnet.EthLen, vnet.MaxSegments, form},
		{131071, vnet.MaxSegments, form},
		{vnet.MaxFrame, 100, form},
		{vnet.MaxFrame, 16, form},
		{vnet.MaxFrame, 1, form},
		{4000, vnet.MaxSegments, form},
		{1499, vnet.MaxSegments, form},
	}
}

// TestChunksMakeTheSegmentsOfTheWhole is the reason for being of package offload:
// whoever cuts the chunks, package offload or the kernel, makes what the kernel
// makes of the super-packet itself.
func TestChunksMakeTheSegmentsOfTheWhole(t *testing.T) {
	k := newKernel(t)
	for _, b := range bigForms {
		t.Run(b.name, func(t *testing.T) {
			if b.form == vnet.FormHBH {
				needJumbo(t, k)
			}
			forms := []vnet.Form{b.form}
			if b.v6 {
				forms = append(forms, vnet.FormNone)
			}
			wholes := []rule{
				{name: "plain", spec: tcp(400000, 1448)},
				{name: "flags and wraps", spec: with(tcp(200001, 1401), func(s *vnettest.Spec) {
					s.TCPFlags |= vnettest.CWR | vnettest.ECE | vnettest.PSH | vnettest.FIN
					s.ID, s.Seq = 0xfff0, 0xffff0000
				})},
				{name: "below 64 KiB", spec: tcp(60001, 1448)},
				{name: "without NEEDS_CSUM", spec: with(tcp(200001, 1448), func(s *vnettest.Spec) { s.Csum = vnettest.Full })},
				{name: "a tag", spec: with(tcp(200001, 1448), func(s *vnettest.Spec) { s.Tags = []uint16{0x2064} })},
				{name: "great segments", spec: tcp(200001, 30001)},
				{name: "a wrong seed", spec: tcp(200001, 1448), edits: []func(*vnet.Frame){atL4(vnet.TCPCsumOffset, 0x1234)}},
			}
			if b.form != vnet.FormHBH {
				wholes = append(wholes, rule{name: "two tags", spec: with(tcp(200001, 1448), func(s *vnettest.Spec) {
					s.Tags = []uint16{100, 0xe0c8}
				})})
			}
			switch {
			case b.form == vnet.FormPlain:
				// The kernel takes only a jumbo option that TCP follows for one.
				wholes = append(wholes, rule{name: "extension headers", spec: with(tcp(200001, 1400), func(s *vnettest.Spec) {
					s.Ext = []vnettest.Ext{vnettest.Routing, vnettest.DestOpts}
				})})
			case !b.v6:
				wholes = append(wholes, rule{name: "IHL 15", spec: with(tcp(200001, 1400), func(s *vnettest.Spec) {
					s.IPOptions = options(40)
				})})
			}
			for _, r := range wholes {
				r.spec.V6, r.spec.Form = b.v6, b.form
				t.Run(r.name, func(t *testing.T) {
					f := r.frame()
					for _, form := range forms {
						sameChunks(t, k, &f, cuts(form))
					}
				})
			}
		})
	}
}

func TestUDPChunksMakeTheSegmentsOfTheWhole(t *testing.T) {
	k := newKernel(t)
	for name, v6 := range families {
		t.Run(name, func(t *testing.T) {
			for _, s := range []vnettest.Spec{
				udp(60001, 1400), udp(128, 1),
				zeroSums(with(udp(20000, 1000), func(s *vnettest.Spec) { s.V6 = v6 })),
				with(udp(20000, 1000), func(s *vnettest.Spec) { s.ID, s.Tags = 0xfffe, []uint16{100, 200} }),
			} {
				s.V6 = v6
				f := vnettest.Super(s)
				sameChunks(t, k, &f, []cut{
					{65535, vnet.MaxSegments, vnet.FormNone},
					{30000, vnet.MaxSegments, vnet.FormNone},
					{vnet.MaxFrame, 7, vnet.FormNone},
					{3000, vnet.MaxSegments, vnet.FormNone},
					{1000, vnet.MaxSegments, vnet.FormNone},
				})
			}
		})
	}
}

// sameChunks cuts f in several ways and compares what becomes of the chunks.
func sameChunks(t *testing.T, k *kernel, f *vnet.Frame, cuts []cut) {
	t.Helper()
	// One capture for all: the whole first, then the chunks of each way.
	frames := []vnet.Frame{*f}
	ends := make([]int, len(cuts))
	for i, c := range cuts {
		frames = append(frames, resegment(t, f, c.maxLen, c.maxSegs, c.form)...)
		ends[i] = len(frames)
	}
	answers := k.wire(t, frames...)
	want := answered(t, frames[:1], answers[:1])
	from := 1
	for i, c := range cuts {
		chunks, answers := frames[from:ends[i]], answers[from:ends[i]]
		from = ends[i]
		what := fmt.Sprintf("%+v, %d chunks", c, len(chunks))
		for j := range chunks {
			if n := chunks[j].Len(); chunks[j].Hdr.GSO != vnet.GSONone && n > c.maxLen {
				t.Errorf("%s: chunk %d is %d bytes long", what, j, n)
			}
		}
		same(t, what+": Segment of them", finish(t, chunks...), want)
		same(t, what+": the kernel's segments of them", answered(t, chunks, answers), want)
	}
}
