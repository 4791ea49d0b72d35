package traffic

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/dataplane/summary"
	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
)

// command runs sluice with input, and returns its exit code and what it prints.
func command(t testing.TB, input string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(deadline(t, patience), netnstest.Binary(t), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	_ = cmd.Run()
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// TestConfigCheck tells every error with its place, as compilers do.
func TestConfigCheck(t *testing.T) {
	good := file(t, t.TempDir(), "sluice.yaml", "ports:\n  a: {kind: tap, device: t0}\n  b: {kind: tap, device: t1}\n")
	bad := file(t, t.TempDir(), "sluice.yaml", "ports:\n  a: {kind: veth, device: v}\n  b: {kind: tap, device: t, mtuu: 1}\n")
	for _, c := range []struct {
		name, input    string
		code           int
		stdout, stderr string
	}{
		{good, "", 0, good + ": ok: 2 ports\n", ""},
		{"-", "ports: {a: {kind: tap, device: t}}", 0, "-: ok: 1 port\n", ""},
		{"-", "", 0, "-: ok: 0 ports\n", ""},
		{
			bad, "", 1, "",
			bad + ":2:13: ports.a.kind: no such port kind \"veth\": use tap, packet or macvtap\n" +
				bad + ":3:29: ports.b.mtuu: no such key: did you mean mtu?\n" +
				"sluice: " + bad + " has 2 errors\n",
		},
		{"-", "name: a b", 1, "", "-:1:7: name: name \"a b\": want letters, digits and . _ @ -, a letter or digit first\n" +
			"sluice: - has 1 error\n"},
		{good + "x", "", 1, "", "sluice: open " + good + "x: no such file or directory\n"},
	} {
		code, stdout, stderr := command(t, c.input, "config", "check", c.name)
		if code != c.code || stdout != c.stdout || stderr != c.stderr {
			t.Errorf("%s: exit code %d, want %d\n%s\n%s\nwant\n%s\n%s", c.name, code, c.code, stdout, stderr, c.stdout, c.stderr)
		}
	}
}

func TestConfigSchema(t *testing.T) {
	code, stdout, stderr := command(t, "", "config", "schema")
	if code != 0 || !json.Valid([]byte(stdout)) || !strings.Contains(stdout, "2020-12") || stderr != "" {
		t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
	}
}

// TestRunFromAFile: the ports are those of the file, and those of -p behind them.
func TestRunFromAFile(t *testing.T) {
	b := newBed(t)
	b.cabled("a", netns.Link{})
	b.built()
	config := file(t, t.TempDir(), "sluice.yaml", "# two\nports:\n  b: {kind: tap, device: tB, mtu: 9000}\n  a:\n    kind: packet\n    device: vA\n")
	out, sum := &netns.Output{}, filepath.Join(t.TempDir(), "sum.json")
	p, err := b.sw.Start(t.Context(), out, netnstest.Binary(t), "run", "--control", "none", "-c", config, "-p", "c=tap:tC", "--summary", sum)
	netnstest.Need(t, err)
	wait(t, "ready", func() bool { return out.String() == "ready\n" })
	if mtu := link(t, b.sw, "tB").MTU; mtu != 9000 {
		t.Errorf("an MTU of %d, want 9000", mtu)
	}
	if err := p.Interrupt(patience); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(sum)
	if err != nil {
		t.Fatal(err)
	}
	var s summary.Summary
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range s.Ports {
		got = append(got, p.Name+" "+p.Kind+" "+p.Device)
	}
	if want := []string{"b tap tB", "a packet vA", "c tap tC"}; !slices.Equal(got, want) {
		t.Errorf("ports %v, want %v", got, want)
	}
}

// TestRunRefuses files and arguments that make no sense together, before it opens anything.
func TestRunRefuses(t *testing.T) {
	good := file(t, t.TempDir(), "sluice.yaml", "ports: {a: {kind: tap, device: t0}}")
	for _, c := range []struct {
		args, input string
		code        int
		says        string
	}{
		{"-c " + good + "x", "", 1, "no such file"},
		{"-c -", "ports: {a: {kind: tap, device: t0, mtu: 1}, b: 5}", 1,
			"sluice: -:1:41: ports.a.mtu: 1 is not a number from 68 to 65535\nsluice: -:1:48: ports.b: 5 is not a map of keys\n"},
		{"-c " + good + " -p a=tap:t1", "", 2, "-p a=tap:t1: there are two ports a"},
		{"-c " + good + " -p b=tap:t0", "", 2, "-p b=tap:t0: ports.b.device: device t0 is under port a already"},
		{"-p a=tap:t0,loop=shut", "", 1, "port a: loop=shut: this version cannot do that yet: leave it out"},
		{"-c - --name x/y", "ports: {a: {kind: tap, device: t0}}", 2, "--name"},
		{"--reserved flood -p a=tap:t0", "", 2, `sluice: --reserved: "flood" is not drop or forward`},
		{"-c - --control /nowhere/s", "ports: {a: {kind: tap, device: t0}}", 1, "control socket"},
	} {
		code, stdout, stderr := command(t, c.input, append([]string{"run"}, strings.Fields(c.args)...)...)
		if code != c.code || stdout != "" || !strings.Contains(stderr, c.says) {
			t.Errorf("%s: exit code %d, want %d\n%s\n%s\nwant\n%s", c.args, code, c.code, stdout, stderr, c.says)
		}
	}
}
