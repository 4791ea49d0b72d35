package bench

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"sluice/dataplane/summary"
)

func TestMedianAndVariation(t *testing.T) {
	for _, c := range []struct {
		samples    []float64
		median, cv float64
	}{
		{nil, 0, 0},
		{[]float64{7}, 7, 0},
		{[]float64{30, 10, 20}, 20, 0.5},
		{[]float64{4, 1, 3, 2}, 2.5, math.Sqrt(5.0/3) / 2.5},
	} {
		m, v := median(c.samples), variation(c.samples)
		if m != c.median || math.Abs(v-c.cv) > 1e-12 {
			t.Errorf("%v: median %v, CV %v, want %v, %v", c.samples, m, v, c.median, c.cv)
		}
	}
}

func find(t *testing.T, name string) *scenario {
	t.Helper()
	for _, all := range [][]scenario{switchScenarios, bridgeScenarios} {
		for i := range all {
			if all[i].name == name {
				return &all[i]
			}
		}
	}
	t.Fatalf("no case %s", name)
	return nil
}

func TestACaseThatWasAnotherIsTold(t *testing.T) {
	for _, c := range []struct {
		name    string
		in, out int
		want    string // empty: it was itself
	}{
		{legacy, 65226, 65226, ""},
		{legacy, 70000, 65226, "the sender made a frame above 64 KiB (70000)"},
		{legacy, 65226, 1514, "no super-packet left (greatest frame 1514)"},
		{big, 388130, 388130, ""},
		{big, 65226, 65226, "the sender made no frame above 64 KiB (greatest 65226)"},
		{big, 388130, 65226, "no frame above 64 KiB left (greatest 65226)"},
		{mixedSegment, 388130, 65226, ""},
		{mixedResegment, 388130, 65535, ""},
		{mixedResegment, 388130, 65536, "a frame above 64 KiB left (65536)"},
		{mixedResegment, 65536, 65226, "the sender made no frame above 64 KiB (greatest 65536)"},
		{bridgeMixed, 388130, 388130, "a frame above 64 KiB left (388130)"},
	} {
		if got := find(t, c.name).wasItself(c.in, c.out); got != c.want {
			t.Errorf("%s in %d out %d: %q, want %q", c.name, c.in, c.out, got, c.want)
		}
	}
}

func TestACutThatWasAnotherIsTold(t *testing.T) {
	for _, c := range []struct {
		name string
		tx   summary.TX
		want string
	}{
		{mixedSegment, summary.TX{Segmented: 1}, ""},
		{mixedSegment, summary.TX{Resegmented: 5}, "the switch segmented nothing"},
		{mixedResegment, summary.TX{Resegmented: 5, Segmented: 1}, ""},
		{mixedResegment, summary.TX{}, "the switch resegmented 0 super-packets and segmented 0"},
		{mixedResegment, summary.TX{Resegmented: 1, Segmented: 9},
			"the switch resegmented 1 super-packets and segmented 9"},
		{big, summary.TX{}, ""},
	} {
		if got := find(t, c.name).wasCut(&c.tx); got != c.want {
			t.Errorf("%s %+v: %q, want %q", c.name, c.tx, got, c.want)
		}
	}
}

func TestLimitsDecideWhatCannotBeDone(t *testing.T) {
	all := summary.Limits{GSOMaxSize: 389120, GSOIPv4MaxSize: 389120, MaxWrite: 524279, IPv6Form: "hbh"}
	noForm, small4, small6, shortWrite := all, all, all, all
	noForm.IPv6Form = "none"
	small4.GSOIPv4MaxSize, small6.GSOMaxSize, shortWrite.MaxWrite = 65536, 65536, 65536
	for _, c := range []struct {
		name, family string
		limits       summary.Limits
		want         string // part of the reason; empty: it can
	}{
		{big, "ipv4", all, ""},
		{big, "ipv6", all, ""},
		{big, "ipv6", noForm, "ipv6_form none"},
		{big, "ipv4", noForm, ""},
		{big, "ipv4", small4, "gso_ipv4_max_size 65536"},
		{big, "ipv6", small4, ""},
		{big, "ipv6", small6, "gso_max_size 65536"},
		{big, "ipv4", shortWrite, "max_write 65536"},
		{mixedResegment, "ipv6", noForm, ""},
		{legacy, "ipv4", shortWrite, ""},
	} {
		got := find(t, c.name).cannot(c.family, &c.limits)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s %s %+v: %q, want %q", c.name, c.family, c.limits, got, c.want)
		}
	}
}

func TestPortsOfACase(t *testing.T) {
	for _, c := range []struct{ name, path, want string }{
		{big, PacketToPacket, "-p a=packet:vA -p b=packet:vB"},
		{mixedSegment, PacketToPacket, "-p a=packet:vA -p b=packet:vB,oversize=segment"},
		{mixedResegment, PacketToTap, "-p a=packet:vA " +
			"-p b=tap:tap0,netns=R,gso_max_size=65536,gso_ipv4_max_size=65536,oversize=resegment"},
	} {
		if got := strings.Join(find(t, c.name).ports(c.path, "R"), " "); got != c.want {
			t.Errorf("%s %s: %s\nwant %s", c.name, c.path, got, c.want)
		}
	}
}

// measured is a report over made-up samples.
func measured(results ...Case) *Report {
	var all []*measurement
	for _, r := range results {
		all = append(all, &measurement{result: r})
	}
	return newReport(Config{Rounds: 2, Seconds: 1, Congestion: "reno"}, all)
}

func TestVerdictFollowsTheNumbers(t *testing.T) {
	bridge := func(name string, v ...float64) Case {
		return Case{Case: name, Path: Bridge, Family: "ipv4", Samples: v}
	}
	mixed := func(path string, v ...float64) Case {
		return Case{Case: mixedResegment, Path: path, Family: "ipv4", Samples: v}
	}
	const start = "IPv4: a BIG TCP sender into a 64 KiB egress reaches 8.0 Gbit/s over the Linux bridge"
	for _, c := range []struct {
		name, want string
		report     *Report
	}{
		{"good", start + ", only 0.40 times the 20.0 without BIG TCP; Sluice, resegmenting, carries " +
			"24.0 over the same veths (3.0 times the bridge's) and 16.0 into a tap (2.0 times the bridge's).",
			measured(bridge(bridgeLegacy, 20), bridge(bridgeMixed, 8),
				mixed(PacketToPacket, 24), mixed(PacketToTap, 16))},
		{"bad", start + ", about the same as the 8.1 without BIG TCP; Sluice, resegmenting, carries " +
			"4.0 over the same veths (only 0.50 times the bridge's).",
			measured(bridge(bridgeLegacy, 8.1), bridge(bridgeMixed, 8), mixed(PacketToPacket, 4))},
		{"bridge only", start + ".", measured(bridge(bridgeMixed, 8))},
		{"noisy", start + ".\nSamples vary by more than 15 % in 1 of 1 cases: measure again on a " +
			"quieter machine, or with more rounds.", measured(bridge(bridgeMixed, 4, 12))},
		{"nothing", "The mixed case over the Linux bridge was not measured: there is nothing to compare.",
			measured(mixed(PacketToTap, 16))},
	} {
		if got := c.report.Verdict(); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

func TestReportLeavesOutWhatWasNotMeasured(t *testing.T) {
	r := measured(
		Case{Case: legacy, Path: PacketToTap, Family: "ipv4", Samples: []float64{10, 12}},
		Case{Case: big, Path: PacketToTap, Family: "ipv4", Samples: []float64{30, 36}},
		Case{Case: big, Path: PacketToTap, Family: "ipv6", Skipped: "why"},
		Case{Case: legacy, Path: PacketToTap, Family: "ipv6", Samples: []float64{10, 12}},
	)
	r.Kernel, r.CPUs, r.Versions = "K", 2, map[string]string{}
	got, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`{"schema":1,"kernel":"K","cpus":2,"versions":{},"settings":{"rounds":2,"seconds":1,`,
		`{"case":"big","path":"packet-to-tap","family":"ipv6","samples":[],"median":0,"cv":0,` +
			`"retransmits":0,"max_in":0,"max_out":0,"skipped":"why"}`,
		`"ratios":[{"name":"packet-to-tap, big / legacy, ipv4","value":3}]}`,
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%s\nlacks %s", got, want)
		}
	}
	var table strings.Builder
	if err := r.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"packet-to-tap     big              ipv6    skipped\n",
		"  packet-to-tap, big, ipv6: why\n",
		"packet-to-tap, big / legacy                           3.00       -\n",
	} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("%s\nlacks %q", table.String(), want)
		}
	}
}
