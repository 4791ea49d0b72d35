package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// Dir is where the sockets are.
	Dir = "/run"
	// DefaultGroup may use the socket, if there is such a group.
	DefaultGroup = "sluice"

	mode        = 0o660
	connections = 64 // at once; more are turned away
)

// Path is the socket of the switch of that name.
func Path(name string) string {
	if name == "" || name == "sluice" {
		return filepath.Join(Dir, "sluice.sock")
	}
	return filepath.Join(Dir, "sluice-"+name+".sock")
}

// Listener is the socket's listening end, which counts and knows its clients.
type Listener struct {
	net.Listener
	gid  int // of the group that may use it, or -1
	open atomic.Int32
	path string
}

// Listen makes the socket at a path for a group: an empty name is DefaultGroup if there is
// one. A socket that a dead process left behind is replaced; one that is answered is an
// error that names the process.
func Listen(path, group string) (_ *Listener, err error) {
	l := &Listener{gid: -1, path: path}
	switch g, err := user.LookupGroup(cmp.Or(group, DefaultGroup)); {
	case err == nil:
		if l.gid, err = strconv.Atoi(g.Gid); err != nil {
			return nil, fmt.Errorf("control socket: group %s: %w", group, err)
		}
	case group != "":
		return nil, fmt.Errorf("control socket: there is no group %s: `groupadd --system %s` makes it", group, group)
	}
	if err := clear(path); err != nil {
		return nil, err
	}
	// It is bound under another name, so that nobody can connect before mode and owner are
	// right, and so that a rival finds either nothing or a socket that is answered.
	temporary := fmt.Sprintf("%s.%d", path, os.Getpid())
	_ = os.Remove(temporary) // of a dead process with our ID
	u, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	u.SetUnlinkOnClose(false)
	defer func() {
		if err != nil {
			u.Close()
			os.Remove(temporary)
		}
	}()
	if err := os.Chown(temporary, -1, l.gid); err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	if err := os.Chmod(temporary, mode); err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	l.Listener = u
	return l, nil
}

// Adopt takes a listening socket that is open already, as systemd hands it over.
func Adopt(u net.Listener) *Listener {
	l := &Listener{Listener: u, gid: -1}
	var s unix.Stat_t
	if unix.Stat(u.Addr().String(), &s) == nil {
		l.gid = int(s.Gid)
	}
	return l
}

// clear removes a socket that nobody answers.
func clear(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("control socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("control socket: %s is there, and is no socket: take another path with --control", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return os.Remove(path)
	}
	defer c.Close()
	who := "another process"
	if cred, err := credentials(c); err == nil {
		who = fmt.Sprintf("process %d", cred.Pid)
	}
	return fmt.Errorf("control socket: %s is answered by %s: give this switch a name of its own with --name, or another path with --control",
		path, who)
}

// Close ends the listening and removes the socket.
func (l *Listener) Close() error {
	err := l.Listener.Close()
	if l.path != "" {
		err = errors.Join(err, os.Remove(l.path))
	}
	return err
}

// Accept waits for a client. Those above the bound are turned away.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) > connections {
			l.open.Add(-1)
			c.SetWriteDeadline(time.Now().Add(time.Second))
			fmt.Fprintf(c, "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
			c.Close()
			continue
		}
		return &conn{Conn: c, listener: l}, nil
	}
}

// conn is a client's connection.
type conn struct {
	net.Conn
	listener *Listener
	closed   atomic.Bool
}

func (c *conn) Close() error {
	if !c.closed.Swap(true) {
		c.listener.open.Add(-1)
	}
	return c.Conn.Close()
}

// peerKey is where a request's context has who asks.
type peerKey struct{}

// peer is who asks, and whether they may.
type peer struct {
	cred *unix.Ucred
	err  error
}

// withPeer is for http.Server.ConnContext.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	own := c.(*conn)
	cred, err := credentials(own.Conn)
	if err == nil && !own.listener.may(cred) {
		err = fmt.Errorf("user %d may not steer this switch: root, user %d and the socket's group may", cred.Uid, os.Geteuid())
	}
	return context.WithValue(ctx, peerKey{}, peer{cred, err})
}

// credentials are those that the peer had when it connected.
func credentials(c net.Conn) (*unix.Ucred, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.New("the connection is not a unix socket's")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) {
		cred, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return cred, errors.Join(err, asked)
}

// may reports whether a peer may use the socket.
func (l *Listener) may(cred *unix.Ucred) bool {
	switch {
	case cred.Uid == 0, int(cred.Uid) == os.Geteuid():
		return true
	case l.gid < 0:
		return false
	case int(cred.Gid) == l.gid:
		return true
	}
	u, err := user.LookupId(strconv.Itoa(int(cred.Uid)))
	if err != nil {
		return false
	}
	groups, err := u.GroupIds()
	return err == nil && slices.Contains(groups, strconv.Itoa(l.gid))
}
