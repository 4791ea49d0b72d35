package guests

import (
	"testing"

	"sluice/integration/guests/seen"
	"sluice/integration/vm"
)

// TestLimitsFollowTheGuest: offloads are switched inside the guests, with ethtool, while TCP runs
// between them. Nothing is lost, and what arrives follows. The driver cannot switch rx-checksum off
// at run time: the matrix tests that.
func TestLimitsFollowTheGuest(t *testing.T) {
	onlyFull(t)
	b := newBed(t)
	x := b.guest("a", "6.12", vm.NIC{})
	y := b.guest("b", "6.12", vm.NIC{})
	b.run()
	tcp := x.background(y.v4, quickSize)
	w := y.watch()
	isWhole := func(f seen.Frames) bool { return f.Sum().Max > wholeFrame }
	isCut := func(f seen.Frames) bool {
		s := f.Sum()
		return s.Frames > 20 && s.GSO == 0 && s.Max <= ethernetFrame
	}
	isSummed := func(f seen.Frames) bool { return isCut(f) && f.Sum().Partial == 0 }
	w.until("super-packets at first", isWhole)
	for _, step := range []struct {
		guest  *guest
		change string
		what   string
		holds  func(seen.Frames) bool
		stays  bool // from then on in every window
	}{
		{y, "rx-gro-hw off", "segments: the receiver takes no others", isCut, true},
		{y, "rx-gro-hw on", "super-packets again", isWhole, false},
		{x, "tso off", "segments: the sender sends no others", isCut, true},
		{x, "tso on", "super-packets from a sender that does", isWhole, false},
		{x, "tx off", "segments with checksums: the sender sums", isSummed, true},
		{x, "tx on tso on", "super-packets at last", isWhole, false},
		{y, "rx-gro-hw off", "segments at the end", isCut, true},
	} {
		step.guest.run("ethtool -K eth0 " + step.change)
		w.until(step.what, step.holds)
		if step.stays {
			f := w.next(3)
			if s := f.Sum(); s.Frames > 20 && !step.holds(f) {
				t.Errorf("%s: %s, and then %+v", step.change, step.what, s)
			}
		}
	}
	tcp.stop()
	w.stop()
	ports := b.stop()
	if l := ports["b"].Limits; !l.Csum || l.TSO4 || l.TSO6 || l.USO {
		t.Errorf("b's limits at the end: %+v", l)
	}
	if l := ports["a"].Limits; !l.Csum || !l.TSO4 || !l.TSO6 || !l.USO {
		t.Errorf("a's limits at the end: %+v", l)
	}
	if ports["b"].TX.Segmented == 0 {
		t.Error("Sluice itself cut nothing: the limits did not follow")
	}
	corrupt(t, b)
}
