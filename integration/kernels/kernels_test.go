package kernels

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/integration/kernels/accept"
	"sluice/integration/vm"
)

var (
	enabled = flag.Bool("kernels", false, "boot the kernels: takes a quarter of an hour")
	series  = flag.String("series", strings.Join(allSeries, ","), "the kernels to boot")
	suites  = flag.String("suites", strings.Join(allSuites, ","), "the packages whose tests to run there")
	only    = flag.String("only", "", "run only those of these tests that match, as -test.run does")
)

// allSeries are the kernels of the matrix. 6.19 and 7.0 are the border between the
// two forms of IPv6; the archive keeps them as long as it likes.
var allSeries = []string{"6.1", "6.12", "6.19", "7.0", vm.Newest}

// allSuites are the packages whose tests ask the kernel. The first one writes the
// report that the tables are made of.
var allSuites = []string{
	acceptance, "tunio", "tunio/link", "tunio/probe", "integration/oracle", "integration/traffic",
}

const (
	acceptance = "integration/kernels/accept"
	// inGuest is where the tests and the switch are put. Not /usr/bin: link, for one, is
	// a program there.
	inGuest = "/opt/sluice/"
	report  = inGuest + "report.json"
	// suiteLimit is how long the tests of one package may take in an emulated guest.
	suiteLimit = 15 * time.Minute
)

func TestKernels(t *testing.T) {
	if !*enabled {
		t.Skip("takes a quarter of an hour: only with -kernels, as make kernels does it")
	}
	packages := strings.Split(*suites, ",")
	programs := []program{build(t, "cmd/sluice")}
	for _, p := range packages {
		programs = append(programs, build(t, p))
	}
	var reports []accept.Report
	for _, s := range strings.Split(*series, ",") {
		t.Run(s, func(t *testing.T) {
			g := vm.New(t).Guest(s, vm.CPUs(2), vm.Memory(1024))
			for _, p := range programs {
				g.Put(p.file, p.guest)
			}
			for i, p := range packages {
				t.Run(p, func(t *testing.T) { runSuite(t, g, programs[1+i]) })
				if p != acceptance || *only != "" {
					continue
				}
				var r accept.Report
				if err := json.Unmarshal(g.ReadFile(report), &r); err != nil {
					t.Fatal(err)
				}
				reports = append(reports, r)
			}
		})
	}
	if len(reports) > 0 {
		t.Logf("super-packets above 64 KiB, and the greatest frame that arrives whole:\n%s\n"+
			"TCP through the switch, the greatest frames in and out:\n%s",
			accept.Acceptance(reports), accept.Traffic(reports))
	}
}

// program is a binary here, and what it is called in the guest.
type program struct{ file, guest string }

// build builds a command, or the tests of another package.
func build(t *testing.T, name string) program {
	t.Helper()
	base := strings.ReplaceAll(name, "/", "-")
	file := filepath.Join(t.TempDir(), base)
	args := []string{"test", "-c", "-o", file}
	if strings.HasPrefix(name, "cmd/") {
		args = []string{"build", "-o", file}
	}
	cmd := exec.Command("go", append(args, "sluice/"+name)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return program{file, inGuest + base}
}

// runSuite runs a package's tests in a guest, and tells what failed and what was
// skipped there.
func runSuite(t *testing.T, g *vm.Guest, p program) {
	begin := time.Now()
	args := []string{p.guest, "-test.v=test2json", "-test.timeout=" + suiteLimit.String(), "-test.run", *only}
	if strings.HasSuffix(p.guest, strings.ReplaceAll(acceptance, "/", "-")) {
		args = append(args, "-report", report)
	}
	got, err := g.Do(vm.Cmd{
		Args:  args,
		Env:   []string{"SLUICE_REQUIRE=1", "SLUICE_BINARY=" + inGuest + "cmd-sluice"},
		Dir:   "/tmp",
		Limit: suiteLimit + time.Minute,
	})
	tests, parseErr := results(got.Stdout)
	if parseErr != nil {
		t.Fatal(parseErr)
	}
	count, skipped := map[string]int{}, map[string]int{}
	for _, r := range tests {
		count[r.action]++
		switch r.action {
		case "skip":
			why, _, _ := strings.Cut(r.output, "\n")
			skipped[why]++
		case "fail":
			t.Errorf("%s:\n%s", r.name, r.output)
		}
	}
	for _, why := range slices.Sorted(maps.Keys(skipped)) {
		t.Logf("%d skipped: %s", skipped[why], why)
	}
	t.Logf("%s: %d tests passed, %d failed, %d were skipped, in %.0f s",
		g.Release(), count["pass"], count["fail"], count["skip"], time.Since(begin).Seconds())
	if err != nil && count["fail"] == 0 || count["pass"] == 0 {
		t.Errorf("%v\n%s", err, got.Stderr)
	}
}

// result is how a test ended, and what it said.
type result struct{ name, action, output string }

// results are those of a test binary that ran with -test.v=test2json, in the order
// in which the tests ended.
func results(text string) (all []result, err error) {
	cmd := exec.Command("go", "tool", "test2json")
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	said := map[string]*strings.Builder{}
	for line := range strings.Lines(string(out)) {
		var e struct{ Action, Test, Output string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return nil, err
		}
		if e.Test == "" {
			continue
		}
		switch e.Action {
		case "run":
			said[e.Test] = &strings.Builder{}
		case "output":
			if b := said[e.Test]; b != nil && !strings.HasPrefix(e.Output, "=== ") {
				b.WriteString(e.Output)
			}
		case "pass", "fail", "skip":
			all = append(all, result{e.Test, e.Action, strings.TrimSpace(said[e.Test].String())})
		}
	}
	return all, nil
}
