package traffic

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
)

// TestHangUpEndsIt: when its terminal is closed, the switch ends and leaves nothing behind. Under
// nohup it keeps running.
func TestHangUpEndsIt(t *testing.T) {
	b := newBed(t)
	b.cabled("a", netns.Link{})
	b.built()
	before := netdevs(t, b.sw)
	// A signal that is caught is not ignored in a child, even where this test runs under
	// nohup itself.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, unix.SIGHUP)
	defer signal.Stop(caught)
	s := run(t, b.sw, "a=packet:vA,gso_max_size=200000", "m=macvtap:m0,lower=vA")
	if err := unix.Kill(s.PID(), unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if code := s.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if after := netdevs(t, b.sw); after != before {
		t.Errorf("left\n%sof\n%s", after, before)
	}

	nohup := []string{"sh", "-c", `trap "" HUP; exec "$0" "$@"`}
	s = launchUnder(t, b.sw, nohup, netnstest.Binary(t), t.TempDir(), "a=packet:vA")
	s.until("ready", func() bool { return s.out.String() == "ready\n" })
	if err := unix.Kill(s.PID(), unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	must(t, b.sw, "ip", "link", "set", "vA", "down")
	s.says(1, "port=a", "the device is down")
	s.stop()
}

// TestNobodyReadsTheSummary: a full FIFO does not stop the switch from working or from ending.
func TestNobodyReadsTheSummary(t *testing.T) {
	b := newBed(t)
	b.cabled("a", netns.Link{})
	b.built()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	before := netdevs(t, b.sw)
	var out netns.Output
	p, err := b.sw.Start(t.Context(), &out, netnstest.Binary(t), "run", "--control", "none", "--summary", fifo,
		"-p", "a=packet:vA,gso_max_size=200000")
	netnstest.Need(t, err)
	wait(t, "ready", func() bool { return out.String() == "ready\n" })
	wait(t, "the FIFO to be full", func() bool {
		if err := unix.Kill(p.PID(), unix.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(p.Stderr(), "i/o timeout")
	})
	must(t, b.sw, "ip", "link", "set", "vA", "down")
	wait(t, "the port to be down", func() bool {
		return strings.Contains(p.Stderr(), "the device is down")
	})
	must(t, b.sw, "ip", "link", "set", "vA", "up")
	err = p.Interrupt(patience)
	if err == nil || !strings.Contains(err.Error(), "--summary") {
		t.Errorf("it ended with %v, want that the summary could not be written", err)
	}
	if after := netdevs(t, b.sw); after != before {
		t.Errorf("left\n%sof\n%s", after, before)
	}
}

// TestFailedStartWritesNoSummary: an existing one is left as it was.
func TestFailedStartWritesNoSummary(t *testing.T) {
	b := newBed(t)
	b.built()
	s := launch(t, b.sw, "a=packet:nosuch0")
	if code := s.exit(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if _, err := os.Stat(s.summary); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a summary was left: %v", err)
	}
	dir := t.TempDir()
	old := filepath.Join(dir, "summary.json")
	if err := os.WriteFile(old, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = launchUnder(t, b.sw, nil, netnstest.Binary(t), dir, "a=packet:nosuch0")
	if code := s.exit(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if text, err := os.ReadFile(old); string(text) != "old" {
		t.Errorf("the summary of before is %q, %v", text, err)
	}
}
