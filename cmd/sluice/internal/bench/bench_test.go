package bench

import (
	"encoding/json"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/dataplane/summary"
	"sluice/integration/netns"
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
	return newReport(Config{
		Rounds: 2, Seconds: 1, Congestion: "reno", binding: netns.Binding{Sender: 3, Receiver: 2},
	}, all)
}

// samples is a case over made-up samples.
func samples(name, path, family string, v ...float64) Case {
	return Case{Case: name, Path: path, Family: family, Samples: v}
}

// TestVerdictFollowsTheNumbers: whoever is ahead is named in the same words, and no case
// that was measured is left out.
func TestVerdictFollowsTheNumbers(t *testing.T) {
	const v4 = "ipv4"
	for _, c := range []struct {
		name   string
		report *Report
		want   []string
	}{
		{"each ahead somewhere", measured(
			samples(bridgeLegacy, Bridge, v4, 20), samples(bridgeBig, Bridge, v4, 60), samples(bridgeMixed, Bridge, v4, 8),
			samples(legacy, PacketToPacket, v4, 10), samples(big, PacketToPacket, v4, 59),
			samples(mixedSegment, PacketToPacket, v4, 4), samples(mixedResegment, PacketToPacket, v4, 24),
			samples(legacy, PacketToTap, v4, 19), samples(big, PacketToTap, v4, 66),
			samples(mixedSegment, PacketToTap, v4, 8.5), samples(mixedResegment, PacketToTap, v4, 16),
		), []string{
			"IPv4: over the Linux bridge a BIG TCP sender into a 64 KiB egress reaches 8.0 Gbit/s, " +
				"0.40 times the 20.0 without BIG TCP.",
			"**The bridge is ahead** over IPv4: 64 KiB everywhere (packet to packet 0.50; packet to tap 0.95), " +
				"389120 into 64 KiB (packet to packet, `oversize=segment` 0.50).",
			"**Sluice is ahead** over IPv4: 389120 everywhere (packet to tap 1.10), " +
				"389120 into 64 KiB (packet to packet 3.00; packet to tap 2.00; packet to tap, `oversize=segment` 1.06).",
			"**Even** over IPv4: 389120 everywhere (packet to packet 0.98).",
		}},
		{"families apart", measured(
			samples(bridgeLegacy, Bridge, v4, 20), samples(legacy, PacketToTap, v4, 30),
			samples(bridgeLegacy, Bridge, "ipv6", 20), samples(legacy, PacketToTap, "ipv6", 10),
		), []string{
			"**Sluice is ahead** over IPv4: 64 KiB everywhere (packet to tap 1.50).",
			"**The bridge is ahead** over IPv6: 64 KiB everywhere (packet to tap 0.50).",
		}},
		{"noisy", measured(
			samples(bridgeLegacy, Bridge, v4, 20), samples(bridgeMixed, Bridge, v4, 4, 12),
		), []string{
			"IPv4: over the Linux bridge a BIG TCP sender into a 64 KiB egress reaches 8.0 Gbit/s, " +
				"0.40 times the 20.0 without BIG TCP.",
			"Samples vary by more than 15 % in 1 of 2 cases: measure again on a quieter machine, or with more rounds.",
		}},
		{"no bridge", measured(samples(mixedResegment, PacketToTap, v4, 16)), []string{
			"There is nothing to compare: no case was measured over the Linux bridge as well.",
		}},
	} {
		got := c.report.Verdict()
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

// TestTablesSayWhoIsAheadAndByHowMuchSamplesVary compares both tables to the byte.
func TestTablesSayWhoIsAheadAndByHowMuchSamplesVary(t *testing.T) {
	r := measured(
		samples(bridgeLegacy, Bridge, "ipv4", 18, 22, 20), samples(bridgeBig, Bridge, "ipv4", 61),
		samples(legacy, PacketToPacket, "ipv4", 11, 9, 10),
		Case{Case: big, Path: PacketToPacket, Family: "ipv4", Skipped: "why"},
		samples(bridgeMixed, Bridge, "ipv6", 8), samples(mixedResegment, PacketToPacket, "ipv6", 20),
	)
	r.Kernel, r.CPUs, r.Versions = "K", 2, map[string]string{"iperf3": "3.12"}
	for _, c := range []struct {
		name  string
		write func(io.Writer) error
		want  string
	}{
		{"markdown", r.WriteMarkdown, `Linux K, 2 CPUs, iperf3 3.12: one TCP stream, writes of 1 MiB (iperf3 -l 1M), ` +
			`congestion control reno, MTU 1500; 2 interleaved rounds of 1 s; sender bound to CPU 3, receiver to CPU 2.
Gbit/s: the median, the smallest and the greatest sample, and **how many times the bridge's median** it is.

| | 64 KiB everywhere | 389120 everywhere | 389120 into 64 KiB |
|---|---|---|---|
| IPv4: Linux bridge, veth to veth | 20.0 (18.0-22.0) | 61.0 (61.0-61.0) |  |
| IPv4: Sluice, packet to packet | 10.0 (9.0-11.0) **0.50: bridge ahead** | - |  |
| IPv6: Linux bridge, veth to veth |  |  | 8.0 (8.0-8.0) |
| IPv6: Sluice, packet to packet |  |  | 20.0 (20.0-20.0) **2.50: Sluice ahead** |

- **The bridge is ahead** over IPv4: 64 KiB everywhere (packet to packet 0.50).
- **Sluice is ahead** over IPv6: 389120 into 64 KiB (packet to packet 2.50).
- Skipped: packet-to-packet, big, ipv4: why.
`},
		{"text", r.WriteTable, `Linux K, 2 CPUs, iperf3 3.12: one TCP stream, writes of 1 MiB (iperf3 -l 1M), ` +
			`congestion control reno, MTU 1500; 2 interleaved rounds of 1 s; sender bound to CPU 3, receiver to CPU 2.

path              case             family   Gbit/s    least     most   CV %  retransmits   max in  max out  times the bridge's
bridge            bridge-legacy    ipv4      20.00    18.00    22.00   10.0            0        0        0
bridge            bridge-big       ipv4      61.00    61.00    61.00    0.0            0        0        0
packet-to-packet  legacy           ipv4      10.00     9.00    11.00   10.0            0        0        0  **0.50: bridge ahead**
packet-to-packet  big              ipv4    skipped
bridge            bridge-mixed     ipv6       8.00     8.00     8.00    0.0            0        0        0
packet-to-packet  mixed-resegment  ipv6      20.00    20.00    20.00    0.0            0        0        0  **2.50: Sluice ahead**

ratio of medians                                      ipv4    ipv6
bridge, bridge-big / bridge-legacy                    3.05       -
bridge, bridge-mixed / bridge-legacy                     -       -
packet-to-packet, legacy / bridge-legacy              0.50       -
packet-to-packet, big / bridge-big                       -       -
packet-to-packet, mixed-resegment / bridge-mixed         -    2.50
packet-to-packet, mixed-resegment / mixed-segment        -       -
packet-to-tap, legacy / bridge-legacy                    -       -
packet-to-tap, big / bridge-big                          -       -
packet-to-tap, mixed-resegment / bridge-mixed            -       -
packet-to-tap, mixed-resegment / mixed-segment           -       -
packet-to-tap, mixed-resegment / big                     -       -
packet-to-tap, big / legacy                              -       -

**The bridge is ahead** over IPv4: 64 KiB everywhere (packet to packet 0.50).
**Sluice is ahead** over IPv6: 389120 into 64 KiB (packet to packet 2.50).
Skipped: packet-to-packet, big, ipv4: why.
`},
	} {
		var got strings.Builder
		if err := c.write(&got); err != nil {
			t.Fatal(err)
		}
		if got.String() != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got.String(), c.want)
		}
	}
}

// TestEndsGetTheLastCPUs: the switch's workers have the first ones.
func TestEndsGetTheLastCPUs(t *testing.T) {
	for _, c := range []struct {
		allowed []int
		want    netns.Binding
	}{
		{[]int{5}, netns.Binding{Sender: 5, Receiver: 5}},
		{[]int{0, 1}, netns.Binding{Sender: 1, Receiver: 0}},
		{[]int{1, 2, 6, 7}, netns.Binding{Sender: 7, Receiver: 6}},
	} {
		var set unix.CPUSet
		for _, cpu := range c.allowed {
			set.Set(cpu)
		}
		if got := bindingOf(&set); got != c.want {
			t.Errorf("of %v: %+v, want %+v", c.allowed, got, c.want)
		}
	}
}

// TestComparedCasesRunTogether: a bridge's case runs next to those it is compared with,
// before them in one round and behind them in the next.
func TestComparedCasesRunTogether(t *testing.T) {
	var want []string
	for _, f := range families {
		for _, c := range []string{
			"bridge bridge-legacy", "packet-to-packet legacy", "packet-to-tap legacy",
			"bridge bridge-big", "packet-to-packet big", "packet-to-tap big",
			"bridge bridge-mixed", "packet-to-packet mixed-segment", "packet-to-packet mixed-resegment",
			"packet-to-tap mixed-segment", "packet-to-tap mixed-resegment",
		} {
			want = append(want, f.name+" "+c)
		}
	}
	for round := range 3 {
		var got []string
		for _, m := range runOrder(measurements(&Config{}), round) {
			got = append(got, families[m.family].name+" "+m.path+" "+m.name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("round %d:\n%s\nwant\n%s", round, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		slices.Reverse(want)
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
}
