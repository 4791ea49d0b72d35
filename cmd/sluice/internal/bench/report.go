package bench

import (
	"math"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/integration/netns"
)

// schema is the version of the report's JSON form.
const schema = 1

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

// Settings are the settings of the measurement.
type Settings struct {
	Rounds            int    `json:"rounds"`
	Seconds           int    `json:"seconds"`
	BigGSOMaxSize     int    `json:"big_gso_max_size"`
	LegacyGSOMaxSize  int    `json:"legacy_gso_max_size"`
	MTU               int    `json:"mtu"`
	CongestionControl string `json:"congestion_control"`
	WriteSize         int    `json:"write_size"`   // of iperf3's sender
	SenderCPU         int    `json:"sender_cpu"`   // that it is bound to
	ReceiverCPU       int    `json:"receiver_cpu"` // that it is bound to
}

// Case is the result of one case over one path in one family: its samples, or why there are none.
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

// Ratio is the quotient of two medians of one family. Skipped cases have none.
type Ratio struct {
	Name  string  `json:"name"` // "PATH, CASE / CASE, FAMILY"
	Value float64 `json:"value"`
}

// ratioRows are the useful quotients. A bridge's case is compared with every path, because it is
// the baseline.
var ratioRows = []struct{ path, over, under string }{
	{Bridge, bridgeBig, bridgeLegacy},
	{Bridge, bridgeMixed, bridgeLegacy},
	{PacketToPacket, legacy, bridgeLegacy},
	{PacketToPacket, big, bridgeBig},
	{PacketToPacket, mixedResegment, bridgeMixed},
	{PacketToPacket, mixedResegment, mixedSegment},
	{PacketToTap, legacy, bridgeLegacy},
	{PacketToTap, big, bridgeBig},
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
			MTU: mtu, CongestionControl: c.Congestion, WriteSize: netns.IperfWrite,
			SenderCPU: c.binding.Sender, ReceiverCPU: c.binding.Receiver,
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

// median of a case, 0 if it was not measured. A bridge's case is found under any path.
func (r *Report) median(path, name, family string) float64 {
	if c := r.find(path, name, family); c != nil {
		return c.Median
	}
	return 0
}

// find is nil if the case was not part of the run.
func (r *Report) find(path, name, family string) *Case {
	for i := range r.Cases {
		c := &r.Cases[i]
		if c.Case == name && c.Family == family && (c.Path == path || c.Path == Bridge) {
			return c
		}
	}
	return nil
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

// versions of the programs that took part. A version that cannot be found is left out.
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
