package guests

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sluice/integration/leaktest"
	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
)

var full = flag.Bool("full", false, "run also the tests that boot guests for many minutes")

// onlyFull skips what takes too long for every day.
func onlyFull(t *testing.T) {
	t.Helper()
	if !*full {
		t.Skip("-full is not given: this boots guests for minutes")
	}
}

// TestMain fails the run if a process is left behind.
func TestMain(m *testing.M) {
	flag.Parse()
	code := netnstest.Main(m)
	if peerUsed {
		if dir, err := builtPeer(); err == nil {
			netns.RemoveDir(dir)
		}
	}
	if left := leaktest.Children(); len(left) > 0 {
		fmt.Fprintln(os.Stderr, "left behind: processes", strings.Join(left, " "))
		code = max(code, 1)
	}
	os.Exit(code)
}

var peerUsed bool

// builtPeer is a directory with Command peer, which needs no libraries.
var builtPeer = sync.OnceValues(func() (string, error) {
	dir, err := netns.TempDir("peer")
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", dir,
		"sluice/integration/guests/peer")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build peer: %w: %s", err, out)
	}
	return dir, nil
})

// peerFile is the file of Command peer. TestMain removes it.
func peerFile(t *testing.T) string {
	t.Helper()
	peerUsed = true
	dir, err := builtPeer()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "peer")
}
