package confine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// child is the variable that says which part of a test the test binary is to play.
const child = "SLUICE_TEST_CHILD"

func TestMain(m *testing.M) {
	if what := os.Getenv(child); what != "" {
		if err := children[what](); err != nil {
			fmt.Println(err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// children are what a process tries once its calls are filtered. Each runs alone.
var children = map[string]func() error{
	"opens": func() error {
		return filtered(Start, func() error {
			if fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE); err != nil {
				return fmt.Errorf("a netlink socket: %w", err)
			} else if err := unix.Close(fd); err != nil {
				return err
			}
			if err := unix.Mount("none", "/nowhere", "tmpfs", 0, ""); err != unix.EPERM {
				return fmt.Errorf("a mount: %v, want EPERM", err)
			}
			return nil
		})
	},
	"locked": func() error {
		return filtered(func() error { return errors.Join(Start(), lockCalls()) }, func() error {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
			if err != nil {
				return fmt.Errorf("a unix socket: %w", err)
			}
			unix.Close(fd)
			for _, family := range []int{unix.AF_NETLINK, unix.AF_PACKET, unix.AF_INET} {
				if _, err := unix.Socket(family, unix.SOCK_RAW, 0); err != unix.EPERM {
					return fmt.Errorf("a socket of family %d: %v, want EPERM", family, err)
				}
			}
			if err := unix.Unshare(unix.CLONE_FS); err != unix.EPERM {
				return fmt.Errorf("unshare: %v, want EPERM", err)
			}
			return nil
		})
	},
	"executes": func() error {
		return filtered(Start, func() error { return syscall.Exec("/bin/true", []string{"true"}, nil) })
	},
}

// filtered filters calls, and tries on a thread that was there before.
func filtered(filter, try func() error) error {
	filtered, tried := make(chan struct{}), make(chan error)
	ready := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		close(ready)
		<-filtered
		tried <- try()
	}()
	<-ready
	if err := filter(); err != nil {
		return err
	}
	close(filtered)
	return <-tried
}

// play runs the test binary as a child.
func play(t *testing.T, what string) (*os.ProcessState, string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), child+"="+what)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState, string(out)
}

// TestCallsAreFiltered on every thread: what is listed works, and what is not is EPERM.
func TestCallsAreFiltered(t *testing.T) {
	for _, what := range []string{"opens", "locked"} {
		if state, out := play(t, what); !state.Success() {
			t.Errorf("%s: %v: %s", what, state, out)
		}
	}
}

// TestExecEndsTheProcess: the switch starts no program, so whoever tries is not the switch.
func TestExecEndsTheProcess(t *testing.T) {
	state, out := play(t, "executes")
	if status := state.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != unix.SIGSYS {
		t.Errorf("it ended with %v: %s", state, out)
	}
}

// TestNamesAreNames: a name that no architecture has is a typing error.
func TestNamesAreNames(t *testing.T) {
	all := slices.Concat(ofRuntime, ofSwitch, ofOpening, hostile)
	for i, name := range all {
		_, amd := arch.X86_64.SyscallNames[name]
		_, arm := arch.AARCH64.SyscallNames[name]
		if !amd && !arm {
			t.Errorf("there is no system call %q", name)
		}
		if slices.Contains(all[:i], name) {
			t.Errorf("%q is there twice", name)
		}
	}
}

// TestCapabilities that a set has.
func TestCapabilities(t *testing.T) {
	if got := fmt.Sprintf("%016x", uint64(setOf(LaterPorts()))); got != "0000008008283002" {
		t.Errorf("the set is %s", got)
	}
	if err := Keep(LaterPorts()...); err != nil && !strings.Contains(err.Error(), "CGO_ENABLED=0") {
		t.Error(err) // what is not permitted is no error
	}
}
