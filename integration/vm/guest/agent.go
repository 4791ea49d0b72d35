package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sluice/integration/vm/wire"
)

const (
	// portPatience is how long the port may take to appear: the driver finds it some time after its
	// start.
	portPatience = 30 * time.Second
	// drain is how long a command's output may stay open after its end, if a process that it left
	// behind holds it.
	drain = time.Second
)

// guest is the agent's side of the conversation.
type guest struct {
	conn *wire.Conn

	mu       sync.Mutex
	commands map[uint64]*os.Process // guarded by mu: the running ones
	files    map[uint64]*putFile    // the reader's own
}

// agent says hello and then carries out messages. It returns only on an error.
func agent() error {
	port, err := openPort()
	if err != nil {
		return err
	}
	g := &guest{
		conn:     wire.NewConn(port),
		commands: map[uint64]*os.Process{},
		files:    map[uint64]*putFile{},
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err
	}
	release := unix.ByteSliceToString(name.Release[:])
	if err := g.conn.Announce(&wire.Message{Kind: wire.Hello, Release: release}); err != nil {
		return err
	}
	for {
		m, err := g.conn.Read()
		if err != nil {
			return fmt.Errorf("port: %w", err)
		}
		g.do(m)
	}
}

// port reads and writes the virtio-serial port. A read returns nothing while the host's end is
// closed (port_fops_read); that is not the end of the stream.
type port struct{ *os.File }

func (p port) Read(b []byte) (int, error) {
	for {
		n, err := p.File.Read(b)
		if !errors.Is(err, io.EOF) {
			return n, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func openPort() (port, error) {
	for end := time.Now().Add(portPatience); ; time.Sleep(5 * time.Millisecond) {
		names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
		if err != nil {
			return port{}, err
		}
		for _, file := range names {
			name, err := os.ReadFile(file)
			if err != nil || strings.TrimSpace(string(name)) != wire.PortName {
				continue
			}
			dev := filepath.Join("/dev", filepath.Base(filepath.Dir(file)))
			// Blocking, since the driver's poll says "ready" while the host's end is closed.
			fd, err := unix.Open(dev, unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				return port{}, &os.PathError{Op: "open", Path: dev, Err: err}
			}
			return port{os.NewFile(uintptr(fd), dev)}, nil
		}
		if time.Now().After(end) {
			return port{}, fmt.Errorf("no virtio-serial port %q after %v", wire.PortName, portPatience)
		}
	}
}

// do carries out one message. Work that takes time runs in a goroutine.
func (g *guest) do(m *wire.Message) {
	switch m.Kind {
	case wire.Run:
		g.run(m)
	case wire.Kill:
		g.kill(m)
	case wire.Put, wire.Data:
		g.put(m)
	case wire.Get:
		go g.get(m)
	case wire.Halt:
		g.halt(m.How)
	default:
		g.exit(m.ID, fmt.Errorf("nobody says %q to a guest", m.Kind))
	}
}

// send writes to the host. The port does not fail while the guest is alive.
func (g *guest) send(m *wire.Message) {
	if err := g.conn.Write(m); err != nil {
		fatal(fmt.Errorf("port: %w", err))
	}
}

// exit ends the conversation of an id that is not a command's.
func (g *guest) exit(id uint64, err error) {
	m := &wire.Message{Kind: wire.Exit, ID: id}
	if err != nil {
		m.Error = err.Error()
	}
	g.send(m)
}

// run starts a command and follows it to its end.
func (g *guest) run(m *wire.Message) {
	if len(m.Args) == 0 {
		g.exit(m.ID, errors.New("run what?"))
		return
	}
	cmd := exec.Command(m.Args[0], m.Args[1:]...)
	cmd.Dir, cmd.Env = m.Dir, append(environment[:len(environment):len(environment)], m.Env...)
	cmd.Stdout = &output{g: g, id: m.ID}
	cmd.Stderr = &output{g: g, id: m.ID, stderr: true}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a process group for Kill
	cmd.WaitDelay = drain
	if err := cmd.Start(); err != nil {
		g.exit(m.ID, err)
		return
	}
	g.mu.Lock()
	g.commands[m.ID] = cmd.Process
	g.mu.Unlock()
	go func() {
		err := cmd.Wait()
		g.mu.Lock()
		delete(g.commands, m.ID)
		g.mu.Unlock()
		end := &wire.Message{Kind: wire.Exit, ID: m.ID}
		switch status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); {
		case !ok:
			end.Error = fmt.Sprint(err)
		case status.Signaled():
			end.Signal = int(status.Signal())
		default:
			end.Code = status.ExitStatus()
		}
		g.send(end)
	}()
}

// output sends what a command writes.
type output struct {
	g      *guest
	id     uint64
	stderr bool
}

func (o *output) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n := min(len(rest), wire.Chunk)
		o.g.send(&wire.Message{Kind: wire.Out, ID: o.id, Stderr: o.stderr, Body: rest[:n]})
		rest = rest[n:]
	}
	return len(b), nil
}

// kill sends a signal to a command's group. It ignores a command that has ended.
func (g *guest) kill(m *wire.Message) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p, ok := g.commands[m.ID]; ok {
		_ = unix.Kill(-p.Pid, unix.Signal(m.Signal))
	}
}

// putFile is a file that is being received. After an error the rest is ignored.
type putFile struct {
	file *os.File
	mode os.FileMode
	err  error
}

// put opens a file for the pieces that follow, or appends a piece.
func (g *guest) put(m *wire.Message) {
	if m.Kind == wire.Put {
		p := &putFile{mode: os.FileMode(m.Mode) & 0o7777}
		if p.err = os.MkdirAll(filepath.Dir(m.Path), 0o755); p.err == nil {
			p.file, p.err = os.OpenFile(m.Path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, p.mode)
		}
		g.files[m.ID] = p
		return
	}
	p := g.files[m.ID]
	if p == nil {
		g.exit(m.ID, errors.New("data for no file"))
		return
	}
	if p.err == nil {
		_, p.err = p.file.Write(m.Body)
	}
	if !m.EOF {
		return
	}
	delete(g.files, m.ID)
	if p.file != nil {
		p.err = errors.Join(p.err, p.file.Chmod(p.mode), p.file.Close())
	}
	g.exit(m.ID, p.err)
}

// get sends a file.
func (g *guest) get(m *wire.Message) {
	g.exit(m.ID, func() error {
		f, err := os.Open(m.Path)
		if err != nil {
			return err
		}
		defer f.Close()
		buffer := make([]byte, wire.Chunk)
		for {
			n, err := f.Read(buffer)
			if n > 0 {
				g.send(&wire.Message{Kind: wire.Data, ID: m.ID, Body: buffer[:n]})
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
		}
	}())
}

// halt ends the guest, or makes it hang.
func (g *guest) halt(how string) {
	if how == wire.Hang {
		fmt.Println("guest: told to hang")
		for { // running commands continue, but no new one is accepted
			time.Sleep(time.Hour)
		}
	}
	what := unix.LINUX_REBOOT_CMD_POWER_OFF
	if how == wire.Reboot {
		what = unix.LINUX_REBOOT_CMD_RESTART
	}
	g.send(&wire.Message{Kind: wire.Bye})
	fatal(fmt.Errorf("%s: %w", how, unix.Reboot(what)))
}
