package service

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
)

// status is a line of each thread's /proc/PID/task/TID/status: the values, each once.
func (m *manager) status(line string) string {
	m.t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", m.cmd.Process.Pid))
	if err != nil || len(files) < 3 {
		m.t.Fatalf("%d threads, %v", len(files), err)
	}
	var values []string
	seen := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it ended
		}
		for l := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(l, ":")
			if value = strings.TrimSpace(value); name == line && !seen[value] {
				seen[value] = true
				values = append(values, value)
			}
		}
	}
	return strings.Join(values, " ")
}

// statuses fails the test where a line is another.
func (m *manager) statuses(want map[string]string) {
	m.t.Helper()
	for line, value := range want {
		if got := m.status(line); got != value {
			m.t.Errorf("%s is %q, want %q", line, got, value)
		}
	}
}

// hosts are two namespaces on veths vA and vB of the switch's, with addresses.
func hosts(t *testing.T) (lab *netns.Lab, sw, a, b *netns.Namespace) {
	lab = netnstest.New(t)
	sw, a, b = lab.Namespace("sw"), lab.Namespace("a"), lab.Namespace("b")
	sw.Silent()
	lab.Veth(a, "eth0", sw, "vA", netns.Link{})
	lab.Veth(b, "eth0", sw, "vB", netns.Link{})
	a.Address("eth0", "10.0.0.1/24")
	b.Address("eth0", "10.0.0.2/24")
	netnstest.Need(t, lab.Err())
	return lab, sw, a, b
}

// exchange moves a megabyte each way.
func exchange(t *testing.T, lab *netns.Lab, a, b *netns.Namespace) {
	t.Helper()
	if err := lab.Exchange(t.Context(), a, b, "10.0.0.2", 1<<20); err != nil {
		t.Error(err)
	}
}

// TestPrivilegesAreGivenUp by every thread, but for those that a later port needs, which
// then can be added.
func TestPrivilegesAreGivenUp(t *testing.T) {
	lab, sw, a, b := hosts(t)
	m := newManager(t)
	m.start(sw, nil, "run", "-p", "a=packet:vA", "-p", "b=packet:vB", "--control", m.control())
	m.told()
	// CAP_DAC_OVERRIDE, NET_ADMIN, NET_RAW, SYS_PTRACE, SYS_ADMIN, MKNOD, BPF.
	const kept = "0000008008283002"
	m.statuses(map[string]string{
		"NoNewPrivs": "1", "Seccomp": "2", "Seccomp_filters": "1",
		"CapPrm": kept, "CapEff": kept, "CapInh": "0000000000000000", "CapAmb": "0000000000000000",
	})
	exchange(t, lab, a, b)
	lab.Veth(a, "m0", sw, "vM", netns.Link{})
	lab.Veth(a, "n0", sw, "vN", netns.Link{})
	netnstest.Need(t, lab.Err())
	// The first has the node /dev/tap4242. For the second a private one is made.
	need(t, a, "ip", "link", "add", "link", "m0", "name", "mM", "index", "4242", "type", "macvtap", "mode", "passthru")
	need(t, sw, "ip", "link", "add", "link", "vM", "name", "mD", "index", "4242", "type", "macvtap", "mode", "passthru")
	need(t, sw, "ip", "link", "set", "mD", "up")
	for _, port := range []string{
		`{"name": "c", "kind": "tap", "device": "tC", "netns": "` + a.Name + `"}`,
		`{"name": "d", "kind": "macvtap", "device": "mD"}`,
		`{"name": "e", "kind": "packet", "device": "vN"}`,
	} {
		if code, text := ask(t, m.control(), http.MethodPost, "/v1/ports", port); code != http.StatusOK {
			t.Errorf("%s: %d %s", port, code, text)
		}
	}
	for _, port := range []string{"c", "d", "e"} {
		wait(t, "port "+port, func() bool { return why(t, m.control(), port) == "up" })
	}
	m.stop()
}

// TestLockedStart fails without a device, also with a file: it would never be had.
func TestLockedStart(t *testing.T) {
	lab := netnstest.New(t)
	ns := lab.Namespace("sw")
	netnstest.Need(t, lab.Err())
	file := filepath.Join(t.TempDir(), "sluice.yaml")
	if err := os.WriteFile(file, []byte("ports: {a: {kind: packet, device: nosuch0}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := newManager(t)
	m.start(ns, nil, "run", "--lock", "-c", file, "--control", m.control())
	wait(t, "its end", func() bool {
		select {
		case <-m.done:
			return true
		default:
			return false
		}
	})
	if code := m.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(m.stderr.String(), "sluice: port a: ") {
		t.Errorf("exit code %d", code)
	}
}

// TestLockedSwitch has no capability, and fewer system calls. It goes on with the ports that
// it has, and refuses what would take more.
func TestLockedSwitch(t *testing.T) {
	lab, sw, a, b := hosts(t)
	need(t, sw, "ip", "tuntap", "add", "dev", "tC", "mode", "tap", "vnet_hdr")
	need(t, sw, "ip", "link", "set", "tC", "up")
	m := newManager(t)
	m.start(sw, nil, "run", "--lock", "-p", "a=packet:vA", "-p", "b=packet:vB,gso_max_size=100000",
		"-p", "c=tap:tC", "--control", m.control())
	m.told()
	const none = "0000000000000000"
	m.statuses(map[string]string{
		"NoNewPrivs": "1", "Seccomp": "2", "Seccomp_filters": "2", "CapPrm": none, "CapEff": none, "CapInh": none, "CapAmb": none,
	})
	if log := m.stderr.String(); !strings.Contains(log, "a locked switch cannot put them back") || strings.Count(log, "cannot put") != 1 {
		t.Errorf("of the sizes that stay it says\n%s", log)
	}
	exchange(t, lab, a, b)

	// Devices are followed.
	need(t, sw, "ip", "link", "set", "vA", "down")
	wait(t, "port a to be down", func() bool { return strings.Contains(why(t, m.control(), "a"), "the device is down") })
	need(t, sw, "ip", "link", "set", "vA", "up")
	wait(t, "port a to be up", func() bool { return why(t, m.control(), "a") == "up" })

	// What needs no device is taken, and what needs one is not.
	for _, c := range []struct {
		method, path, body string
		ok                 bool
	}{
		{http.MethodPatch, "/v1/ports/a", `{"oversize": "segment", "gso_max_size": 30000}`, true},
		{http.MethodPost, "/v1/ports", `{"name": "d", "kind": "tap", "device": "tD"}`, false},
		{http.MethodPatch, "/v1/ports/a", `{"queues": 2}`, false},
		{http.MethodDelete, "/v1/ports/c", "", true},
	} {
		code, text := ask(t, m.control(), c.method, c.path, c.body)
		if c.ok != (code == http.StatusOK) || !c.ok && !strings.Contains(text, "the switch is locked (--lock)") {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, code, text)
		}
	}
	exchange(t, lab, a, b)

	// A device that is made again cannot be opened.
	need(t, sw, "ip", "link", "del", "vA")
	wait(t, "port a to be gone", func() bool { return strings.Contains(why(t, m.control(), "a"), "gone") })
	lab.Veth(a, "eth0", sw, "vA", netns.Link{})
	netnstest.Need(t, lab.Err())
	wait(t, "port a to say why", func() bool { return strings.Contains(why(t, m.control(), "a"), "the switch is locked (--lock)") })
	m.stop()
}
