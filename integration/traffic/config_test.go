package traffic

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sluice/integration/netns/netnstest"
)

// command runs sluice with input, and returns its exit code and what it prints.
func command(t *testing.T, input string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(deadline(t, patience), netnstest.Binary(t), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	_ = cmd.Run()
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// file writes a file for the test.
func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "sluice.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestConfigCheck tells every error with its place, as compilers do.
func TestConfigCheck(t *testing.T) {
	good := file(t, "ports:\n  a: {kind: tap, device: t0}\n  b: {kind: tap, device: t1}\n")
	bad := file(t, "ports:\n  a: {kind: veth, device: v}\n  b: {kind: tap, device: t, mtuu: 1}\n")
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
