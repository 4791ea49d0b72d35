package link

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

// Hold tells every other switch that a netdev is taken. It is a listening socket whose name, in the
// abstract namespace of Unix sockets, contains the netdev's index. Such names belong to a network
// namespace, as indexes do (unix_find_socket_byname in net/unix/af_unix.c). They need no privilege
// and no file, and are free again when the process ends, however it ends.
type Hold struct {
	Index  int // of the netdev
	socket *net.UnixListener
	ended  chan struct{}
}

// holdName is the socket address for a netdev.
func holdName(index int) string { return fmt.Sprintf("@sluice/netdev/%d", index) }

// Hold takes a netdev of n for the caller until Close. Until then it keeps n alive, and it stays
// when the netdev is deleted or moved away. The error is a *HeldError if the netdev is taken.
func (n *Namespace) Hold(f *Facts) (_ *Hold, err error) {
	h := &Hold{Index: f.Index, ended: make(chan struct{})}
	address := &net.UnixAddr{Net: "unix", Name: holdName(f.Index)}
	err = n.Do(func() error {
		// A holder that is just starting or ending has the name but does not answer.
		for end := time.Now().Add(holdPatience); ; time.Sleep(time.Millisecond) {
			h.socket, err = net.ListenUnix("unix", address)
			if !errors.Is(err, unix.EADDRINUSE) {
				return err
			}
			holder, ok := askHolder(address)
			if ok || time.Now().After(end) {
				holder.Netdev, holder.index = f.Name, f.Index
				return holder
			}
		}
	})
	var held *HeldError
	if errors.As(err, &held) {
		return nil, err
	}
	if err != nil {
		return nil, n.fail("hold", f.Name, err)
	}
	go h.answer()
	return h, nil
}

// holdPatience bounds the wait for a holder's answer.
const holdPatience = 500 * time.Millisecond

// answer takes rivals out of the queue that connect puts them in. The kernel has already told them
// what they want to know.
func (h *Hold) answer() {
	defer close(h.ended)
	for {
		rival, err := h.socket.Accept()
		if err != nil { // Close; when descriptors run out, the queue of thousands must suffice
			return
		}
		rival.Close()
	}
}

// Close releases the netdev.
func (h *Hold) Close() error {
	err := h.socket.Close()
	<-h.ended
	return err
}

// HeldError says which process holds a netdev.
type HeldError struct {
	Netdev string
	PID    int    // 0 if it is in another PID namespace or does not answer
	Name   string // of the process; empty if it cannot be read
	UID    int    // the user that it ran as when it took the netdev; valid with PID

	index int
}

func (e *HeldError) Error() string {
	s, try := "an unknown process", "ss -xap | grep -w "+holdName(e.index)[1:]
	if e.PID != 0 {
		s, try = fmt.Sprintf("process %d", e.PID), fmt.Sprintf("kill %d", e.PID)
	}
	if e.Name != "" {
		s += " (" + e.Name + ")"
	}
	if e.PID != 0 && e.UID != os.Geteuid() {
		s += fmt.Sprintf(" of user %d", e.UID)
	}
	return "netdev " + e.Netdev + " is in use by " + s + ": one switch at a time can have it; try: " + try
}

// askHolder asks the kernel who listens at an address: SO_PEERCRED, recorded at listen (unix_listen
// in net/unix/af_unix.c).
func askHolder(address *net.UnixAddr) (_ *HeldError, ok bool) {
	e := &HeldError{}
	c, err := net.DialUnix("unix", nil, address)
	if err != nil {
		return e, false
	}
	defer c.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		return e, false
	}
	var cred *unix.Ucred
	if raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}) != nil || err != nil {
		return e, false
	}
	e.PID, e.UID = int(cred.Pid), int(cred.Uid)
	if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cred.Pid)); err == nil {
		e.Name = strings.Map(printable, strings.TrimSuffix(string(comm), "\n"))
	}
	return e, true
}

// printable replaces control characters, since a process chooses its own name.
func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return '?'
}
