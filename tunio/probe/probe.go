package probe

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"sluice/tunio/release"
)

// Run tries the kernel. It needs CAP_SYS_ADMIN, to make a network namespace, and /dev/net/tun for
// the TAP; Result.Why says what was missing. It takes some tens of milliseconds, most of them for
// the namespace.
func Run() Result {
	r := Result{Release: release.Current()}
	r.Tap, r.Packet = byRelease(r.Release)
	var err error
	onThread(func() { err = r.try() })
	r.Probed = err == nil
	if err != nil {
		r.Why = err.Error()
	}
	return r
}

// onThread runs fn on an OS thread that then ends, and every change that fn made to the thread ends
// with it.
func onThread(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if unix.Gettid() != unix.Getpid() {
			fn()
			return
		}
		// The main thread never ends: the runtime would park it in the state that fn left. While it
		// is held, the next goroutine runs on another thread.
		onThread(fn)
		runtime.UnlockOSThread()
	}()
	<-done
}

// try replaces in r what can be tried. It changes the calling thread for good.
func (r *Result) try() error {
	l, err := enter()
	if err != nil {
		return err
	}
	defer l.close()
	return errors.Join(
		wrap("TAP", l.ability(&r.Tap, l.tap)),
		wrap("packet socket", l.ability(&r.Packet, l.packet)),
	)
}

// enter moves the calling thread, for good, into a network namespace of its own.
func enter() (*lab, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		if errors.Is(err, os.ErrPermission) {
			err = fmt.Errorf("%w (needs CAP_SYS_ADMIN)", err)
		}
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	pin()
	return newLab()
}

// ability tries one kind of port, and writes what it finds out to a.
func (l *lab) ability(a *Ability, open func() (*way, error)) error {
	w, err := open()
	if err != nil {
		return err
	}
	defer w.close()
	k := Kind{Ability: *a}
	err = l.try(&k, w)
	*a = k.Ability
	return err
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("probe %s: %w", what, err)
}

// pin keeps the thread on one CPU if permitted: what one CPU sends through a veth arrives in order
// (enqueue_to_backlog in net/core/dev.c has a queue per CPU).
func pin() {
	var may, one unix.CPUSet
	if unix.SchedGetaffinity(0, &may) != nil {
		return
	}
	cpu := 0
	for !may.IsSet(cpu) {
		cpu++
	}
	one.Set(cpu)
	_ = unix.SchedSetaffinity(0, &one)
}
