package vm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"sluice/integration/vm/wire"
)

const (
	// commandLimit is how long a command or a transfer may take, unless it has its own limit.
	commandLimit = 2 * time.Minute
	// killLimit is how long a killed command may take to end before its guest is considered hung,
	// unless the lab sets another limit. Emulated, busy guests may share two processors.
	killLimit = 30 * time.Second
)

// ErrHung says that a guest did not answer and was killed.
var ErrHung = errors.New("the guest hangs")

// Cmd is a command in a guest, for Start.
type Cmd struct {
	Args   []string
	Env    []string      // in addition to the guest's own
	Dir    string        // / unless given
	Limit  time.Duration // two minutes unless given
	Stdout io.Writer     // gets the output as it comes, instead of Result; called from one goroutine
}

// Result is the output of a command that ended.
type Result struct {
	Stdout, Stderr string
}

// ExitError is a command that ended with a status other than 0.
type ExitError struct {
	Guest  string
	Args   []string
	Code   int
	Signal syscall.Signal // what ended it, or 0
	Result Result
}

func (e *ExitError) Error() string {
	how := fmt.Sprintf("exit status %d", e.Code)
	if e.Signal != 0 {
		how = e.Signal.String()
	}
	text := fmt.Sprintf("vm: %s: %s: %s", e.Guest, strings.Join(e.Args, " "), how)
	for _, out := range []string{e.Result.Stdout, e.Result.Stderr} {
		if out = strings.TrimSpace(out); out != "" {
			text += "\n" + out
		}
	}
	return text
}

// Process is a command that runs in a guest.
type Process struct {
	guest   *Guest
	machine *machine
	agent   *agent
	id      uint64
	cmd     Cmd

	stdout, stderr bytes.Buffer  // owned by the reader until done is closed
	exit           *wire.Message // same; nil if the guest went first
	err            error         // same
	done           chan struct{}
}

func (p *Process) hear(m *wire.Message) {
	switch {
	case m.Kind == wire.Exit:
		p.exit = m
	case m.Stderr:
		p.stderr.Write(m.Body)
	case p.cmd.Stdout != nil:
		if _, err := p.cmd.Stdout.Write(m.Body); err != nil {
			p.err = errors.Join(p.err, err)
		}
	default:
		p.stdout.Write(m.Body)
	}
}

func (p *Process) end(err error) {
	p.err = errors.Join(p.err, err)
	close(p.done)
}

// Start starts a command and does not wait for it.
func (g *Guest) Start(cmd Cmd) (*Process, error) {
	m, a, b, err := g.up()
	if err != nil {
		return nil, err
	}
	if cmd.Limit == 0 {
		cmd.Limit = commandLimit
	}
	p := &Process{guest: g, machine: m, agent: a, cmd: cmd, done: make(chan struct{})}
	if p.id, err = b.begin(p); err != nil {
		return nil, g.errorf("%s: %w", cmd.Args[0], err)
	}
	run := &wire.Message{Kind: wire.Run, ID: p.id, Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir}
	if err := a.wire.Write(run); err != nil {
		return nil, g.errorf("%s: %w: %w", cmd.Args[0], ErrGone, err)
	}
	return p, nil
}

// Background starts a command that runs beside others. It ends with Kill, or with the guest.
func (g *Guest) Background(args ...string) *Process {
	g.lab.t.Helper()
	p, err := g.Start(Cmd{Args: args})
	g.must(err)
	return p
}

// Run runs a command to its end and returns its standard output.
func (g *Guest) Run(args ...string) string {
	g.lab.t.Helper()
	r, err := g.Try(args...)
	g.must(err)
	return r.Stdout
}

// Try runs a command to its end. It fails with *ExitError, ErrGone, ErrHung, or, if
// the command took too long, os.ErrDeadlineExceeded.
func (g *Guest) Try(args ...string) (Result, error) { return g.Do(Cmd{Args: args}) }

// Do is Try with all options of a command.
func (g *Guest) Do(cmd Cmd) (Result, error) {
	p, err := g.Start(cmd)
	if err != nil {
		return Result{}, err
	}
	return p.Wait()
}

// Done is closed when the command has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end of a command. Its limit counts from here.
func (p *Process) Wait() (Result, error) {
	timer := time.NewTimer(p.cmd.Limit)
	defer timer.Stop()
	var late error
	select {
	case <-p.done:
	case <-timer.C:
		late = fmt.Errorf("%w: still ran after %v", os.ErrDeadlineExceeded, p.cmd.Limit)
		p.Kill()
	}
	result := Result{p.stdout.String(), p.stderr.String()}
	switch {
	case p.exit == nil || p.exit.Error != "" || late != nil:
		err := errors.Join(late, p.machine.why(), p.err)
		if p.exit != nil && p.exit.Error != "" {
			err = errors.Join(err, errors.New(p.exit.Error))
		}
		return result, p.guest.errorf("%s: %w", strings.Join(p.cmd.Args, " "), err)
	case p.exit.Code != 0 || p.exit.Signal != 0:
		return result, &ExitError{p.guest.name, p.cmd.Args, p.exit.Code, syscall.Signal(p.exit.Signal), result}
	case p.err != nil:
		return result, p.guest.errorf("%s: %w", p.cmd.Args[0], p.err)
	}
	return result, nil
}

// Signal sends a signal to the command and all processes of its group.
func (p *Process) Signal(s syscall.Signal) error {
	err := p.agent.wire.Write(&wire.Message{Kind: wire.Kill, ID: p.id, Signal: int(s)})
	if err != nil {
		return p.guest.errorf("%v %s: %w: %w", s, p.cmd.Args[0], ErrGone, err)
	}
	return nil
}

// Kill ends the command if it is still running, and waits for its end. If that does not come, the
// guest is killed.
func (p *Process) Kill() {
	// In a goroutine: the socket may be full if the guest hangs.
	go func() { _ = p.Signal(syscall.SIGKILL) }()
	timer := time.NewTimer(p.guest.lab.killLimit)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.machine.killHung()
		<-p.done
	}
}
