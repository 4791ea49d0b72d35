package oracle_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// TestWrongSeedIsAsGoodAsARightOne: whatever the checksum field holds, the result is what the
// kernel makes of the frame with the right field. With a wrong field the kernel makes the same
// except for the checksums, since it adjusts the field.
func TestWrongSeedIsAsGoodAsARightOne(t *testing.T) {
	k := newKernel(t)
	for _, fam := range families {
		for name, s := range map[string]vnettest.Spec{
			"TCP":             tcp(60001, 1448),
			"BIG TCP":         tcp(200001, 1448, form(vnet.FormPlain)),
			"UDP":             udp(60001, 1400),
			"one TCP segment": tcp(1000, 1448, tcpOptions(nil)),
			"one UDP segment": udp(1000, 1400),
		} {
			t.Run(fam.name+"/"+name, func(t *testing.T) {
				right := vnettest.Super(with(s, family(fam.v6)))
				at := int(right.Hdr.CsumStart) + int(right.Hdr.CsumOffset)
				for _, seed := range seeds(&right, at) {
					wrong := right.Clone()
					put16(&wrong, at, seed.field)
					answers := k.wire(t, right, wrong)
					want := answered(t, []vnet.Frame{right}, answers[:1])
					same(t, seed.name, finish(t, wrong), want)
					for _, c := range []cut{
						{65535, vnet.MaxSegments, vnet.FormNone},
						{vnet.MaxFrame, 3, vnet.FormNone},
					} {
						made := chunks(t, &wrong, c)
						what := seed.name + ", in chunks"
						same(t, what, finish(t, made...), want)
						same(t, what+": the kernel's segments", k.packets(t, made...), want)
					}
					kernel := answered(t, []vnet.Frame{wrong}, answers[1:])
					same(t, seed.name+", checksums apart",
						withoutChecksum(kernel, at), withoutChecksum(want, at))
				}
			})
		}
	}
}

// seed is the content of a checksum field.
type seed struct {
	name  string
	field uint16
}

// seeds are those that senders leave instead of the right one of f, which is at offset at.
func seeds(f *vnet.Frame, at int) []seed {
	length := f.Len() - network(f).L4
	right := binary.BigEndian.Uint16(f.Head[at:])
	other := func(n int) uint16 { return vnettest.Reseed(right, length, n) }
	return []seed{
		{"zero", 0},
		{"anything", 0x1234},
		{"without the length", other(0)},
		{"the length of a segment", other(1480)},
		{"the low 16 bits of the length", other(length & 0xffff)},
	}
}

// withoutChecksum are the packets with a checksum of 0 at at.
func withoutChecksum(packets [][]byte, at int) (all [][]byte) {
	for _, p := range packets {
		p = bytes.Clone(p)
		p[at], p[at+1] = 0, 0
		all = append(all, p)
	}
	return all
}
