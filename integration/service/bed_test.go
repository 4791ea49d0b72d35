package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
)

// patience bounds every wait.
const patience = time.Minute

// wait waits until a condition holds.
func wait(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

// need runs a command in a namespace.
func need(t testing.TB, ns *netns.Namespace, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := ns.Run(ctx, name, args...)
	netnstest.Need(t, err)
	return string(out)
}

// manager is what a service manager is to its service.
type manager struct {
	t      testing.TB
	notify *net.UnixConn
	dir    string
	cmd    *exec.Cmd
	stderr netns.Output
	done   chan struct{}
}

// newManager listens for what services tell it.
func newManager(t testing.TB) *manager {
	t.Helper()
	m := &manager{t: t, dir: t.TempDir()}
	var err error
	m.notify, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: filepath.Join(m.dir, "notify")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.notify.Close() })
	return m
}

// control is the path of the control socket.
func (m *manager) control() string { return filepath.Join(m.dir, "control") }

// start starts a service in a namespace, and hands it the sockets.
func (m *manager) start(ns *netns.Namespace, handed []*net.UnixListener, args ...string) {
	m.t.Helper()
	// The variable has the service's own process ID, which the shell becomes.
	args = append([]string{"-c", `LISTEN_PID=$$ exec "$0" "$@"`, netnstest.Binary(m.t)}, args...)
	m.cmd = exec.Command("sh", args...)
	m.cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+m.notify.LocalAddr().String(), fmt.Sprint("LISTEN_FDS=", len(handed)))
	m.cmd.Stderr = &m.stderr
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	for _, l := range handed {
		f, err := l.File()
		if err != nil {
			m.t.Fatal(err)
		}
		defer f.Close()
		m.cmd.ExtraFiles = append(m.cmd.ExtraFiles, f)
	}
	netnstest.Need(m.t, ns.Do(m.cmd.Start))
	m.done = make(chan struct{})
	go func() {
		defer close(m.done)
		_ = m.cmd.Wait()
	}()
	m.t.Cleanup(func() {
		_ = m.cmd.Process.Kill()
		<-m.done
		if m.t.Failed() {
			m.t.Logf("log of the switch:\n%s", m.stderr.String())
		}
	})
}

// told is the next message of the service.
func (m *manager) told() string {
	m.t.Helper()
	var b [4096]byte
	for end := time.Now().Add(patience); ; {
		ended := false
		select {
		case <-m.done:
			ended = true // what it had told before is still there
		default:
		}
		_ = m.notify.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		n, err := m.notify.Read(b[:])
		switch {
		case err == nil:
			return string(b[:n])
		case ended:
			m.t.Fatalf("the service has ended and told nothing: %v", m.cmd.ProcessState)
		case time.Now().After(end):
			m.t.Fatalf("the service tells nothing: %v", err)
		}
	}
}

// signal sends the service a signal.
func (m *manager) signal(s syscall.Signal) {
	m.t.Helper()
	if err := m.cmd.Process.Signal(s); err != nil {
		m.t.Fatal(err)
	}
}

// ended waits for the service's end, which has to be a good one.
func (m *manager) ended() {
	m.t.Helper()
	select {
	case <-m.done:
	case <-time.After(patience):
		m.t.Fatal("the service does not end")
	}
	if code := m.cmd.ProcessState.ExitCode(); code != 0 {
		m.t.Errorf("it ended with %v", m.cmd.ProcessState)
	}
}

// stop ends the service.
func (m *manager) stop() {
	m.t.Helper()
	m.signal(syscall.SIGTERM)
	m.ended()
}

// ask makes a request of the control socket, and returns the answer's status and body.
func ask(t testing.TB, socket, method, path, body string) (int, string) {
	t.Helper()
	client := http.Client{
		Timeout: patience,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", socket)
			},
		},
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://sluice"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// why is what a port's state says about it; "up" where it is.
func why(t testing.TB, socket, port string) string {
	t.Helper()
	_, text := ask(t, socket, http.MethodGet, "/v1/show", "")
	var state struct {
		Ports []struct {
			Name, Why string
			Up        bool
		}
	}
	if err := json.NewDecoder(bytes.NewReader([]byte(text))).Decode(&state); err != nil {
		t.Fatal(err)
	}
	for _, p := range state.Ports {
		switch {
		case p.Name == port && p.Up:
			return "up"
		case p.Name == port:
			return p.Why
		}
	}
	t.Fatal(errors.New("there is no port " + port))
	return ""
}
