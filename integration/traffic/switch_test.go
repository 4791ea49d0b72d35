package traffic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/dataplane/summary"
	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
)

// patience bounds every wait.
const patience = time.Minute

// sluice is a `sluice run` that need not become ready, and whose counters must obey the
// laws of conservation.
type sluice struct {
	*netns.Process
	t       testing.TB
	out     *netns.Output
	summary string // file
	stop    func() summary.Summary
}

// launch starts `sluice run` with the given ports, and does not wait for anything.
func launch(t testing.TB, ns *netns.Namespace, ports ...string) *sluice {
	t.Helper()
	return launchUnder(t, ns, nil, netnstest.Binary(t), t.TempDir(), ports...)
}

// launchUnder is launch with a binary that the command in wrap runs, if there is
// one, and a folder for what it writes.
func launchUnder(
	t testing.TB, ns *netns.Namespace, wrap []string, binary, dir string, ports ...string,
) *sluice {
	t.Helper()
	s := &sluice{t: t, out: &netns.Output{}, summary: filepath.Join(dir, "summary.json")}
	command := append(slices.Clone(wrap), binary, "run", "--control", "none", "--summary", s.summary)
	for _, p := range ports {
		if !isFlag(p) {
			command = append(command, "-p")
		}
		command = append(command, p)
	}
	// t's context ends before its cleanups, which ask for the summary.
	p, err := ns.Start(context.WithoutCancel(t.Context()), s.out, command[0], command[1:]...)
	netnstest.Need(t, err)
	s.Process = p
	s.stop = sync.OnceValue(s.end)
	return s
}

// run starts `sluice run` and waits until it is ready and its log tells of every port. It
// ends with the test.
func run(t testing.TB, ns *netns.Namespace, ports ...string) *sluice {
	t.Helper()
	s := launch(t, ns, ports...)
	t.Cleanup(func() {
		s.stop()
		if t.Failed() {
			t.Logf("log of the switch:\n%s", s.logged(""))
		}
	})
	s.until("ready", func() bool {
		select {
		case <-s.Done():
			t.Fatalf("it ended before it was ready: %v\n%s", s.Wait(), s.logged(""))
		default:
		}
		return s.out.String() == "ready\n"
	})
	for _, p := range ports {
		if name, _, _ := strings.Cut(p, "="); !isFlag(p) {
			s.says(1, "port is", "port="+name+" ")
		}
	}
	return s
}

// isFlag reports whether one of run's ports is a flag of `sluice run` instead.
func isFlag(port string) bool { return strings.HasPrefix(port, "--") }

// until waits for a condition.
func (s *sluice) until(what string, cond func() bool) {
	s.t.Helper()
	wait(s.t, what, cond)
}

// wait polls cond until it is true.
func wait(t testing.TB, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := netns.Until(ctx, what, func() (bool, error) { return cond(), nil }); err != nil {
		t.Fatal(err)
	}
}

// end ends the switch and returns its summary, whose counters obey the laws of
// conservation.
func (s *sluice) end() summary.Summary {
	s.t.Helper()
	var sum summary.Summary
	if err := s.Interrupt(patience); err != nil {
		s.t.Errorf("%v\n%s", err, s.logged(""))
		return sum
	}
	text, err := os.ReadFile(s.summary)
	if err == nil {
		err = json.Unmarshal(text, &sum)
	}
	if err == nil {
		err = sum.Conserved()
	}
	if err != nil {
		s.t.Errorf("summary: %v\n%s", err, text)
	}
	return sum
}

// ask has the running switch write its summary, and returns that. Frames that are under
// way may be in some of its counters alone.
func (s *sluice) ask() *summary.Summary {
	s.t.Helper()
	var sum summary.Summary
	const written = "the summary is written"
	was := s.lines(written)
	if err := unix.Kill(s.PID(), unix.SIGUSR1); err != nil {
		s.t.Fatal(err)
	}
	s.says(was+1, written)
	text, err := os.ReadFile(s.summary)
	if err == nil {
		err = json.Unmarshal(text, &sum)
	}
	if err != nil {
		s.t.Fatalf("summary: %v\n%s", err, text)
	}
	return &sum
}

// port ends the switch and returns a port's part of its summary.
func (s *sluice) port(name string) summary.Port {
	s.t.Helper()
	sum := s.stop()
	p := sum.Port(name)
	if p == nil {
		s.t.Fatalf("no port %s in the summary", name)
	}
	return *p
}

// logged is the lines of the log, up to now, with all of parts in them.
func (s *sluice) logged(parts ...string) string {
	var found strings.Builder
	for line := range strings.Lines(s.Stderr()) {
		all := true
		for _, p := range parts {
			all = all && strings.Contains(line, p)
		}
		if all {
			found.WriteString(line)
		}
	}
	return found.String()
}

// lines is the number of lines of the log with all of parts in them.
func (s *sluice) lines(parts ...string) int { return strings.Count(s.logged(parts...), "\n") }

// says waits until the log has n lines, or more, with all of parts in them.
func (s *sluice) says(n int, parts ...string) {
	s.t.Helper()
	s.until(fmt.Sprintf("%d lines in the log with %q", n, parts), func() bool {
		return s.lines(parts...) >= n
	})
}

// exit waits for the process to end by itself, and returns its exit code.
func (s *sluice) exit() int {
	s.t.Helper()
	s.until("sluice to end", func() bool {
		select {
		case <-s.Done():
			return true
		default:
			return false
		}
	})
	var exit *exec.ExitError
	switch err := s.Wait(); {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	default:
		s.t.Fatal(err)
		return -1
	}
}

// proc is a file of the process under /proc.
func (s *sluice) proc(name string) string {
	return filepath.Join("/proc", strconv.Itoa(s.PID()), name)
}

// descriptors is how many the process has open.
func (s *sluice) descriptors() int {
	s.t.Helper()
	fds, err := os.ReadDir(s.proc("fd"))
	if err != nil {
		s.t.Fatal(err)
	}
	return len(fds)
}

// fewDescriptors waits until the process has no more open than that: it may be about to
// close some.
func (s *sluice) fewDescriptors(most int) {
	s.t.Helper()
	s.until(fmt.Sprintf("at most %d descriptors", most), func() bool {
		return s.descriptors() <= most
	})
}

// clockTick is the unit of times in /proc/PID/stat: USER_HZ, which is 100 on all
// architectures that Go knows on Linux.
const clockTick = 10 * time.Millisecond

// cpu is the processor time that the process has used.
func (s *sluice) cpu() time.Duration {
	s.t.Helper()
	text, err := os.ReadFile(s.proc("stat"))
	if err != nil {
		s.t.Fatal(err)
	}
	// proc(5): the name, in parentheses, may hold anything; utime and stime are
	// fields 14 and 15, the state behind the name is 3.
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var ticks time.Duration
	for _, field := range f[14-3 : 16-3] {
		n, err := strconv.Atoi(field)
		if err != nil {
			s.t.Fatal(err)
		}
		ticks += time.Duration(n)
	}
	return ticks * clockTick
}
