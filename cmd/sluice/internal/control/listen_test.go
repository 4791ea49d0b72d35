package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/cmd/sluice/internal/keeper"
)

// TestWhatIsInTheWay: a stale socket is replaced; one that is answered is not, nor is what is no socket.
func TestWhatIsInTheWay(t *testing.T) {
	path := socketPath(t)
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	l, err := Listen(path, "")
	if err != nil {
		t.Fatalf("over the socket of a dead process: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != os.ModeSocket|mode {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := Listen(path, ""); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("is answered by process %d", os.Getpid())) {
		t.Errorf("over a socket that is answered: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	refused := func(what string) {
		t.Helper()
		if _, err := Listen(path, ""); err == nil || !strings.Contains(err.Error(), "is no socket") {
			t.Errorf("over %s: %v", what, err)
		}
	}
	refused("a FIFO")
	os.Remove(path)
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("a file")
	if text, err := os.ReadFile(path); string(text) != "mine" {
		t.Errorf("the file is %q now, %v", text, err)
	}
	if _, err := Listen(path+"2", "no-such-group"); err == nil || !strings.Contains(err.Error(), "groupadd") {
		t.Errorf("for no group: %v", err)
	}
	if _, err := Listen(path+"/s", ""); err == nil {
		t.Error("below a file")
	}
}

// TestOneOfManyGetsTheSocket: of switches that start at once over a stale socket one wins.
func TestOneOfManyGetsTheSocket(t *testing.T) {
	for range 20 {
		path := socketPath(t)
		dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		dead.SetUnlinkOnClose(false)
		dead.Close()
		var mu sync.Mutex
		var won []*Listener
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if l, err := Listen(path, ""); err == nil {
					mu.Lock()
					won = append(won, l)
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if len(won) != 1 {
			t.Errorf("%d got the socket", len(won))
		}
		for _, l := range won {
			l.Listener.Close()
		}
	}
}

// as calls f on a thread that has another user and other groups. The kernel takes who a
// peer is from the thread that connects.
func as(t *testing.T, uid int, groups []uint32, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	done := make(chan unix.Errno)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with the goroutine
		errno := change(uid, groups)
		if errno == 0 {
			f()
		}
		done <- errno
	}()
	if errno := <-done; errno != 0 {
		t.Fatal(errno)
	}
}

// TestWhoMay: the kernel's word on a peer counts, also where the file lets it in.
func TestWhoMay(t *testing.T) {
	const nobody, members = 65534, 54321
	b := serve(t, nil)
	if err := os.Chmod(b.path, 0o666); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(b.path+"g", "")
	if err != nil {
		t.Fatal(err)
	}
	l.gid = members // a group that needs no entry in /etc/group
	if err := os.Chown(l.path, -1, members); err != nil {
		t.Skip("only root can give a file away: ", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- (&Server{Switch: b.fake}).Serve(ctx, l) }()
	defer func() { cancel(); <-served }()
	ask := func(path string) (status int, text string, err error) {
		c, err := net.Dial("unix", path)
		if err != nil {
			return 0, "", err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(limit))
		fmt.Fprint(c, "GET /v1/stats HTTP/1.1\r\nHost: sluice\r\nConnection: close\r\n\r\n")
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return 0, "", err
		}
		body, err := io.ReadAll(answer.Body)
		return answer.StatusCode, string(body), err
	}
	as(t, nobody, nil, func() {
		if status, text, err := ask(b.path); status != 403 || !strings.Contains(text, "user 65534 may not steer") {
			t.Errorf("a stranger: %d %s, %v", status, text, err)
		}
		_, _, err := ask(l.path)
		if !errors.Is(err, os.ErrPermission) {
			t.Errorf("a stranger at a socket of mode 0660: %v", err)
		}
		if err := NewClient(l.path).unreachable(err); !strings.Contains(err.Error(), "may not be used by this user: use sudo") {
			t.Errorf("a stranger's client says: %v", err)
		}
	})
	var many []uint32 // more than a first guess holds
	for g := range uint32(100) {
		many = append(many, 60000+g)
	}
	as(t, nobody, append(many, members), func() {
		if status, _, err := ask(l.path); status != 200 {
			t.Errorf("a member of the group: %d, %v", status, err)
		}
	})
}

// TestTooManyClients are told so; when one goes there is room for another.
func TestTooManyClients(t *testing.T) {
	b := serve(t, nil)
	var all []net.Conn
	for range connections {
		all = append(all, b.dial())
	}
	b2 := b.ask("GET", "/v1/show", "", "")
	if text, _ := io.ReadAll(b2.Body); b2.StatusCode != 503 || !strings.Contains(string(text), "try again") || !b2.Close {
		t.Errorf("%s\n%s", b2.Status, text)
	}
	err := NewClient(b.path).Do(t.Context(), "GET", "/v1/show", nil, nil)
	if err == nil || !strings.Contains(err.Error(), "no room for another") {
		t.Errorf("the client: %v", err)
	}
	for range 2 * connections { // of the last nothing is read
		all = append(all, b.dial())
	}
	for _, c := range all {
		c.Close()
	}
	until(t, "room", func() bool { return NewClient(b.path).Do(t.Context(), "GET", "/v1/show", nil, nil) == nil })
}

// TestSlowClients lose their connections, and others are served meanwhile.
func TestSlowClients(t *testing.T) {
	b := serve(t, func(s *Server) { s.Patience = patient })
	var all []net.Conn
	for _, sends := range []string{
		"", "GET /v1/sh", "GET /v1/show HTTP/1.1\r\nHost: x\r\nX-Long: ",
		"PUT /v1/config HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
		"POST /v1/fdb/flush HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
	} {
		c := b.dial()
		io.WriteString(c, sends)
		all = append(all, c)
	}
	b.served()
	for _, c := range all {
		if _, err := io.ReadAll(c); err != nil && !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("it is not hung up: %v", err)
		}
	}
	long := b.dial()
	fmt.Fprintf(long, "GET /v1/show HTTP/1.1\r\nHost: x\r\nX-Long: %s\r\n\r\n", strings.Repeat("x", 2*maxHeader))
	if answer, err := http.ReadResponse(bufio.NewReader(long), nil); err != nil || answer.StatusCode != 431 {
		t.Errorf("a header that is too long: %v, %v", answer, err)
	}
}

// TestStuckReader: a client that asks for events and does not read them loses its
// connection, and no other waits for it.
func TestStuckReader(t *testing.T) {
	b := serve(t, func(s *Server) { s.Patience = patient })
	c := b.dial()
	io.WriteString(c, "GET /v1/events?since=0&follow=1 HTTP/1.1\r\nHost: x\r\n\r\n")
	line := make([]byte, 12)
	if _, err := io.ReadFull(c, line); err != nil || string(line) != "HTTP/1.1 200" {
		t.Fatalf("%q, %v", line, err)
	}
	until(t, "the client to be hung up", func() bool {
		b.tell(keeper.Event{Kind: keeper.PortUp, Text: strings.Repeat("x", 64<<10)})
		b.served()
		return hungUp(c)
	})
}

// hungUp reports whether the other end has closed the connection, without reading.
func hungUp(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	var events int16
	raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		unix.Poll(p, 0)
		events = p[0].Revents
	})
	return events&(unix.POLLHUP|unix.POLLRDHUP) != 0
}

// TestAnswersMayTakeLong: events may be rare, and an edit may take long.
func TestAnswersMayTakeLong(t *testing.T) {
	b := serve(t, func(s *Server) { s.Patience = patient })
	b.slow = make(chan struct{})
	edited := make(chan error, 1)
	go func() { edited <- NewClient(b.path).Do(t.Context(), "DELETE", "/v1/ports/b", nil, nil) }()
	posted := make(chan error, 1)
	go func() {
		posted <- NewClient(b.path).Do(t.Context(), "PATCH", "/v1/ports/a", map[string]int{"mtu": 9000}, nil)
	}()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	got := make(chan keeper.Event, 1)
	var since uint64
	heard := make(chan error, 1)
	go func() {
		heard <- NewClient(b.path).Events(ctx, &since, true, func(e keeper.Event) bool {
			got <- e
			return e.Seq < 2
		})
	}()
	b.tell(keeper.Event{Text: "one"})
	<-got
	time.Sleep(3 * patient) // longer than a request may take to come
	select {
	case err := <-heard:
		t.Fatalf("the stream has ended: %v", err)
	case err := <-edited:
		t.Fatalf("the edit has ended: %v", err)
	default:
	}
	b.tell(keeper.Event{Text: "two"})
	close(b.slow)
	if e := <-got; e.Text != "two" {
		t.Errorf("event %+v", e)
	}
	for what, done := range map[string]chan error{"the stream": heard, "an edit without a body": edited, "one with a body": posted} {
		if err := <-done; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestEndEndsStreams: a switch that ends does not wait for its followers.
func TestEndEndsStreams(t *testing.T) {
	f := newFake(t)
	l, err := Listen(socketPath(t), "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- (&Server{Switch: f}).Serve(ctx, l) }()
	heard := make(chan error)
	var since uint64
	f.tell(keeper.Event{Text: "one"})
	go func() {
		heard <- NewClient(l.path).Events(t.Context(), &since, true, func(keeper.Event) bool { cancel(); return true })
	}()
	if err := <-heard; err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestClientSaysWhatToDo(t *testing.T) {
	path := socketPath(t)
	err := NewClient(path).Do(t.Context(), "GET", "/v1/show", nil, nil)
	if err == nil || !strings.Contains(err.Error(), "no switch answers at "+path+": start one with `sluice run`") {
		t.Error(err)
	}
}
