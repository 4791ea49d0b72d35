package netns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a command that runs in a namespace. It has its own process group, so that a terminal's
// interrupt reaches it only through its maker.
type Process struct {
	name   string
	pid    int
	stderr Output
	cancel context.CancelFunc
	done   chan struct{}
	err    error // how it ended; valid once done is closed
}

// Start starts a command and does not wait for it. It is killed, with its process group, when ctx
// ends, when the lab closes, and when its maker dies. stdout may be nil.
func (ns *Namespace) Start(
	ctx context.Context, stdout io.Writer, name string, args ...string,
) (*Process, error) {
	file, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("netns: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &Process{name: name, cancel: cancel, done: make(chan struct{})}

	// `ip netns exec` becomes the command, under the same pid, after it has mounted
	// a /sys that shows the namespace's devices.
	args = append([]string{"netns", "exec", ns.Name, file}, args...)
	cmd := exec.CommandContext(ctx, "ip", args...)
	cmd.Stdout, cmd.Stderr = stdout, &p.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second // in case a grandchild outside the group still holds the pipes

	// Pdeathsig fires when the forking thread ends, so that thread must live as long as the
	// namespace.
	if err := ns.Do(cmd.Start); err != nil {
		cancel()
		return nil, fmt.Errorf("netns: start %s: %w", name, err)
	}
	p.pid = cmd.Process.Pid
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
		if cause := context.Cause(ctx); p.err != nil && cause != nil {
			p.err = cause
		}
	}()
	ns.lab.onClose(p.Kill)
	return p, nil
}

// Stderr is what the process has written to its standard error so far.
func (p *Process) Stderr() string { return p.stderr.String() }

// PID is the command's process id.
func (p *Process) PID() int { return p.pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill ends the process if it is still running, and waits for its end.
func (p *Process) Kill() {
	p.cancel()
	<-p.done
}

// Wait waits for the process to end. The error says how, with its last output.
func (p *Process) Wait() error {
	<-p.done
	p.cancel()
	if p.err == nil {
		return nil
	}
	if words := strings.TrimSpace(p.stderr.String()); words != "" {
		return fmt.Errorf("netns: %s: %w: %s", p.name, p.err, words)
	}
	return fmt.Errorf("netns: %s: %w", p.name, p.err)
}

// Interrupt asks the process to end, with SIGTERM, and waits for it. After wait it is killed, and
// that is an error.
func (p *Process) Interrupt(wait time.Duration) error {
	select {
	case <-p.done: // another process may have its pid by now
		return p.Wait()
	default:
	}
	if err := unix.Kill(p.pid, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("netns: SIGTERM %s: %w", p.name, err)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.Wait()
	case <-timer.C:
		p.Kill()
		return fmt.Errorf("netns: %s: %w: still ran %v after SIGTERM: %s",
			p.name, os.ErrDeadlineExceeded, wait, strings.TrimSpace(p.stderr.String()))
	}
}

// Run runs a command to its end and returns its standard output.
func (ns *Namespace) Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	var stdout bytes.Buffer
	p, err := ns.Start(ctx, &stdout, name, args...)
	if err != nil {
		return nil, err
	}
	err = p.Wait()
	return stdout.Bytes(), err
}
