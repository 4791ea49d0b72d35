package deb

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
)

func TestMain(m *testing.M) { os.Exit(netnstest.Main(m)) }

// root is the repository's.
const root = "../.."

// build makes the package, and returns its file.
func build(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		netnstest.Need(t, err)
	}
	dir := t.TempDir()
	// The toolchain's cache is the user's, the package the test's.
	out, err := exec.CommandContext(t.Context(), root+"/scripts/deb/build", dir, "1.2.3").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "sluice_1.2.3_*.deb"))
	if len(files) != 1 {
		t.Fatalf("packages %q\n%s", files, out)
	}
	return files[0]
}

// output is what a command prints.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

// TestPackage: what is in it, what it makes of a machine, and that it goes.
func TestPackage(t *testing.T) {
	deb := build(t)
	m := newMachine(t)
	t.Run("content", func(t *testing.T) { content(t, deb) })

	text, err := os.ReadFile(deb)
	if err != nil {
		t.Fatal(err)
	}
	m.put("/tmp/sluice.deb", string(text))
	m.run("dpkg", "--install", "/tmp/sluice.deb")
	m.run("getent", "group", "sluice")
	m.run("getent", "passwd", "sluice")
	for _, unit := range []string{"sluice.service", "sluice@lab.service"} {
		t.Run(unit, func(t *testing.T) { hardened(t, m, unit) })
	}
	t.Run("pages", func(t *testing.T) { pages(t, m) })
	t.Run("service", func(t *testing.T) { service(t, m) })

	if _, err := m.try("systemctl", "--version"); err == nil {
		m.run("systemctl", "enable", "sluice.service", "sluice@lab.service")
		m.run("test", "-L", "/etc/systemd/system/multi-user.target.wants/sluice@lab.service")
	}
	m.run("dpkg", "--remove", "sluice")
	m.run("test", "-e", "/etc/sluice/sluice.yaml") // the user's
	m.run("dpkg", "--purge", "sluice")
	for _, database := range []string{"group", "passwd"} {
		if out, err := m.try("getent", database, "sluice"); err == nil {
			t.Errorf("left in %s: %s", database, out)
		}
	}
	for _, file := range m.written() {
		if _, err := m.try("test", "-e", file, "-o", "-L", file); err != nil {
			continue // a whiteout: it went
		}
		if strings.Contains(file, "sluice") {
			t.Errorf("left: %s", file)
		}
	}
	if out, _ := m.try("find", "/run", "/etc", "-name", "*sluice*"); out != "" {
		t.Errorf("left: %s", out)
	}
}

// content looks at the package alone.
func content(t *testing.T, deb string) {
	var got []string
	page := regexp.MustCompile(`/man1/sluice-[a-z-]+\.1\.gz$`)
	for line := range strings.Lines(output(t, "dpkg-deb", "--contents", deb)) {
		f := strings.Fields(line)
		mode, owner, name := f[0], f[1], strings.TrimPrefix(f[5], ".")
		want := "-rw-r--r--"
		switch {
		case strings.HasSuffix(name, "/"):
			want = "drwxr-xr-x"
		case name == "/usr/bin/sluice":
			want = "-rwxr-xr-x"
		}
		if mode != want || owner != "root/root" {
			t.Errorf("%s is %s of %s, want %s", name, mode, owner, want)
		}
		if want[0] == '-' && !page.MatchString(name) { // a page for each command
			got = append(got, name)
		}
	}
	want := []string{
		"/etc/sluice/sluice.yaml",
		"/usr/bin/sluice",
		"/usr/lib/systemd/system/sluice.service",
		"/usr/lib/systemd/system/sluice.socket",
		"/usr/lib/systemd/system/sluice@.service",
		"/usr/lib/systemd/system/sluice@.socket",
		"/usr/share/bash-completion/completions/sluice",
		"/usr/share/doc/sluice/README.md",
		"/usr/share/fish/vendor_completions.d/sluice.fish",
		"/usr/share/man/man1/sluice.1.gz",
		"/usr/share/man/man5/sluice.yaml.5.gz",
		"/usr/share/sluice/sluice.schema.json",
		"/usr/share/zsh/vendor-completions/_sluice",
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("files\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := output(t, "dpkg-deb", "--info", deb, "conffiles"); got != "/etc/sluice/sluice.yaml\n" {
		t.Errorf("conffiles %q", got)
	}
}

// hardened asks systemd what it thinks of a unit.
func hardened(t *testing.T, m *machine, unit string) {
	if _, err := m.try("systemd-analyze", "--version"); err != nil {
		t.Skip("systemd-analyze is not there")
	}
	source := regexp.MustCompile(`@[a-z]+\.`).ReplaceAllString(unit, "@.")
	if out, err := m.try("systemd-analyze", "verify", "--man=no", "/usr/lib/systemd/system/"+unit); err != nil ||
		strings.Contains(out, "sluice") {
		t.Errorf("%s: %v\n%s", unit, err, out)
	}
	// Of a template it takes a copy under an instance's name.
	m.run("cp", "/usr/lib/systemd/system/"+source, "/tmp/"+unit)
	out, err := m.try("systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold=30", "/tmp/"+unit)
	if err != nil {
		t.Errorf("%s: %v\n%s", unit, err, out)
	}
	if i := strings.LastIndex(out, "Overall"); i >= 0 {
		t.Log(strings.TrimSpace(out[i:]))
	}
}

// pages are there for each command, and without a fault.
func pages(t *testing.T, m *machine) {
	help := m.run("sluice", "--help")
	_, commands, _ := strings.Cut(help, "Available Commands:\n")
	commands, _, _ = strings.Cut(commands, "\n\n")
	n := 0
	for line := range strings.Lines(commands) {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), " "); name != "help" && name != "" {
			m.run("test", "-e", "/usr/share/man/man1/sluice-"+name+".1.gz")
			n++
		}
	}
	if n < 3 {
		t.Errorf("%d commands in\n%s", n, help)
	}
	if _, err := m.try("groff", "--version"); err != nil {
		t.Skip("groff is not there")
	}
	out := m.run("sh", "-c", `for p in /usr/share/man/man[15]/sluice*; do zcat "$p" | groff -man -Tutf8 -ww -z; done`)
	if out != "" {
		t.Errorf("groff says\n%s", out)
	}
}

// service does with sluice.service what systemd would: it opens the socket, runs the probe,
// and runs the switch as the unit's user with the unit's capabilities.
func service(t *testing.T, m *machine) {
	unit := m.run("cat", "/usr/lib/systemd/system/sluice.service")
	value := func(key string) string {
		t.Helper()
		for line := range strings.Lines(unit) {
			if v, ok := strings.CutPrefix(line, key+"="); ok {
				return strings.TrimSpace(v)
			}
		}
		t.Fatalf("the unit has no %s", key)
		return ""
	}
	m.run(strings.Fields(strings.TrimPrefix(value("ExecStartPre"), "+"))...)
	if value("User") != "sluice" || value("Type") != "notify" {
		t.Errorf("it runs as %s, %s", value("User"), value("Type"))
	}
	var caps []string
	for _, c := range strings.Fields(value("AmbientCapabilities")) {
		caps = append(caps, "+"+strings.ToLower(strings.TrimPrefix(c, "CAP_")))
	}
	all := strings.Join(caps, ",")

	notify := filepath.Join(t.TempDir(), "notify")
	// An abstract name, which is of a network namespace: the service has another file system.
	var told *net.UnixConn
	err := m.ns.Do(func() (err error) {
		told, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: "@" + notify})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer told.Close()
	tells := func() string {
		t.Helper()
		var b [4096]byte
		_ = told.SetReadDeadline(time.Now().Add(patience))
		n, err := told.Read(b[:])
		if err != nil {
			t.Fatalf("the service tells nothing: %v", err)
		}
		return string(b[:n])
	}

	args := []string{
		"setpriv", "--reuid", "sluice", "--regid", "sluice", "--clear-groups", "--no-new-privs",
		"--bounding-set", "-all," + all, "--inh-caps", "-all," + all, "--ambient-caps", "-all," + all,
	}
	cmd := m.command(append(args, strings.Fields(value("ExecStart"))...)...)
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET=@"+notify)
	var log netns.Output
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	defer func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("the service's log:\n%s", log.String())
		}
	}()
	if got := tells(); !strings.HasPrefix(got, "READY=1") {
		t.Fatalf("it tells %q", got)
	}
	// It was told what the kernel takes, and what it was given it kept.
	if strings.Contains(log.String(), "not probed") {
		t.Error("it does not know the kernel")
	}
	there := func(tap string) func() bool {
		return func() bool { _, err := m.ns.Link(tap); return err == nil }
	}
	wait(t, "the taps", there("sluice-a"))
	wait(t, "the taps", there("sluice-b"))

	// A port whose netdev is kept from the host takes every capability that the unit grants.
	m.run("ip", "link", "add", "vP", "type", "veth", "peer", "name", "vQ")
	m.run("ip", "link", "set", "vP", "up")
	m.run("ip", "link", "set", "vQ", "up")
	m.put("/etc/sluice/sluice.yaml", "ports: {a: {kind: tap, device: sluice-a}, c: {kind: tap, device: sluice-c},"+
		" p: {kind: packet, device: vP, host: drop}}\n")
	reload := strings.Fields(strings.ReplaceAll(value("ExecReload"), "$MAINPID", fmt.Sprint(cmd.Process.Pid)))
	m.run(reload...)
	if got := tells(); !strings.HasPrefix(got, "RELOADING=1") {
		t.Errorf("it tells %q", got)
	}
	if got := tells(); got != "READY=1\nSTATUS=switching" {
		t.Errorf("it tells %q", got)
	}
	wait(t, "the new ports", func() bool {
		return there("sluice-c")() && regexp.MustCompile(`"port is up" port=p`).MatchString(log.String())
	})
	if strings.Contains(log.String(), "WARN") {
		t.Errorf("it warns\n%s", log.String())
	}
	if there("sluice-b")() {
		t.Error("sluice-b is still there")
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	<-ended
	if !cmd.ProcessState.Success() {
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
	if there("sluice-c")() {
		t.Error("sluice-c is left")
	}
}
