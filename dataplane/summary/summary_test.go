package summary

import (
	"encoding/json"
	"strings"
	"testing"
)

// conservedSummary is a flood from port a to b and c, where c cuts and drops.
func conservedSummary() *Summary {
	return &Summary{Ports: []Port{
		{Name: "a", RX: RX{Frames: 10, Copies: 8},
			Drops: Drops{Ingress: map[string]uint64{"runt": 2}}},
		{Name: "b", TX: TX{Offered: 8, Frames: 8}},
		{Name: "c",
			TX:    TX{Offered: 8, Resegmented: 2, Chunks: 12, Segmented: 1, Segments: 46, Merged: 3, Held: 1, Frames: 57},
			Drops: Drops{Egress: map[string]uint64{"full": 2}}},
	}}
}

func TestConservedAcceptsWhatBalances(t *testing.T) {
	if err := conservedSummary().Conserved(); err != nil {
		t.Error(err)
	}
}

func TestConservedExplainsAViolation(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*Summary)
		want  []string
	}{
		{"a frame vanished at ingress", func(s *Summary) { s.Ports[0].RX.Frames++ },
			[]string{"all ports: rx.frames 11 + rx.copies 8 = 19", "ingress drops 2 = 18 (runt 2)"}},
		{"a chunk vanished at egress", func(s *Summary) { s.Ports[2].TX.Chunks++ },
			[]string{"port c: offered 8 + (chunks 13 - resegmented 2)", "= 61, but tx.frames 57 + egress drops 2 + held 1 = 60 (full 2)"}},
		{"more merged than offered", func(s *Summary) { s.Ports[1].TX.Merged = 9 },
			[]string{"port b:", "merged 9 = -1, but"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := conservedSummary()
			c.spoil(s)
			err := s.Conserved()
			if err == nil {
				t.Fatal("no violation reported")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q lacks %q", err, w)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("one violation, reported as several: %q", err)
			}
		})
	}
}

func TestJSONNamesAreTheContract(t *testing.T) {
	const want = `{"ports":[{"name":"","kind":"","device":"","up":false,` +
		`"limits":{"gso_max_size":0,"gso_ipv4_max_size":0,"gso_max_segs":0,"mtu":0,"csum":false,` +
		`"tso4":false,"tso6":false,"uso":false,"ipv6_form":"","max_write":0},` +
		`"rx":{"frames":0,"bytes":0,"copies":0,"max_frame":0},` +
		`"tx":{"offered":0,"frames":0,"bytes":0,"max_frame":0,"resegmented":0,"chunks":0,` +
		`"segmented":0,"segments":0,"merged":0,"held":0,"retried":0,"csum_completed":0},` +
		`"drops":{"ingress":{"runt":1},"egress":{}},"kernel_drops":0}]}`
	got, err := json.Marshal(Summary{Ports: []Port{{Drops: Drops{
		Ingress: map[string]uint64{"runt": 1}, Egress: map[string]uint64{}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	got, err = json.Marshal(Port{Device: "nickname", Netdev: "v0"})
	if err != nil || !strings.Contains(string(got), `"device":"nickname","netdev":"v0","up":false`) {
		t.Errorf("got %s, %v; want a netdev", got, err)
	}
}
