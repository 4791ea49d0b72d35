package control

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/cmd/sluice/internal/config"
	"sluice/cmd/sluice/internal/keeper"
	"sluice/dataplane/summary"
)

// fake is a switch without devices.
type fake struct {
	mu       sync.Mutex
	want     config.Switch
	revision uint64
	list     []keeper.Event
	more     chan struct{}
	slow     chan struct{} // an edit waits for it, if it is not nil
}

const example = `
ports:
  a: {kind: packet, device: vA}
  b: {kind: tap, device: tB, tag: 10}
`

func newFake(t testing.TB) *fake {
	want, err := config.ParseYAML("", []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	return &fake{want: want, revision: 7, more: make(chan struct{})}
}

func (f *fake) Config(context.Context) (config.Switch, uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.want.Clone(), f.revision, nil
}

func (f *fake) Edit(ctx context.Context, e keeper.Edit) (a keeper.Applied, err error) {
	if f.slow != nil {
		select {
		case <-f.slow:
		case <-ctx.Done():
			return a, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.Saw != 0 && e.Saw != f.revision {
		return a, &keeper.ConflictError{Has: f.revision, Saw: e.Saw}
	}
	next, err := e.Change(f.want.Clone())
	if err == nil {
		err = next.Validate()
	}
	if err != nil {
		return a, err
	}
	a.Changes = config.Diff(f.want, next)
	if len(a.Changes) > 0 && !e.DryRun {
		f.want, f.revision = next, f.revision+1
	}
	a.Revision = f.revision
	return a, nil
}

func (f *fake) State(context.Context) (keeper.State, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := keeper.State{Name: f.want.Name, PID: os.Getpid(), Revision: f.revision, Ports: []keeper.PortState{}}
	for _, p := range f.want.Ports {
		none := map[string]uint64{}
		s.Ports = append(s.Ports, keeper.PortState{
			Port: summary.Port{
				Name: p.Name, Kind: string(p.Kind), Device: p.Device, Limits: summary.Limits{MTU: 1500, IPv6Form: "hbh"},
				RX: summary.RX{Frames: 5}, Drops: summary.Drops{Ingress: map[string]uint64{"runt": 1}, Egress: none},
			},
			Why: "there is no such device", Queues: 1, Sources: map[string]keeper.Source{"mtu": keeper.FromNetdev},
		})
	}
	s.Pairs = []keeper.Pair{{
		From: "a", To: "b", Family: "ipv4", Sends: 389120, Takes: 65536, Outcome: "resegment",
		Text: "a sends 389120, b takes 65536 (ipv4): cut into super-packets",
	}}
	return s, nil
}

func (f *fake) tell(events ...keeper.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range events {
		e.Seq = uint64(len(f.list) + 1)
		f.list = append(f.list, e)
	}
	close(f.more)
	f.more = make(chan struct{})
}

func (f *fake) Events(ctx context.Context, seq uint64, wait bool) []keeper.Event {
	for {
		f.mu.Lock()
		list, more := f.list[min(seq, uint64(len(f.list))):], f.more
		f.mu.Unlock()
		if len(list) > 0 || !wait {
			return list
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil
		}
	}
}

func (f *fake) LastEvent() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return uint64(len(f.list))
}

func (f *fake) FDB(_ context.Context, port string, vlan int) ([]keeper.Entry, error) {
	if port != "" && port != "a" {
		return nil, &keeper.UnknownPortError{Name: port}
	}
	all := []keeper.Entry{}
	if vlan <= 0 {
		all = append(all, keeper.Entry{MAC: "52:54:00:00:00:0a", Port: "a", Age: 3})
	}
	return all, nil
}

func (f *fake) Flush(ctx context.Context, port string, vlan int) (int, error) {
	all, err := f.FDB(ctx, port, vlan)
	return len(all), err
}

// bed is a server and its socket.
type bed struct {
	*fake
	t    testing.TB
	path string
	http http.Client
}

// patient is how long a client of the tests may take: what must not happen within it is
// bounded, and what must happen is waited for.
const patient = 200 * time.Millisecond

// limit bounds every wait.
const limit = 30 * time.Second

func serve(t testing.TB, change func(*Server)) *bed {
	t.Helper()
	b := &bed{fake: newFake(t), t: t, path: socketPath(t)}
	s := &Server{Switch: b.fake, Version: "v0", Patience: limit}
	if change != nil {
		change(s)
	}
	l, err := Listen(b.path, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(b.path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is left behind: %v", err)
		}
	})
	b.http.Transport = &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", b.path) },
		DisableKeepAlives: true,
	}
	return b
}

// socketPath is in a folder of its own that everybody may enter, and short.
func socketPath(t testing.TB) string {
	t.Helper()
	// Not TMPDIR: libpam-tmpdir gives each user one that others cannot enter.
	dir, err := os.MkdirTemp("/tmp", "sluice-control-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// ask sends a request. Headers are lines.
func (b *bed) ask(method, path, headers, body string) *http.Response {
	b.t.Helper()
	r, err := http.NewRequest(method, "http://sluice"+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	for line := range strings.Lines(headers) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), ": ")
		r.Header.Set(k, v)
	}
	answer, err := b.http.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { answer.Body.Close() })
	return answer
}

// until waits for a condition.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain for " + what)
		}
	}
}

// dial connects to the socket.
func (b *bed) dial() *net.UnixConn {
	b.t.Helper()
	c, err := net.Dial("unix", b.path)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(limit))
	return c.(*net.UnixConn)
}

// served fails the test if an ordinary client is not served.
func (b *bed) served() {
	b.t.Helper()
	if answer := b.ask("GET", "/v1/show", "", ""); answer.StatusCode != http.StatusOK {
		b.t.Errorf("an ordinary client is answered %s", answer.Status)
	}
}
