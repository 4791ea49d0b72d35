package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"sluice/integration/netns"
	"sluice/integration/vm/debian"
)

// Newest is the series of the newest kernel that the archive has.
const Newest = debian.Newest

// MayBeGone are series that the archive may drop at any time. If one is gone, its tests are
// skipped, even with SLUICE_REQUIRE=1.
var MayBeGone = []string{"6.19", "7.0"}

// T is what a lab needs of a test; *testing.T has it.
type T interface {
	Helper()
	Name() string
	Context() context.Context
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Skip(args ...any)
	Fatal(args ...any)
}

// Lab makes guests, and ends them with its test.
type Lab struct {
	t        T
	dir      string
	cache    *debian.Cache
	userland *debian.Userland
	accel    string // QEMU's -accel
	guests   []*Guest

	killLimit time.Duration
}

// New makes a lab that ends with the test.
func New(t T) *Lab {
	t.Helper()
	l := &Lab{t: t, killLimit: killLimit}
	need(t, l.open())
	t.Cleanup(l.close)
	return l
}

// need skips t if err says that something is missing here that guests need. With SLUICE_REQUIRE=1
// it fails, as for every other error; a series of MayBeGone is skipped even then.
func need(t T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if gone := (*debian.NoKernelError)(nil); errors.As(err, &gone) &&
		slices.Contains(MayBeGone, gone.Series) {
		t.Skip(err)
	}
	missing := errors.Is(err, debian.ErrUnavailable) || errors.Is(err, os.ErrPermission)
	if missing && os.Getenv("SLUICE_REQUIRE") != "1" {
		t.Skip(err)
	}
	t.Fatal(err)
}

func (l *Lab) open() (err error) {
	if l.cache, err = debian.OpenCache(); err != nil {
		return err
	}
	if l.userland, err = l.cache.Userland(); err != nil {
		return err
	}
	if l.dir, err = netns.TempDir("vm"); err != nil {
		return fmt.Errorf("vm: lab: %w", err)
	}
	if l.accel, err = accelerator(l); err != nil {
		return errors.Join(err, netns.RemoveDir(l.dir))
	}
	return nil
}

// Emulated reports whether guests run without KVM: slowly.
func (l *Lab) Emulated() bool { return l.accel == emulated }

// close ends the guests, and keeps their consoles if the test has failed.
func (l *Lab) close() {
	for _, g := range l.guests {
		g.Kill()
		if l.t.Failed() {
			l.t.Logf("%s: console kept in %s; its end:\n%s", g.name, g.keepConsole(), g.consoleEnd())
		}
	}
	if err := netns.RemoveDir(l.dir); err != nil {
		l.t.Logf("vm: %v", err)
	}
}

// Option configures a guest: a NIC, In, CPUs, Memory, Program.
type Option interface{ apply(*spec) }

// spec is the sum of all options.
type spec struct {
	ns       *netns.Namespace
	nics     []NIC
	cpus     int
	memory   int // MiB
	programs []Program
}

// NIC gives the guest a virtio-net device, eth0 and so on in the order of the
// options, on a tap of the host. It needs In.
type NIC struct {
	Tap    string // made by QEMU
	MAC    string // QEMU's own choice, the same for every guest, unless given
	Queues int    // pairs; 1 unless given
	MTU    int    // of the tap and the guest's device; 1500 unless given

	// Offloads are properties of QEMU's virtio-net-pci, "guest_tso4=off,host_uso=on".
	Offloads string
}

func (n NIC) apply(s *spec) { s.nics = append(s.nics, n) }

type in struct{ ns *netns.Namespace }

func (i in) apply(s *spec) { s.ns = i.ns }

// In is the namespace in which QEMU runs and makes its taps.
func In(ns *netns.Namespace) Option { return in{ns} }

// CPUs is the number of the guest's processors; 1 unless given.
type CPUs int

func (c CPUs) apply(s *spec) { s.cpus = int(c) }

// Memory is the guest's memory in MiB; 512 unless given. Its files are in it.
type Memory int

func (m Memory) apply(s *spec) { s.memory = int(m) }

// Program puts a file of the host into the guest, as /usr/bin/NAME. It must be static, or use only
// libraries of the userland's packages.
type Program struct {
	Name, File string
}

func (p Program) apply(s *spec) { s.programs = append(s.programs, p) }

// Guest starts a guest with the latest kernel of a series, "6.12" or Newest.
func (l *Lab) Guest(series string, options ...Option) *Guest {
	l.t.Helper()
	g, err := l.newGuest(series, options)
	if err == nil {
		l.guests = append(l.guests, g)
		err = g.start()
	}
	need(l.t, err)
	return g
}

func (l *Lab) newGuest(series string, options []Option) (*Guest, error) {
	g := &Guest{lab: l, spec: spec{cpus: 1, memory: 512}}
	for _, o := range options {
		o.apply(&g.spec)
	}
	if len(g.spec.nics) > 0 && g.spec.ns == nil {
		return nil, errors.New("vm: a NIC needs In: a tap is not made among the machine's own netdevs")
	}
	var err error
	if g.kernel, err = l.cache.Kernel(series, l.userland); err != nil {
		return nil, err
	}
	g.name = fmt.Sprintf("guest%d-%s", len(l.guests)+1, series)
	g.dir = filepath.Join(l.dir, g.name)
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, fmt.Errorf("vm: %s: %w", g.name, err)
	}
	return g, g.writeImage()
}

// launcher is a thread that lives as long as the process. The kernel kills a child
// with Pdeathsig when the thread that forked it ends.
var launcher = sync.OnceValue(func() chan<- func() {
	jobs := make(chan func())
	go func() {
		runtime.LockOSThread()
		for job := range jobs {
			job()
		}
	}()
	return jobs
})

// startProcess starts cmd in a namespace, or in the machine's own where ns is nil.
func startProcess(cmd *exec.Cmd, ns *netns.Namespace) error {
	if ns != nil {
		return ns.Do(cmd.Start) // its thread lives as long as it does
	}
	done := make(chan error)
	launcher() <- func() { done <- cmd.Start() }
	return <-done
}
