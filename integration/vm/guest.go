package vm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"sluice/integration/vm/debian"
	"sluice/integration/vm/wire"
)

const (
	// bootLimit is how long a guest may take until it says hello. An emulated guest alone on two
	// processors takes about 5 seconds.
	bootLimit = 3 * time.Minute
	// haltLimit is how long it may take to power off.
	haltLimit = time.Minute
	// endLines is how many lines of a console a failed test shows.
	endLines = 30
)

// Guest is a virtual machine. It may be started and ended more than once; its file system is new
// each time.
type Guest struct {
	lab    *Lab
	name   string
	dir    string
	spec   spec
	kernel *debian.Kernel

	machine atomic.Pointer[machine] // the latest QEMU; set by start alone
}

// start starts QEMU.
func (g *Guest) start() error {
	m, err := g.launch(g.lab.accel)
	if err == nil {
		g.machine.Store(m)
	}
	return err
}

// errorf reports a failure on the guest.
func (g *Guest) errorf(format string, args ...any) error {
	return fmt.Errorf("vm: "+g.name+": "+format, args...)
}

// must stops the test on an error.
func (g *Guest) must(err error) {
	g.lab.t.Helper()
	if err != nil {
		g.lab.t.Fatal(err)
	}
}

// up waits until the guest has booted.
func (g *Guest) up() (*machine, *agent, *boot, error) {
	m := g.machine.Load()
	if m == nil {
		return nil, nil, nil, g.errorf("%w: it was not started", ErrGone)
	}
	a := m.agent.Load()
	b := a.current()
	timer := time.NewTimer(bootLimit)
	defer timer.Stop()
	select {
	case <-b.up:
		return m, a, b, nil
	case <-m.done:
		return nil, nil, nil, g.errorf("boot: %w: %w", ErrGone, errors.Join(m.why(), m.end()))
	case <-timer.C:
		m.killHung()
		return nil, nil, nil, g.errorf("boot: %w: no hello after %v", ErrHung, bootLimit)
	}
}

// Up waits until the guest has booted, as every command does.
func (g *Guest) Up() {
	g.lab.t.Helper()
	_, _, _, err := g.up()
	g.must(err)
}

// Release is the guest's kernel, as uname -r prints it.
func (g *Guest) Release() string { return g.kernel.Release }

// PID is the process id of the guest's QEMU.
func (g *Guest) PID() int { return g.machine.Load().cmd.Process.Pid }

// Running reports whether the guest's QEMU is running.
func (g *Guest) Running() bool {
	m := g.machine.Load()
	if m == nil {
		return false
	}
	select {
	case <-m.done:
		return false
	default:
		return true
	}
}

// PowerOn starts a guest that has ended.
func (g *Guest) PowerOn() {
	g.lab.t.Helper()
	if g.Running() {
		g.must(g.errorf("power on: it runs"))
	}
	g.must(g.start())
}

// Kill ends the guest's QEMU as kill -9 does, and waits for its end. It may already have ended.
func (g *Guest) Kill() {
	if m := g.machine.Load(); m != nil {
		m.kill()
	}
}

// Quit makes QEMU exit immediately, without telling the guest.
func (g *Guest) Quit() {
	g.lab.t.Helper()
	m := g.machine.Load()
	err := m.qmp.do("quit", nil)
	if errors.Is(err, io.ErrUnexpectedEOF) { // it quits before it answers
		err = nil
	}
	if err == nil {
		err = m.waitEnd(haltLimit)
	}
	g.must(err)
}

// PowerOff makes the guest power itself off, and waits for QEMU's end.
func (g *Guest) PowerOff() {
	g.lab.t.Helper()
	m, a, _, err := g.up()
	if err == nil {
		err = a.wire.Write(&wire.Message{Kind: wire.Halt, How: wire.PowerOff})
	}
	if err == nil {
		err = m.waitEnd(haltLimit)
	}
	g.must(err)
}

// Reboot makes the guest reboot, and waits until it is up again. Its QEMU keeps running, and with
// it the tap.
func (g *Guest) Reboot() {
	g.lab.t.Helper()
	m, a, b, err := g.up()
	if err == nil {
		err = m.rebooting(func() error {
			if err := a.wire.Write(&wire.Message{Kind: wire.Halt, How: wire.Reboot}); err != nil {
				return err
			}
			timer := time.NewTimer(haltLimit)
			defer timer.Stop()
			select {
			case <-b.down:
			case <-timer.C:
				return fmt.Errorf("still up after %v", haltLimit)
			}
			_, _, _, err := g.up()
			return err
		})
	}
	if err != nil {
		err = g.errorf("reboot: %w", err)
	}
	g.must(err)
}

// Reset resets the guest, as its reset button would, and waits until it is up again.
func (g *Guest) Reset() {
	g.lab.t.Helper()
	m := g.machine.Load()
	err := m.rebooting(func() error {
		// The guest must not write between the reset and the new connection. Its messages would be
		// lost, and half a frame of the previous boot would swallow the start of the next.
		if err := m.qmp.do("stop", nil); err != nil {
			return err
		}
		resets := m.qmp.count("RESET")
		if err := m.qmp.do("system_reset", nil); err != nil {
			return err
		}
		if err := m.qmp.wait("RESET", resets+1); err != nil {
			return err
		}
		m.agent.Load().conn.Close()
		<-m.agent.Load().current().down
		conn, err := m.dial(agentSocket)
		if err != nil {
			return err
		}
		m.agent.Store(newAgent(conn))
		if err := m.qmp.do("cont", nil); err != nil {
			return err
		}
		_, _, _, err = g.up()
		return err
	})
	if err != nil {
		err = g.errorf("reset: %w", err)
	}
	g.must(err)
}

// rebooting runs something during which QEMU accepts a reboot. At other times a reboot means that
// the kernel panicked.
func (m *machine) rebooting(do func() error) error {
	if err := m.qmp.do("set-action", map[string]string{"reboot": "reset"}); err != nil {
		return err
	}
	return errors.Join(do(), m.qmp.do("set-action", map[string]string{"reboot": "shutdown"}))
}

// Hang makes the guest never answer again, to test what happens then.
func (g *Guest) Hang() {
	g.lab.t.Helper()
	_, a, _, err := g.up()
	if err == nil {
		err = a.wire.Write(&wire.Message{Kind: wire.Halt, How: wire.Hang})
	}
	g.must(err)
}

// Console is what the guest's kernel and init wrote, in all boots of this test.
func (g *Guest) Console() string {
	text, err := os.ReadFile(g.consolePath())
	if err != nil {
		return fmt.Sprintf("(%v)", err)
	}
	return string(text)
}

func (g *Guest) consolePath() string { return filepath.Join(g.dir, consoleFile) }

// consoleEnd is the console's last lines.
func (g *Guest) consoleEnd() string {
	lines := strings.Split(strings.TrimSpace(g.Console()), "\n")
	return strings.Join(lines[max(0, len(lines)-endLines):], "\n")
}

// keepConsole copies the console to a place that outlives the lab.
func (g *Guest) keepConsole() string {
	name := strings.ReplaceAll(g.lab.t.Name(), "/", "-") + "-" + g.name
	f, err := os.CreateTemp("", "sluice-console-"+name+"-*.log")
	if err != nil {
		return fmt.Sprintf("(not kept: %v)", err)
	}
	defer f.Close()
	if _, err := f.WriteString(g.Console()); err != nil {
		return fmt.Sprintf("%s (not whole: %v)", f.Name(), err)
	}
	return f.Name()
}
