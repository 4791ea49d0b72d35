package deb

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
)

// patience bounds every wait.
const patience = time.Minute

func wait(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

// machine is a copy of this machine's file system, in a network namespace of its own. What
// is written there is in memory, and goes with the process that holds the mounts.
type machine struct {
	t   testing.TB
	ns  *netns.Namespace
	pid int
	dir string // where the mounts are, to those who are inside
}

// inside begins a machine: the lower layer is what / has, mounts below it left out. The TAPs'
// node has the mode that systemd gives it (50-udev-default.rules).
const inside = `set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/merged"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/merged"
for d in proc sys dev; do mount --rbind "/$d" "$1/merged/$d"; done
mount -t tmpfs tmpfs "$1/merged/run"
mount -t tmpfs tmpfs "$1/merged/tmp"
mount -t tmpfs tmpfs "$1/merged/dev/net"
mknod -m 666 "$1/merged/dev/net/tun" c 10 200
echo mounted
exec sleep infinity`

func newMachine(t testing.TB) *machine {
	t.Helper()
	lab := netnstest.New(t)
	m := &machine{t: t, ns: lab.Namespace("deb"), dir: t.TempDir()}
	netnstest.Need(t, lab.Err())
	// `ip netns exec` has given the process a mount namespace of its own.
	var out netns.Output
	p, err := m.ns.Start(context.WithoutCancel(t.Context()), &out, "sh", "-c", inside, "sh", m.dir)
	netnstest.Need(t, err)
	m.pid = p.PID()
	wait(t, "the mounts", func() bool {
		select {
		case <-p.Done():
			t.Fatal(p.Wait())
		default:
		}
		return out.String() == "mounted\n"
	})
	return m
}

// command is a command that runs in the machine.
func (m *machine) command(args ...string) *exec.Cmd {
	into := []string{"--target", fmt.Sprint(m.pid), "--mount", "--net", "chroot", filepath.Join(m.dir, "merged")}
	cmd := exec.CommandContext(m.t.Context(), "nsenter", append(into, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	return cmd
}

// run runs a command in the machine, to a good end.
func (m *machine) run(args ...string) string {
	m.t.Helper()
	out, err := m.try(args...)
	if err != nil {
		m.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// try runs a command in the machine.
func (m *machine) try(args ...string) (string, error) {
	var out bytes.Buffer
	cmd := m.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// put writes a file of the machine.
func (m *machine) put(name, text string) {
	m.t.Helper()
	cmd := m.command("sh", "-c", `cat >"$0"`, name)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		m.t.Fatalf("write %s: %v\n%s", name, err, out)
	}
}

// written are the files that differ from those of this machine.
func (m *machine) written() []string {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), "nsenter", "--target", fmt.Sprint(m.pid), "--mount",
		"find", filepath.Join(m.dir, "upper"), "-not", "-type", "d", "-printf", "/%P\n")
	out, err := cmd.Output()
	if err != nil {
		m.t.Fatal(err)
	}
	return strings.Fields(string(out))
}
