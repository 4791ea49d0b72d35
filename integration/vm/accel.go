package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	emulated = "tcg,thread=multi"
	hardware = "kvm"
	// kvmLimit is how long a guest may take to boot with KVM, which is faster than emulation. A
	// guest may also stop silently: a KVM nested in another, without hardware support, ends at the
	// first instruction that it cannot emulate.
	kvmLimit = 30 * time.Second
)

// accelOnce keeps the labs of a process from trying at the same time.
var accelOnce sync.Mutex

// accelerator is what guests run with here: KVM if a guest really started with it. The presence of
// /dev/kvm says little: in a nested machine, or a container, it may not work. The answer is kept in
// the cache, for this kernel on this processor.
func accelerator(l *Lab) (string, error) {
	if err := unix.Access("/dev/kvm", unix.R_OK|unix.W_OK); err != nil {
		return emulated, nil
	}
	key, err := machineKey()
	if err != nil {
		return "", err
	}
	accelOnce.Lock()
	defer accelOnce.Unlock()
	file := filepath.Join(l.cache.Dir(), "accel")
	text, err := os.ReadFile(file)
	known, answer, ok := strings.Cut(strings.TrimSpace(string(text)), "\t")
	if err == nil && ok && known == key {
		return answer, nil
	}
	g, err := l.newGuest(Newest, nil)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(g.dir)
	answer = emulated
	if g.bootsWith(hardware) {
		answer = hardware
	}
	return answer, os.WriteFile(file, []byte(key+"\t"+answer+"\n"), 0o644)
}

// machineKey distinguishes machines on which KVM may differ.
func machineKey() (string, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", fmt.Errorf("vm: uname: %w", err)
	}
	cpu := "?"
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", fmt.Errorf("vm: %w", err)
	}
	for line := range strings.Lines(string(info)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			cpu = strings.TrimSpace(value)
			break
		}
	}
	return unix.ByteSliceToString(name.Release[:]) + " on " + cpu, nil
}

// bootsWith tries whether the guest boots with an accelerator.
func (g *Guest) bootsWith(accel string) bool {
	m, err := g.launch(accel)
	if err != nil {
		return false
	}
	defer m.kill()
	timer := time.NewTimer(kvmLimit)
	defer timer.Stop()
	select {
	case <-m.agent.Load().current().up:
		return true
	case <-m.done:
	case <-timer.C:
	}
	return false
}
