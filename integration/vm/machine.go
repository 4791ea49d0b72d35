package vm

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"sluice/integration/netns"
	"sluice/integration/vm/wire"
)

// kernelArgs are the kernel's command line. A kernel that panics reboots at once, and QEMU is told
// to exit then. Mitigations cost an emulated guest much and protect nothing.
const kernelArgs = "console=ttyS0 panic=-1 oops=panic mitigations=off random.trust_cpu=on"

// socketLimit is how long QEMU may take to open its sockets.
const socketLimit = 30 * time.Second

// machine is one QEMU process, from its start to its end.
type machine struct {
	cmd    *exec.Cmd
	done   chan struct{} // closed when it has ended
	err    error         // how it ended; valid once done is closed
	stderr bytes.Buffer  // complete once done is closed

	dir   string
	qmp   *qmp
	agent atomic.Pointer[agent] // another one after a reset
	hung  atomic.Bool           // killed because it did not answer
}

// Files in a guest's directory. Sockets' paths must stay below 108 bytes (sun_path).
const (
	consoleFile = "console"
	imageFile   = "initramfs"
	qmpSocket   = "qmp"
	agentSocket = "agent"
)

func (g *Guest) imageFile() string { return filepath.Join(g.dir, imageFile) }

// cpuModel is QEMU's -cpu.
func cpuModel(accel, release string) string {
	switch {
	case strings.HasPrefix(accel, "kvm"):
		return "host"
	case strings.HasPrefix(release, "6.12."):
		return "EPYC" // it does not boot on an emulated "max"
	}
	return "max"
}

// commandLine is QEMU's command line, in the userland.
func (g *Guest) commandLine(accel string) ([]string, error) {
	u := g.lab.userland
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none",
		"-L", u.Path("usr/share/qemu"), "-L", u.Path("usr/share/seabios"),
		"-machine", "pc", "-accel", accel, "-cpu", cpuModel(accel, g.kernel.Release),
		"-smp", strconv.Itoa(g.spec.cpus), "-m", strconv.Itoa(g.spec.memory),
		"-action", "reboot=shutdown",
		"-kernel", g.kernel.Image, "-initrd", g.imageFile(), "-append", kernelArgs,
		"-chardev", "file,id=console,append=on,path=" + filepath.Join(g.dir, consoleFile),
		"-serial", "chardev:console",
		"-qmp", "unix:" + filepath.Join(g.dir, qmpSocket) + ",server=on,wait=off",
		"-chardev", "socket,id=agent,server=on,wait=off,path=" + filepath.Join(g.dir, agentSocket),
		"-device", "virtio-serial-pci",
		"-device", "virtserialport,chardev=agent,name=" + wire.PortName,
	}
	for i, nic := range g.spec.nics {
		id := fmt.Sprintf("nic%d", i)
		netdev := "tap,id=" + id + ",ifname=" + nic.Tap + ",vnet_hdr=on,script=no,downscript=no"
		device := "virtio-net-pci,netdev=" + id + ",romfile="
		if nic.Queues > 1 {
			netdev += ",queues=" + strconv.Itoa(nic.Queues)
			// One vector for each queue, one for changes, one for control.
			device += ",mq=on,vectors=" + strconv.Itoa(2*nic.Queues+2)
		}
		if nic.MAC != "" {
			device += ",mac=" + nic.MAC
		}
		if nic.MTU > 0 {
			device += ",host_mtu=" + strconv.Itoa(nic.MTU)
		}
		if nic.Offloads != "" {
			device += "," + nic.Offloads
		}
		args = append(args, "-netdev", netdev, "-device", device)
	}
	return u.Command("qemu-system-x86_64", args...)
}

// launch starts QEMU and connects to it. The guest is not up yet.
func (g *Guest) launch(accel string) (_ *machine, err error) {
	line, err := g.commandLine(accel)
	if err != nil {
		return nil, err
	}
	m := &machine{cmd: exec.Command(line[0], line[1:]...), done: make(chan struct{}), dir: g.dir}
	m.cmd.Stderr = &m.stderr
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := startProcess(m.cmd, g.spec.ns); err != nil {
		return nil, fmt.Errorf("vm: start %s: %w", g.name, err)
	}
	go func() {
		m.err = m.cmd.Wait()
		close(m.done)
	}()
	defer func() {
		if err != nil {
			m.kill()
		}
	}()
	conn, err := m.dial(qmpSocket)
	if err != nil {
		return nil, fmt.Errorf("vm: start %s: %w", g.name, err)
	}
	if m.qmp, err = newQMP(conn); err != nil {
		conn.Close()
		return nil, err
	}
	if conn, err = m.dial(agentSocket); err != nil {
		return nil, fmt.Errorf("vm: start %s: %w", g.name, err)
	}
	m.agent.Store(newAgent(conn))
	for _, nic := range g.spec.nics {
		g.spec.ns.SetLink(nic.Tap, netns.Link{MTU: nic.MTU})
		if _, err := g.spec.ns.Link(nic.Tap); err != nil { // SetLink's error
			return nil, err
		}
	}
	return m, nil
}

// dial connects to one of QEMU's sockets, as soon as it is there.
func (m *machine) dial(socket string) (net.Conn, error) {
	end := time.Now().Add(socketLimit)
	for {
		conn, err := net.Dial("unix", filepath.Join(m.dir, socket))
		if err == nil {
			return conn, nil
		}
		if time.Now().After(end) {
			return nil, err
		}
		select {
		case <-m.done:
			return nil, m.end()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// end says how QEMU ended.
func (m *machine) end() error {
	<-m.done
	err := m.err
	if err == nil {
		err = errors.New("exit status 0")
	}
	if words := strings.TrimSpace(m.stderr.String()); words != "" {
		err = fmt.Errorf("%w: %s", err, words)
	}
	return fmt.Errorf("qemu has ended: %w", err)
}

// kill ends QEMU as kill -9 does, and waits for its end.
func (m *machine) kill() {
	_ = m.cmd.Process.Kill()
	<-m.done
	m.hangUp()
}

// killHung kills a QEMU whose guest does not answer.
func (m *machine) killHung() {
	m.hung.Store(true)
	m.kill()
}

// why is ErrHung if the guest did not answer, else nil.
func (m *machine) why() error {
	if m.hung.Load() {
		return ErrHung
	}
	return nil
}

// hangUp closes the connections to a QEMU that has ended.
func (m *machine) hangUp() {
	if m.qmp != nil {
		m.qmp.conn.Close()
	}
	if a := m.agent.Load(); a != nil {
		a.conn.Close()
	}
}

// waitEnd waits until QEMU ends by itself.
func (m *machine) waitEnd(limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-m.done:
		m.hangUp()
		if m.err != nil {
			return m.end()
		}
		return nil
	case <-timer.C:
		return fmt.Errorf("qemu still runs after %v", limit)
	}
}
