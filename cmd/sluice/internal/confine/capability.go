package confine

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Capability is one of capabilities(7).
type Capability int

// The capabilities that a switch has a use for.
const (
	DACOverride Capability = unix.CAP_DAC_OVERRIDE // files of other users, if the user is root
	NetAdmin    Capability = unix.CAP_NET_ADMIN    // taps, macvtaps, sizes of netdevs, tcx
	NetRaw      Capability = unix.CAP_NET_RAW      // packet sockets
	SysPtrace   Capability = unix.CAP_SYS_PTRACE   // netns=/proc/PID/ns/net
	SysAdmin    Capability = unix.CAP_SYS_ADMIN    // netns=, and to probe the kernel
	Mknod       Capability = unix.CAP_MKNOD        // a macvtap whose node /dev does not have
	BPF         Capability = unix.CAP_BPF          // host=drop
)

// LaterPorts are what it takes to open any device that a later configuration may name.
func LaterPorts() []Capability {
	return []Capability{DACOverride, NetAdmin, NetRaw, SysPtrace, SysAdmin, Mknod, BPF}
}

// set is a set of capabilities, by their numbers.
type set uint64

func setOf(all []Capability) (s set) {
	for _, c := range all {
		s |= 1 << c
	}
	return s
}

// Keep drops every capability of every thread but these, of which it keeps those that there
// are. They stay effective and permitted, and are inherited by nobody.
func Keep(keep ...Capability) error {
	if err := capset(setOf(keep)); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}
