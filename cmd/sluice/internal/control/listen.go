package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// Names are those of the switches that have a socket in Dir, but for the one without a name.
func Names() (all []string) {
	files, _ := filepath.Glob(Path("*")) // the pattern is right
	for _, f := range files {
		name := strings.TrimPrefix(filepath.Base(f), "sluice-")
		all = append(all, strings.TrimSuffix(name, ".sock"))
	}
	return all
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
	unlock, err := lock(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	defer unlock()
	if err := clear(path); err != nil {
		return nil, err
	}
	// It is bound under another name, so that nobody can connect before mode and owner are
	// right.
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

// lock keeps other switches from the folder while this one looks for a socket there and
// makes its own. Whoever else has the folder locked does not hold it up for long.
func lock(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(2 * time.Second); ; time.Sleep(time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || time.Now().After(end) {
			return func() { f.Close() }, nil
		}
	}
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
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(path)
	case err != nil: // such as no permission: somebody may answer
		return fmt.Errorf("control socket: %w", err)
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

// Accept waits for a client. Those above the bound are told so, up to as many again; of
// what comes then nothing is read.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		n := l.open.Add(1)
		own := &conn{Conn: c, listener: l, excess: n > connections}
		if n > 2*connections {
			own.Close()
			continue
		}
		own.may = sync.OnceValue(own.check)
		return own, nil
	}
}

// conn is a client's connection.
type conn struct {
	net.Conn
	listener *Listener
	excess   bool // there are enough clients
	closed   atomic.Bool
	may      func() error // whether the client may steer the switch
}

func (c *conn) Close() error {
	if !c.closed.Swap(true) {
		c.listener.open.Add(-1)
	}
	return c.Conn.Close()
}

// peerKey is where a request's context has the connection.
type peerKey struct{}

// withConn is for http.Server.ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, c)
}

// refused is why the connection is served nothing, or nil.
func (c *conn) refused() error {
	if c.excess {
		return &Error{
			Status: http.StatusServiceUnavailable,
			Cause:  fmt.Sprintf("%d clients are connected, and there is no room for another", connections),
			Hint:   "try again",
		}
	}
	return c.may()
}

// check looks who the peer is.
func (c *conn) check() error {
	cred, err := credentials(c.Conn)
	if err != nil {
		return &Error{Status: http.StatusForbidden, Cause: "the kernel does not say who asks: " + err.Error()}
	}
	l := c.listener
	if cred.Uid == 0 || int(cred.Uid) == os.Geteuid() {
		return nil
	}
	if l.gid >= 0 {
		groups, err := peerGroups(c.Conn)
		if err != nil {
			return &Error{Status: http.StatusForbidden, Cause: "the kernel does not say of which groups who asks is: " + err.Error()}
		}
		if slices.Contains(append(groups, cred.Gid), uint32(l.gid)) {
			return nil
		}
	}
	return &Error{
		Status: http.StatusForbidden,
		Cause:  fmt.Sprintf("user %d may not steer this switch", cred.Uid),
		Hint:   "use sudo, or join the socket's group",
	}
}

// credentials are those that the peer had when it connected.
func credentials(c net.Conn) (cred *unix.Ucred, err error) {
	asked := ask(c, func(fd int) { cred, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return cred, errors.Join(asked, err)
}

// ask calls f with a unix socket's descriptor.
func ask(c net.Conn, f func(fd int)) error {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return errors.New("the connection is not a unix socket's")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { f(int(fd)) })
}
