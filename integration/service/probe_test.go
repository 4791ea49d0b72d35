package service

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sluice/integration/netns/netnstest"
)

// TestProbeFile: a switch goes by what was found on this kernel, and by nothing else.
func TestProbeFile(t *testing.T) {
	lab := netnstest.New(t)
	ns := lab.Namespace("sw")
	netnstest.Need(t, lab.Err())
	good := filepath.Join(t.TempDir(), "probe.json")
	need(t, ns, netnstest.Binary(t), "probe", good)
	text, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(good + ".*"); len(left) > 0 {
		t.Errorf("left %q", left)
	}
	m := newManager(t)
	m.start(ns, nil, "run", "-p", "a=tap:t0", "--control", m.control(), "--probe", good)
	m.told()
	m.stop()

	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, text, says string }{
		{"another kernel", strings.ReplaceAll(string(text), strings.TrimSpace(string(release)), "5.0"), `it is of the kernel "5.0"`},
		{"no form", strings.ReplaceAll(string(text), `"IPv6":`, `"IPv6":9,"was":`), "values that no kernel has"},
		{"half", string(text[:len(text)/2]), "unexpected end"},
	} {
		file := filepath.Join(t.TempDir(), "bad.json")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), netnstest.Binary(t), "run", "-p", "a=tap:t0", "--control", m.control(), "--probe", file)
		cmd.Stderr = &stderr
		_ = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(stderr.String(), c.says) ||
			!strings.Contains(stderr.String(), "`sluice probe "+file+"`") {
			t.Errorf("%s: exit code %d, and it says %s", c.name, code, stderr.String())
		}
	}
}
