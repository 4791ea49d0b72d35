package bench

import (
	"fmt"
	"io"
	"math"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// schema is the version of the report's JSON form.
const schema = 1

// noisy is the coefficient of variation above which the report warns.
const noisy = 0.15

// Report is what `bench --json` writes.
type Report struct {
	Schema   int               `json:"schema"`
	Kernel   string            `json:"kernel"`
	CPUs     int               `json:"cpus"`
	Versions map[string]string `json:"versions"`
	Settings Settings          `json:"settings"`
	Cases    []Case            `json:"cases"`
	Ratios   []Ratio           `json:"ratios"`
}

// Settings are what the measurement was made with.
type Settings struct {
	Rounds            int    `json:"rounds"`
	Seconds           int    `json:"seconds"`
	BigGSOMaxSize     int    `json:"big_gso_max_size"`
	LegacyGSOMaxSize  int    `json:"legacy_gso_max_size"`
	MTU               int    `json:"mtu"`
	CongestionControl string `json:"congestion_control"`
}

// Case is the result of one case over one path in one family: samples, or the
// reason why there are none.
type Case struct {
	Case        string    `json:"case"`
	Path        string    `json:"path"`
	Family      string    `json:"family"`
	Samples     []float64 `json:"samples"` // Gbit/s
	Median      float64   `json:"median"`
	CV          float64   `json:"cv"`          // coefficient of variation, 0.01 is 1 %
	Retransmits int       `json:"retransmits"` // over all samples
	MaxIn       int       `json:"max_in"`      // greatest frame from the sender
	MaxOut      int       `json:"max_out"`     // greatest frame to the receiver
	Skipped     string    `json:"skipped"`
}

// Ratio is the quotient of two medians of one family. One of a skipped case is
// left out.
type Ratio struct {
	Name  string  `json:"name"` // "PATH, CASE / CASE, FAMILY"
	Value float64 `json:"value"`
}

// ratioRows are the quotients worth reading. A bridge's case is compared with
// whatever the path: it stands for what there is without Sluice.
var ratioRows = []struct{ path, over, under string }{
	{Bridge, bridgeBig, bridgeLegacy},
	{Bridge, bridgeMixed, bridgeLegacy},
	{PacketToPacket, mixedResegment, bridgeMixed},
	{PacketToPacket, mixedResegment, mixedSegment},
	{PacketToTap, mixedResegment, bridgeMixed},
	{PacketToTap, mixedResegment, mixedSegment},
	{PacketToTap, mixedResegment, big},
	{PacketToTap, big, legacy},
}

func newReport(c Config, measured []*measurement) *Report {
	r := &Report{
		Schema: schema, Kernel: kernelRelease(), CPUs: runtime.NumCPU(), Versions: versions(),
		Settings: Settings{
			Rounds: c.Rounds, Seconds: c.Seconds, BigGSOMaxSize: bigSize, LegacyGSOMaxSize: legacySize,
			MTU: mtu, CongestionControl: c.Congestion,
		},
		Ratios: []Ratio{},
	}
	for _, m := range measured {
		res := m.result
		if res.Samples == nil {
			res.Samples = []float64{} // a list in JSON, never null
		}
		res.Median, res.CV = median(res.Samples), variation(res.Samples)
		r.Cases = append(r.Cases, res)
	}
	for _, row := range ratioRows {
		for _, f := range families {
			if v, ok := r.ratio(row.path, row.over, row.under, f.name); ok {
				name := ratioName(row.path, row.over, row.under) + ", " + f.name
				r.Ratios = append(r.Ratios, Ratio{name, v})
			}
		}
	}
	return r
}

func ratioName(path, over, under string) string { return path + ", " + over + " / " + under }

// ratio is over's median divided by under's; false where one was not measured.
func (r *Report) ratio(path, over, under, family string) (float64, bool) {
	o, u := r.median(path, over, family), r.median(path, under, family)
	return o / u, o > 0 && u > 0
}

// median of a case, 0 where it was not measured. A bridge's case is found under
// any path.
func (r *Report) median(path, name, family string) float64 {
	for _, c := range r.Cases {
		if c.Case == name && c.Family == family && (c.Path == path || c.Path == Bridge) {
			return c.Median
		}
	}
	return 0
}

// WriteTable writes the report for a reader; the last paragraph says what it
// shows.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Linux %s, %d CPUs, one TCP stream (%s), rounds of %d s: %d, "+
		"sender %d, legacy %d\n\n",
		r.Kernel, r.CPUs, r.Settings.CongestionControl, r.Settings.Seconds, r.Settings.Rounds,
		r.Settings.BigGSOMaxSize, r.Settings.LegacyGSOMaxSize)
	fmt.Fprintf(&b, "%-16s  %-15s  %-6s  %7s  %5s  %11s  %7s  %7s\n",
		"path", "case", "family", "Gbit/s", "CV %", "retransmits", "max in", "max out")
	var skipped []string
	for _, c := range r.Cases {
		fmt.Fprintf(&b, "%-16s  %-15s  %-6s  ", c.Path, c.Case, c.Family)
		if c.Skipped != "" {
			fmt.Fprintf(&b, "skipped\n")
			skipped = append(skipped,
				fmt.Sprintf("  %s, %s, %s: %s\n", c.Path, c.Case, c.Family, c.Skipped))
			continue
		}
		fmt.Fprintf(&b, "%7.2f  %5.1f  %11d  %7d  %7d\n",
			c.Median, 100*c.CV, c.Retransmits, c.MaxIn, c.MaxOut)
	}
	if skipped != nil {
		fmt.Fprintf(&b, "\nskipped:\n%s", strings.Join(skipped, ""))
	}
	fmt.Fprintf(&b, "\n%-50s", "ratio of medians")
	for _, f := range families {
		fmt.Fprintf(&b, "  %6s", f.name)
	}
	for _, row := range ratioRows {
		fmt.Fprintf(&b, "\n%-50s", ratioName(row.path, row.over, row.under))
		for _, f := range families {
			if v, ok := r.ratio(row.path, row.over, row.under, f.name); ok {
				fmt.Fprintf(&b, "  %6.2f", v)
			} else {
				fmt.Fprintf(&b, "  %6s", "-")
			}
		}
	}
	fmt.Fprintf(&b, "\n\n%s\n", r.Verdict())
	_, err := io.WriteString(w, b.String())
	return err
}

// Verdict says what the medians show, good or bad: a sentence per family.
func (r *Report) Verdict() string {
	var sentences []string
	for _, f := range families {
		if s := r.verdict(f.name); s != "" {
			sentences = append(sentences, s)
		}
	}
	if sentences == nil {
		return "The mixed case over the Linux bridge was not measured: there is nothing to compare."
	}
	if n := r.noisy(); n > 0 {
		sentences = append(sentences, fmt.Sprintf(
			"Samples vary by more than %.0f %% in %d of %d cases: measure again on a quieter machine, "+
				"or with more rounds.", 100*noisy, n, len(r.Cases)))
	}
	return strings.Join(sentences, "\n")
}

func (r *Report) verdict(family string) string {
	mixed := r.median(Bridge, bridgeMixed, family)
	if mixed == 0 {
		return ""
	}
	name := map[string]string{"ipv4": "IPv4", "ipv6": "IPv6"}[family]
	s := fmt.Sprintf("%s: a BIG TCP sender into a 64 KiB egress reaches %.1f Gbit/s "+
		"over the Linux bridge", name, mixed)
	if plain := r.median(Bridge, bridgeLegacy, family); plain > 0 {
		s += fmt.Sprintf(", %s the %.1f without BIG TCP", compare(mixed/plain), plain)
	}
	var carried []string
	for _, p := range []struct{ path, into string }{
		{PacketToPacket, "over the same veths"}, {PacketToTap, "into a tap"},
	} {
		if v := r.median(p.path, mixedResegment, family); v > 0 {
			carried = append(carried,
				fmt.Sprintf("%.1f %s (%s the bridge's)", v, p.into, compare(v/mixed)))
		}
	}
	if carried != nil {
		s += "; Sluice, resegmenting, carries " + strings.Join(carried, " and ")
	}
	return s + "."
}

// compare puts a quotient in words. Within 5 % nothing is claimed.
func compare(q float64) string {
	switch {
	case q < 0.95:
		return fmt.Sprintf("only %.2f times", q)
	case q > 1.05:
		return fmt.Sprintf("%.1f times", q)
	}
	return "about the same as"
}

func (r *Report) noisy() (n int) {
	for _, c := range r.Cases {
		if c.CV > noisy {
			n++
		}
	}
	return n
}

// median is 0 without samples.
func median(samples []float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(samples))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// variation is the sample standard deviation divided by the mean; 0 below two
// samples.
func variation(samples []float64) float64 {
	n := float64(len(samples))
	if n < 2 {
		return 0
	}
	var sum, squares float64
	for _, v := range samples {
		sum += v
	}
	mean := sum / n
	for _, v := range samples {
		squares += (v - mean) * (v - mean)
	}
	return math.Sqrt(squares/(n-1)) / mean
}

// versions of what took part. One that cannot be found is left out.
func versions() map[string]string {
	v := map[string]string{"kernel": kernelRelease(), "go": runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		v["sluice"] = info.Main.Version // which names the commit
	}
	// "iperf 3.12 (cJSON ...)", "ip utility, iproute2-6.1.0, libbpf 1.1.0"
	if out, err := exec.Command("iperf3", "--version").Output(); err == nil {
		if f := strings.Fields(string(out)); len(f) > 1 {
			v["iperf3"] = f[1]
		}
	}
	if out, err := exec.Command("ip", "-V").Output(); err == nil {
		for _, f := range strings.Split(string(out), ", ") {
			if version, ok := strings.CutPrefix(f, "iproute2-"); ok {
				v["iproute2"] = strings.TrimSpace(version)
			}
		}
	}
	return v
}

func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
