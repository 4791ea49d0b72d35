package accept

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"testing"

	"sluice/integration/netns/netnstest"
	"sluice/tunio/probe"
	"sluice/vnet"
)

var reportFile = flag.String("report", "", "write the report to this file")

func TestMain(m *testing.M) { os.Exit(netnstest.Main(m)) }

// The kernel does what is expected of its release; the probe finds just that; and
// the switch carries TCP over it without a loss.
func TestAcceptance(t *testing.T) {
	found := probe.Run()
	r := Report{
		Release: found.Release,
		Probe:   fmt.Sprintf("tap %+v, packet %+v", found.Tap, found.Packet),
	}
	defer func() {
		if *reportFile == "" {
			return
		}
		text, err := json.Marshal(r)
		if err == nil {
			err = os.WriteFile(*reportFile, text, 0o600)
		}
		if err != nil {
			t.Error(err)
		}
	}()

	r.Fates = fates(t)
	takesPlain := r.Outcome(Tap, Plain) == Whole
	for _, f := range r.Fates {
		want := Whole
		if f.Length > Legacy {
			want = expected(r.Release, f.Way, f.Form, takesPlain)
		}
		if f.Outcome != want {
			t.Errorf("%s: %d bytes of %s: %s, want %s", f.Way, f.Length, f.Form, f.Outcome, want)
		}
	}
	if !found.Probed {
		t.Errorf("the probe found nothing out: %s", found.Why)
	}
	for way, ability := range map[string]probe.Ability{
		Tap: found.Tap, Packet: found.Packet, Macvtap: found.Packet,
	} {
		want := r.ability(way)
		if r.Outcome(way, IPv4) == TooLong {
			want.MaxWrite = ability.MaxWrite // 17 pages and the headers, more or less
		}
		if ability != want || ability.MaxWrite < Legacy {
			t.Errorf("%s: the probe found %+v, these tests %+v", way, ability, want)
		}
	}

	for _, c := range cables {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("from=%s/to=%s/v6=%v", c.from, c.to, v6), func(t *testing.T) {
				r.Carried = append(r.Carried, carry(t, c, v6))
			})
		}
	}
	t.Logf("probe: %s\n%s\n%s", r.Probe, Acceptance([]Report{r}), Traffic([]Report{r}))
}

// ability is what the probe is to find where frames had these fates.
func (r *Report) ability(way string) probe.Ability {
	a := probe.Ability{IPv4: r.Outcome(way, IPv4) == Whole, MaxWrite: vnet.MaxFrame}
	switch {
	case r.Outcome(way, Plain) == Whole:
		a.IPv6 = vnet.FormPlain
	case r.Outcome(way, HBH) == Whole:
		a.IPv6 = vnet.FormHBH
	}
	return a
}
