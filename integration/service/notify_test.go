package service

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/integration/netns/netnstest"
)

// TestManagerIsTold when the switch is ready, begins and ends a reload, and stops.
func TestManagerIsTold(t *testing.T) {
	lab := netnstest.New(t)
	ns := lab.Namespace("sw")
	netnstest.Need(t, lab.Err())
	m := newManager(t)
	file := filepath.Join(t.TempDir(), "sluice.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("ports: {a: {kind: tap, device: t0}}")
	m.start(ns, nil, "run", "-c", file, "--control", m.control())
	if got := m.told(); got != "READY=1\nSTATUS=switching" {
		t.Fatalf("first it tells %q", got)
	}
	if _, err := ns.Link("t0"); err != nil {
		t.Errorf("it is ready: %v", err)
	}

	reloading := regexp.MustCompile(`^RELOADING=1\nMONOTONIC_USEC=([0-9]+)$`)
	reload := func(want string) {
		t.Helper()
		m.signal(syscall.SIGHUP)
		if got := m.told(); !reloading.MatchString(got) {
			t.Errorf("a reload begins with %q", got)
		}
		if got := m.told(); !strings.HasPrefix(got, want) {
			t.Errorf("a reload ends with %q, want %q", got, want)
		}
	}
	write("ports: {a: {kind: tap, device: t0}, b: {kind: tap, device: t1}}")
	reload("READY=1\nSTATUS=switching")
	if _, err := ns.Link("t1"); err != nil {
		t.Errorf("it is reloaded: %v", err)
	}
	write("ports: 5\nname: 6")
	reload("READY=1\nSTATUS=switching; the last reload changed nothing: " + file + ":1:8: ports: ")
	write("ports: {a: {kind: tap, device: t0}}")
	reload("READY=1\nSTATUS=switching")

	m.signal(syscall.SIGTERM)
	if got := m.told(); got != "STOPPING=1" {
		t.Errorf("at the end it tells %q", got)
	}
	m.ended()
}

// TestControlSocketIsHanded over by the manager: the switch answers there, whatever path it
// would take itself, and leaves the socket to its owner.
func TestControlSocketIsHanded(t *testing.T) {
	lab := netnstest.New(t)
	ns := lab.Namespace("sw")
	netnstest.Need(t, lab.Err())
	m := newManager(t)
	path := filepath.Join(m.dir, "handed")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	other := filepath.Join(m.dir, "other")
	m.start(ns, []*net.UnixListener{l}, "run", "-p", "a=tap:t0", "--control", other)
	m.told()
	if code, text := ask(t, path, http.MethodGet, "/v1/show", ""); code != http.StatusOK {
		t.Errorf("%d %s", code, text)
	}
	if _, err := os.Stat(other); err == nil {
		t.Errorf("there is another socket %s", other)
	}
	m.stop()
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil || s.Mode&unix.S_IFMT != unix.S_IFSOCK {
		t.Errorf("the manager's socket is gone: %v", err)
	}
}
