package traffic

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
)

// TestREADMEsTour: every command of "Steer a running switch" prints what README says, but
// for numbers that differ from run to run.
func TestREADMEsTour(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, tour, ok := strings.Cut(string(text), "## Steer a running switch")
	_, tour, ok2 := strings.Cut(tour, "\n```console\n")
	tour, _, ok3 := strings.Cut(tour, "\n```\n")
	if !ok || !ok2 || !ok3 {
		t.Fatal("README has no tour")
	}
	b, _, _ := pair(t, netns.Link{}, netns.Link{})
	dir := t.TempDir()
	s := steer(t, b.sw, "-c", file(t, dir, "sluice.yaml", "ports:\n  a: {kind: packet, device: vA}\n  b: {kind: packet, device: vB}\n"))
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(netnstest.Binary(t), filepath.Join(dir, "bin/sluice")); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, step := range strings.Split("\n"+tour, "\n$ ")[1:] {
		line, want, _ := strings.Cut(step, "\n")
		cmd := exec.CommandContext(deadline(t, patience), "sh", "-c", line+" 2>&1")
		if before, after, ok := strings.Cut(line, " > "); ok {
			cmd.Args[2] = before + " 2>&1 > " + after
		}
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "SLUICE_CONTROL="+s.Control)
		out, err := cmd.CombinedOutput()
		got := strings.TrimSuffix(string(out), "\n")
		if err != nil || vague(got) != vague(want) {
			t.Errorf("$ %s\n%s\n%v; README says\n%s", line, got, err, want)
		}
		for line := range strings.Lines(got) {
			if len(line) > 81 && !strings.Contains(line, " is down: ") { // a message may be longer
				t.Errorf("%d columns: %s", len(line), line)
			}
		}
		n++
	}
	if n < 10 {
		t.Errorf("only %d commands", n)
	}
}

var (
	processes = regexp.MustCompile(`process \d+|\d+ of \d+ addresses|\d+ (s|min)\b`)
	spaces    = regexp.MustCompile(` +`)
)

// vague is an output without what differs from run to run.
func vague(s string) string {
	return spaces.ReplaceAllString(processes.ReplaceAllString(s, "N"), " ")
}
