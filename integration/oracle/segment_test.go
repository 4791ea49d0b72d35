package oracle_test

import (
	"bytes"
	"testing"

	"sluice/vnet"
	"sluice/vnet/vnettest"
)

func TestSegmentIsWhatTheKernelMakes(t *testing.T) {
	k := newKernel(t)
	for _, fam := range families {
		t.Run(fam.name, func(t *testing.T) {
			rules := rules(fam.v6)
			if fam.v6 && since(6, 6) && k.copiesJumbo(t) {
				for i := range rules {
					rules[i].spec.Form = vnet.FormPlain
				}
			}
			sameAll(t, k, rules)
		})
	}
}

// leastGSOSize is what some kernels raise a smaller gso_size of TCP to (measured on
// Debian's 6.1.0-57 and 6.12.117; 6.18.44 does not).
const leastGSOSize = 8

// sameAll compares what package offload makes of each rule's frame with what the
// kernel makes of it.
func sameAll(t *testing.T, k *kernel, rules []rule) {
	t.Helper()
	asked := make([]vnet.Frame, len(rules))
	for i, r := range rules {
		asked[i] = r.asked()
	}
	for i, a := range k.wire(t, asked...) {
		t.Run(rules[i].name, func(t *testing.T) {
			want := answered(t, asked[i:i+1], []answer{a})
			if s := rules[i].spec; !s.UDP && s.GSOSize < leastGSOSize &&
				len(want) == (len(s.Payload)+leastGSOSize-1)/leastGSOSize {
				t.Skipf("this kernel raises TCP's gso_size of %d to %d", s.GSOSize, leastGSOSize)
			}
			same(t, "package offload", finish(t, rules[i].frame()), want)
		})
	}
}

// TestZeroSumsAreZero guards the rules that rely on zeroSums: the kernel's packets
// show that there was a checksum of 0.
func TestZeroSumsAreZero(t *testing.T) {
	k := newKernel(t)
	for _, c := range []struct {
		name string
		spec vnettest.Spec
		want []byte
	}{
		{"TCP", tcp(5000, 1000), []byte{0, 0}},
		{"UDP", udp(5000, 1000), []byte{0xff, 0xff}},
	} {
		f := vnettest.Super(zeroSums(c.spec))
		at := int(f.Hdr.CsumStart) + int(f.Hdr.CsumOffset)
		packets := k.packets(t, f)
		if len(packets) != 5 {
			t.Fatalf("%s: %d packets, want 5", c.name, len(packets))
		}
		for i, p := range packets[:4] {
			if got := p[at : at+2]; !bytes.Equal(got, c.want) {
				t.Errorf("%s: packet %d has checksum %x, want %x", c.name, i, got, c.want)
			}
		}
	}
}
