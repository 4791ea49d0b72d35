package offload

import (
	"testing"

	"sluice/vnet"
	"sluice/vnet/vnettest"
)

func bigIPv6(form vnet.Form, tags ...uint16) vnettest.Spec {
	s := tcp(200000, 1428)
	s.V6, s.Form, s.Tags = true, form, tags
	return s
}

func TestReform(t *testing.T) {
	for _, tags := range [][]uint16{nil, {1}, {1, 2}} {
		for _, ext := range [][]vnettest.Ext{nil, {vnettest.Routing, vnettest.DestOpts}} {
			for _, from := range []vnet.Form{vnet.FormHBH, vnet.FormPlain} {
				for _, to := range []vnet.Form{vnet.FormHBH, vnet.FormPlain} {
					s := bigIPv6(from, tags...)
					s.Ext = ext
					f := vnettest.Super(s)
					s.Form = to
					want := vnettest.Super(s)
					for _, f := range scatterings(f) {
						_, p := parse(t, &f)
						if form := BigForm(&f, &p); form != from {
							t.Fatalf("BigForm: %v, want %v", form, from)
						}
						out := newBatch(&f, 1)
						if d := Reform(out, &f, &p, to); d != vnet.Keep {
							t.Fatalf("%v to %v: %v", from, to, d)
						}
						sameFrames(t, []vnet.Frame{out.Frames[0].Clone()}, []vnet.Frame{want})
					}
				}
			}
		}
	}
}

// TestReformWithoutNeedsCsum: there is no csum_start to shift.
func TestReformWithoutNeedsCsum(t *testing.T) {
	s := bigIPv6(vnet.FormPlain)
	s.Csum = vnettest.Zero
	f := vnettest.Super(s)
	s.Form = vnet.FormHBH
	want := vnettest.Super(s)
	_, p := parse(t, &f)
	out := newBatch(&f, 1)
	if d := Reform(out, &f, &p, vnet.FormHBH); d != vnet.Keep {
		t.Fatal(d)
	}
	sameFrames(t, []vnet.Frame{out.Frames[0].Clone()}, []vnet.Frame{want})
}

func TestBigForm(t *testing.T) {
	const tcpLen = 32
	for _, c := range []struct {
		spec vnettest.Spec
		want vnet.Form
	}{
		{bigIPv6(vnet.FormPlain), vnet.FormPlain},
		{bigIPv6(vnet.FormHBH), vnet.FormHBH},
		{bigIPv6(vnet.FormHBH, 1, 2), vnet.FormHBH},
		{tcp(200000, 1448), vnet.FormNone},
		{with(bigIPv6(vnet.FormHBH), func(s *vnettest.Spec) { s.Payload = s.Payload[:65535-tcpLen] }), vnet.FormNone},
		{with(bigIPv6(vnet.FormHBH), func(s *vnettest.Spec) { s.Payload = s.Payload[:65536-tcpLen] }), vnet.FormHBH},
		{with(bigIPv6(vnet.FormPlain), func(s *vnettest.Spec) { s.Payload = s.Payload[:65536-tcpLen] }), vnet.FormPlain},
	} {
		f := vnettest.Super(c.spec)
		_, p := parse(t, &f)
		if got := BigForm(&f, &p); got != c.want {
			t.Errorf("payload %d, built as %v: %v, want %v", len(c.spec.Payload), c.spec.Form, got, c.want)
		}
	}
}

func TestReformReasons(t *testing.T) {
	frameOf := func(n int) vnettest.Spec {
		s := bigIPv6(vnet.FormPlain)
		s.Payload = vnettest.Pattern(n - vnet.EthLen - vnet.IPv6Len - 32)
		return s
	}
	hopByHop := bigIPv6(vnet.FormPlain)
	hopByHop.Ext = []vnettest.Ext{vnettest.HopByHop}
	for name, c := range map[string]struct {
		spec vnettest.Spec
		to   vnet.Form
		want vnet.Drop
	}{
		"grows beyond MaxFrame":          {frameOf(vnet.MaxFrame - 7), vnet.FormHBH, vnet.DropTooBig},
		"grows to MaxFrame":              {frameOf(vnet.MaxFrame - 8), vnet.FormHBH, vnet.Keep},
		"MaxFrame stays as is":           {frameOf(vnet.MaxFrame), vnet.FormPlain, vnet.Keep},
		"beside another hop-by-hop":      {hopByHop, vnet.FormHBH, vnet.DropTooBig},
		"another hop-by-hop stays as is": {hopByHop, vnet.FormPlain, vnet.Keep},
	} {
		f := vnettest.Super(c.spec)
		_, p := parse(t, &f)
		out := newBatch(&f, 1)
		if d := Reform(out, &f, &p, c.to); d != c.want {
			t.Errorf("%s: %v, want %v", name, d, c.want)
		}
		if len(out.Frames) != map[bool]int{true: 1}[c.want == vnet.Keep] {
			t.Errorf("%s: %d frames", name, len(out.Frames))
		}
	}
}
