package vm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sluice/integration/vm/debian"
)

const (
	emulated = "tcg,thread=multi"
	hardware = "kvm"
	// kvmLimit is how long a guest may take to boot with KVM. It takes 2 seconds;
	// where KVM itself is emulated, it may be minutes, or never.
	kvmLimit = 30 * time.Second
)

// accelOnce keeps the laboratories of a process from trying at the same time.
var accelOnce sync.Mutex

// accelerator is what guests run with here: KVM if a guest has really started with
// it. /dev/kvm alone says little: in a nested machine, or a container, it may be
// there and not work. The answer is kept in the cache, for this kernel on this
// processor.
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
	if known, answer, ok := strings.Cut(strings.TrimSpace(string(text)), "\t"); err == nil && ok && known == key {
		return answer, nil
	}
	answer := hardware
	if err := tryKVM(l); err != nil {
		if unavailable := errors.Is(err, debian.ErrUnavailable); unavailable {
			return "", err
		}
		answer = emulated
	}
	return answer, os.WriteFile(file, []byte(key+"\t"+answer+"\n"), 0o644)
}

// machineKey tells machines apart on which KVM may differ.
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

// tryKVM boots a guest with KVM.
func tryKVM(l *Lab) error {
	g, err := l.newGuest(Newest, nil)
	if err != nil {
		return err
	}
	defer os.RemoveAll(g.dir)
	m, err := g.launch(hardware)
	if err != nil {
		return err
	}
	defer m.kill()
	timer := time.NewTimer(kvmLimit)
	defer timer.Stop()
	select {
	case <-m.agent.Load().current().up:
		return nil
	case <-m.done:
		return m.end()
	case <-timer.C:
		return ErrHung
	}
}
