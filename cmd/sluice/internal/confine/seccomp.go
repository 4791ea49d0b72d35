package confine

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// ofRuntime is what Go's runtime and its standard library call for memory, threads, time,
// files and sockets. Names that an architecture does not have are left out there.
var ofRuntime = []string{
	// memory
	"brk", "mmap", "munmap", "mremap", "mprotect", "madvise", "mincore", "membarrier",
	// threads and signals
	"clone", "clone3", "exit", "exit_group", "futex", "gettid", "getpid", "getppid", "tgkill", "tkill", "kill",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigtimedwait", "sigaltstack", "restart_syscall", "rseq",
	"set_robust_list", "set_tid_address", "arch_prctl", "sched_yield", "sched_getaffinity", "prlimit64", "getrlimit",
	// time and random numbers
	"nanosleep", "clock_nanosleep", "clock_gettime", "clock_getres", "gettimeofday", "getrandom", "setitimer",
	"timer_create", "timer_settime", "timer_delete",
	// files
	"read", "write", "readv", "writev", "pread64", "pwrite64", "open", "openat", "openat2", "close", "close_range",
	"lseek", "ftruncate", "fstat", "stat", "lstat", "newfstatat", "statx", "fstatfs", "access", "faccessat", "faccessat2",
	"readlink", "readlinkat", "getdents64", "getcwd", "unlink", "unlinkat", "rename", "renameat", "renameat2",
	"fcntl", "flock", "dup", "dup3", "pipe2", "sendfile", "fsync", "uname", "sysinfo",
	// waiting
	"epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait", "eventfd2", "ppoll", "poll", "pselect6",
	// sockets
	"bind", "connect", "listen", "accept4", "shutdown", "getsockname", "getpeername", "getsockopt", "setsockopt",
	"sendto", "sendmsg", "recvfrom", "recvmsg",
	// identity: to compare with a client's
	"getuid", "geteuid", "getgid", "getegid", "getgroups", "capget",
}

// ofSwitch is what Sluice itself calls, locked or not: batches, TAP and netdev controls, the
// CPU of a worker.
var ofSwitch = []string{"sendmmsg", "ioctl", "sched_setaffinity", "chmod", "fchmodat", "chown", "fchownat", "lchown"}

// ofOpening is what it takes to open devices and namespaces, and to give up privileges.
var ofOpening = []string{
	"socket", "socketpair", "bpf", "setns", "unshare", "mkdir", "mkdirat", "rmdir", "mknod", "mknodat",
	"fsopen", "fsconfig", "fsmount", "capset", "prctl", "seccomp",
}

// hostile is what the switch never does, and whoever runs code in it would.
var hostile = []string{
	"execve", "execveat", "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd",
	"init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot",
	"pivot_root", "chroot", "add_key", "request_key", "keyctl", "userfaultfd", "perf_event_open",
	"io_uring_setup", "open_by_handle_at", "settimeofday", "clock_settime", "swapon", "swapoff",
}

// Start sets no_new_privs and the list of system calls for every thread. A thread that starts
// later has them too.
func Start() error {
	err := load(known(ofRuntime, ofSwitch, ofOpening))
	if err == nil {
		return nil
	}
	// A kernel without seccomp still has no_new_privs.
	_, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0)
	if errno != 0 {
		err = errors.Join(err, fmt.Errorf("set no_new_privs: %w", errno))
	}
	return err
}

// Lock drops all capabilities, and of the system calls those that open devices and
// namespaces. New sockets can only be unix sockets.
func Lock() error {
	if err := Keep(); err != nil {
		return err
	}
	return lockCalls()
}

// lockCalls is the part of Lock about system calls.
func lockCalls() error {
	return load(known(ofRuntime, ofSwitch), seccomp.NameWithConditions{
		Name:       "socket",
		Conditions: seccomp.ArgumentConditions{{Argument: 0, Operation: seccomp.Equal, Value: unix.AF_UNIX}},
	})
}

// load has every thread's system calls filtered by a list from now on, beside what filters
// them already.
func load(names []string, conditional ...seccomp.NameWithConditions) error {
	runtime.LockOSThread() // no_new_privs is the thread's; the filter carries it to the others
	defer runtime.UnlockOSThread()
	err := seccomp.LoadFilter(seccomp.Filter{
		NoNewPrivs: true,
		Flag:       seccomp.FilterFlagTSync,
		Policy: seccomp.Policy{
			DefaultAction: seccomp.ActionErrno, // EPERM
			Syscalls: []seccomp.SyscallGroup{
				{Action: seccomp.ActionKillProcess, Names: known(hostile)},
				{Action: seccomp.ActionAllow, Names: names, NamesWithCondtions: conditional},
			},
		},
	})
	switch {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL):
		return fmt.Errorf("filter system calls: %w: %w", errors.ErrUnsupported, err)
	case err != nil:
		return fmt.Errorf("filter system calls: %w", err)
	}
	return nil
}

// known are the system calls that this architecture has, each once.
func known(lists ...[]string) (names []string) {
	here, err := arch.GetInfo("")
	if err != nil {
		return nil // Assemble tells
	}
	seen := map[string]bool{}
	for _, list := range lists {
		for _, name := range list {
			if _, ok := here.SyscallNames[name]; ok && !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	return names
}
