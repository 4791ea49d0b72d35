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

// needJumbo skips t on a kernel that is no oracle for the jumbo option.
func needJumbo(t *testing.T, k *kernel) {
	t.Helper()
	if k.copiesJumbo(t) {
		t.Skip("this kernel copies the jumbo option into every segment")
	}
}

// copiesJumbo reports whether the kernel copies the jumbo option into every segment:
// from Linux 7.0 on it is an option like any other.
func (k *kernel) copiesJumbo(t *testing.T) bool {
	t.Helper()
	packets := k.packets(t, vnettest.Super(tcp(100000, 1000, family(true))))
	if len(packets) == 0 {
		t.Fatal("the kernel sends nothing of a packet with a jumbo option")
	}
	const nextHeader = 6
	return packets[0][vnet.EthLen+nextHeader] == vnet.ProtoHopByHop
}

// TestSegmentBig cuts frames up to the longest. None has between 516097 and 520192
// bytes: a tap never finds memory for those (measured on 6.18).
func TestSegmentBig(t *testing.T) {
	const ecn, ending = vnettest.CWR | vnettest.ECE, vnettest.FIN | vnettest.PSH
	k := newKernel(t)
	for _, b := range bigForms {
		t.Run(b.name, func(t *testing.T) {
			if b.form == vnet.FormHBH {
				needJumbo(t, k)
			}
			var rules []rule
			add := func(name string, s vnettest.Spec, tag ...uint16) {
				s = with(s, family(b.v6), form(b.form), tags(tag...))
				rules = append(rules, rule{name: name, spec: s})
			}
			for _, tag := range tagged {
				s := tcp(200001, 1448, flags(ecn|ending))
				if !jumboIsNoOracle(with(s, family(b.v6), form(b.form), tags(tag.tags...))) {
					add(tag.name, s, tag.tags...)
				}
			}
			add("IDs and sequence numbers wrap", tcp(150000, 1400, id(0xfff0), seq(0xffff0000)))
			add("without NEEDS_CSUM", tcp(150000, 1400, csum(vnettest.Full)))
			add("no options", tcp(150000, 1400, tcpOptions(nil)))
			add("small segments", tcp(300000, 50))
			add("great segments", tcp(500000, 65000))
			for _, n := range []int{65600, 131072, 262143, 389119, 516096, 524000, vnet.MaxFrame} {
				name := fmt.Sprintf("frame of %d bytes", n)
				model := vnettest.Super(tcp(100000, 1448, family(b.v6), form(b.form)))
				headers := model.Len() - 100000
				add(name, tcp(n-headers, 1448))
			}
			sameAll(t, k, rules)
		})
	}
}

// formTags are the tags behind which the jumbo option is an oracle.
var formTags = tagged[:3]

func TestFormsMakeEqualSegments(t *testing.T) {
	k := newKernel(t)
	needJumbo(t, k)
	for _, tag := range formTags {
		s := tcp(200001, 1440, family(true), tags(tag.tags...))
		jumbo := k.packets(t, vnettest.Super(s))
		plain := k.packets(t, vnettest.Super(with(s, form(vnet.FormPlain))))
		same(t, tag.name+": the kernel's segments of the plain form", plain, jumbo)
	}
}

func TestReformKeepsTheSegments(t *testing.T) {
	k := newKernel(t)
	needJumbo(t, k)
	for _, from := range []vnet.Form{vnet.FormHBH, vnet.FormPlain} {
		for _, to := range []vnet.Form{vnet.FormHBH, vnet.FormPlain} {
			t.Run(fmt.Sprintf("%v to %v", from, to), func(t *testing.T) {
				for _, tag := range formTags {
					s := tcp(200001, 1440, family(true), form(from), tags(tag.tags...))
					f := vnettest.Super(s)
					o := reform(t, &f, to)
					answers := k.wire(t, f, o)
					want := answered(t, []vnet.Frame{f}, answers[:1])
					got := answered(t, []vnet.Frame{o}, answers[1:])
					same(t, tag.name+": the kernel's segments", got, want)
					same(t, tag.name+": Segment", finish(t, o), want)
				}
			})
		}
	}
}

// reform is f in another form.
func reform(t *testing.T, f *vnet.Frame, form vnet.Form) vnet.Frame {
	t.Helper()
	_, p, d := parse(f)
	out := newBatch(f)
	if d == vnet.Keep {
		d = offload.Reform(out, f, &p, form)
	}
	if d != vnet.Keep {
		t.Fatalf("dropped: %v", d)
	}
	o := out.Frames[0].Clone()
	_, p, _ = parse(&o)
	if got := offload.BigForm(&o, &p); got != form {
		t.Fatalf("the form is %v, want %v", got, form)
	}
	return o
}
