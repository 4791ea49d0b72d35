package oracle_test

import (
	"fmt"
	"testing"

	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// completions are frames without GSO type; most ask for their checksum.
func completions(v6 bool, tag []uint16) (rules []rule) {
	add := func(name string, s vnettest.Spec, edits ...func(*vnet.Frame)) {
		s.GSOSize = 0
		rules = append(rules, rule{name, with(s, family(v6), tags(tag...)), edits})
	}
	csumAt := func(start, offset int) func(*vnet.Frame) {
		return func(f *vnet.Frame) {
			f.Hdr.CsumStart, f.Hdr.CsumOffset = uint16(start), uint16(offset)
		}
	}
	for _, n := range []int{0, 1, 2, 3, 1447, 1448, 9001, 60001} {
		add(fmt.Sprintf("TCP, payload %d", n), tcp(n, 0))
		add(fmt.Sprintf("UDP, payload %d", n), udp(n, 0))
	}
	for name, s := range map[string]vnettest.Spec{"TCP": tcp(1001, 1000), "UDP": udp(1001, 1000)} {
		s = zeroSums(with(s, family(v6)))
		s.Payload = s.Payload[:1000] // the segment whose checksum is 0
		add(name+": a checksum of 0 is sent as 0xffff", s)
	}
	add("a wrong seed stays wrong", tcp(1000, 0), atL4(vnet.TCPCsumOffset, 0x1234))
	add("a wrong UDP length is of no account", udp(1000, 0), atL4(udpLen, 77))
	add("UDP without a checksum stays so", udp(1000, 0, csum(vnettest.Zero)))
	add("a full checksum stays", tcp(1000, 0, csum(vnettest.Full)))
	add("DATA_VALID keeps a wrong checksum", tcp(1000, 0, csum(vnettest.Zero)), dataValid)
	add("any start and offset", tcp(1000, 0), csumAt(133, 101))
	add("a checksum at the start of what it covers", tcp(1000, 0), csumAt(133, 0))
	add("a checksum at the end of the frame", tcp(100, 0), func(f *vnet.Frame) {
		f.Hdr.CsumOffset = uint16(f.Len() - 2 - int(f.Hdr.CsumStart))
	})
	add("a checksum over itself and one byte", tcp(100, 0), func(f *vnet.Frame) {
		f.Hdr.CsumStart, f.Hdr.CsumOffset = uint16(f.Len()-3), 0
	})
	add("hdr_len 0", tcp(1000, 0), hdrLen(none))
	add("hdr_len of the whole frame", tcp(1000, 0), hdrLen(all))
	if v6 {
		add("extension headers",
			udp(1000, 0, ext(vnettest.HopByHop, vnettest.Routing, vnettest.DestOpts)))
	} else {
		add("IHL 15", udp(1000, 0, ipOptions(40)))
	}
	return rules
}

func TestCompleteIsWhatTheKernelMakes(t *testing.T) {
	k := newKernel(t)
	for _, fam := range families {
		for _, tag := range tagged {
			t.Run(fam.name+"/"+tag.name, func(t *testing.T) {
				sameAll(t, k, completions(fam.v6, tag.tags))
			})
		}
	}
}

// TestCompleteOfPiecesIsWhatTheKernelMakes has payloads in several pieces, of odd
// lengths.
func TestCompleteOfPiecesIsWhatTheKernelMakes(t *testing.T) {
	k := newKernel(t)
	for _, s := range []vnettest.Spec{tcp(9001, 0), udp(9001, 0), tcp(9001, 0, family(true))} {
		f := vnettest.Super(s)
		want := k.packets(t, f)
		for _, pieces := range [][]int{
			{1}, {1, 1, 1}, {2, 3, 5}, {3001}, {3000, 2001}, {0, 7, 0, 7},
		} {
			scattered := vnettest.Scatter(f, vnet.MaxHeaders+1, pieces...)
			same(t, fmt.Sprint(pieces), finish(t, scattered), want)
		}
	}
}
