package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
	"sluice/tunio/release"
)

func TestMain(m *testing.M) { os.Exit(netnstest.Main(m)) }

// needLab skips a test that cannot have a lab.
func needLab(t *testing.T) {
	t.Helper()
	lab := netns.New("need")
	lab.Namespace("a")
	err := lab.Err()
	lab.Close()
	netnstest.Need(t, err)
	netnstest.Need(t, checkMachine())
}

// TestBridgeCasesAreWhatTheyAreCalled measures the cases that need no switch, and sees
// both ends bound meanwhile.
func TestBridgeCasesAreWhatTheyAreCalled(t *testing.T) {
	t.Parallel()
	needLab(t)
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	bound := make(chan error, 1)
	go func() {
		bound <- netns.Until(ctx, "iperf3 to be bound", func() (bool, error) {
			return netnstest.IperfBound(bindingOf(&allowed)), nil
		})
	}()
	r, err := Run(t.Context(), Config{Rounds: 1, Seconds: 1, Paths: []string{Bridge}, Log: t.Output()})
	cancel()
	netnstest.Need(t, err)
	if err := <-bound; err != nil {
		t.Error(err)
	}
	wantMeasured(t, r, Bridge, bridgeScenarios)
}

// TestSwitchCasesAreWhatTheyAreCalled: the command measures every case over both paths. They run at
// the same time, since their speed does not matter here.
func TestSwitchCasesAreWhatTheyAreCalled(t *testing.T) {
	t.Parallel()
	needLab(t)
	for _, path := range []string{PacketToPacket, PacketToTap} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			r := command(t, path)
			if r.Schema != schema || r.Settings.Rounds != 1 || r.Settings.BigGSOMaxSize != bigSize ||
				r.Settings.WriteSize != netns.IperfWrite {
				t.Errorf("schema %d, settings %+v", r.Schema, r.Settings)
			}
			wantMeasured(t, &r, path, switchScenarios)
		})
	}
}

// command runs `sluice bench` for a moment, and returns what it writes as JSON.
func command(t *testing.T, path string) (r Report) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.json")
	cmd := exec.CommandContext(t.Context(), netnstest.Binary(t), "bench",
		"--rounds", "1", "--seconds", "1", "--path", path, "--json", file, "--markdown")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(out, []byte("\n| IPv4: Sluice, ")) {
		t.Error("the output has no row of a Markdown table")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		t.Fatal(err)
	}
	return r
}

// wantMeasured fails the test unless every case over a path has a sample of what it is
// called, or is skipped for what this kernel cannot do.
func wantMeasured(t *testing.T, r *Report, path string, scenarios []scenario) {
	t.Helper()
	if len(r.Cases) != len(scenarios)*len(families) {
		t.Errorf("%d cases", len(r.Cases))
	}
	for _, c := range r.Cases {
		s := find(t, c.Case)
		if c.Path != path {
			t.Errorf("over another path: %+v", c)
		}
		if c.Skipped != "" {
			noForm := path == PacketToPacket && c.Case == big && c.Family == "ipv6" &&
				strings.Contains(c.Skipped, "ipv6_form none")
			old := s.sender > legacySize && !release.Since(release.Current(), 6, 6)
			if !noForm && !old || len(c.Samples) != 0 {
				t.Errorf("not measured: %+v", c)
			}
			continue
		}
		if len(c.Samples) != 1 || c.Samples[0] <= 0 || c.Median != c.Samples[0] {
			t.Errorf("no throughput: %+v", c)
		}
		if why := s.wasItself(c.MaxIn, c.MaxOut); why != "" {
			t.Errorf("%s: %+v", why, c)
		}
	}
}
