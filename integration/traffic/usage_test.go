package traffic

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// TestIdleCostsNothing: a switch without traffic wakes up to look at its devices
// once a second, and for nothing else.
func TestIdleCostsNothing(t *testing.T) {
	b := newBed(t)
	// No host has anything to say: no addresses, no IPv6.
	for _, name := range []string{"A", "B"} {
		far := b.Namespace(name)
		far.Silent()
		b.Veth(far, "eth0", b.sw, "v"+name, netns.Link{})
	}
	far := b.Namespace("C")
	far.Silent()
	b.built()
	s := run(t, b.sw, "a=packet:vA", "b=macvtap:mB,lower=vB", "c=tap:eth0,netns="+far.Name)
	// What the start left to do.
	settled := s.cpu()
	wait(t, "the start to be over", func() bool {
		time.Sleep(200 * time.Millisecond)
		was := settled
		settled = s.cpu()
		return was == settled
	})
	const span = 3 * time.Second
	switches := s.switches()
	time.Sleep(span)
	used, woken := s.cpu()-settled, s.switches()-switches
	t.Logf("idle: %v of processor time and %d wakeups in %v", used, woken, span)
	// Three looks at three devices take some milliseconds, or tenths of a second in an
	// emulated guest; a loop would take 3 s.
	if used > span/4 {
		t.Errorf("%v of processor time in %v", used, span)
	}
	// Some twenty a look here, some fifty in an emulated guest. A poll every few
	// milliseconds would not show above.
	if woken > 1000 {
		t.Errorf("%d wakeups in %v", woken, span)
	}
}

// switches is how often threads of the process went to sleep, and so were woken.
func (s *sluice) switches() (n int) {
	s.t.Helper()
	tasks, err := os.ReadDir(s.proc("task"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, task := range tasks {
		n += s.status("task/"+task.Name()+"/status", "voluntary_ctxt_switches")
	}
	return n
}

// status is a number in a status file of the process.
func (s *sluice) status(file, name string) int {
	s.t.Helper()
	text, err := os.ReadFile(s.proc(file))
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			n, err := strconv.Atoi(strings.Fields(value)[0])
			if err != nil {
				s.t.Fatal(err)
			}
			return n
		}
	}
	s.t.Fatalf("no %s in %s", name, file)
	return 0
}

// TestMemoryUnderLoad: two ports, BIG TCP cut to segments, which takes the most, and
// that to chunks.
func TestMemoryUnderLoad(t *testing.T) {
	b, x, y := pair(t, netns.Link{GSO: big}, netns.Link{GSO: big})
	x.Eager()
	y.Eager()
	b.built()
	s := run(t, b.sw, "a=packet:vA,gso_max_size=65536", "b=packet:vB,gso_max_size=65536,oversize=segment")
	b.iperf(x, y)
	b.exchange(y, x, 32<<20)
	peak := s.status("status", "VmHWM") << 10
	t.Logf("at most %.1f MiB resident", float64(peak)/(1<<20))
	if peak > 64<<20 {
		t.Errorf("%d bytes resident, want at most 64 MiB", peak)
	}
	sum := s.stop()
	if a, b := sum.Port("a").TX, sum.Port("b").TX; b.Segmented == 0 || a.Resegmented == 0 {
		t.Errorf("nothing was cut: a %+v, b %+v", a, b)
	}
}

// TestKernelDropsAreShown: what the kernel could not keep for a switch that did not
// look is no frame of the switch's, and still in the summary.
func TestKernelDropsAreShown(t *testing.T) {
	b, x, y := pair(t, netns.Link{GSO: big}, netns.Link{GSO: big})
	s := run(t, b.sw, "a=packet:vA", "b=packet:vB")
	from, to := tapInto(t, x.Namespace, "eth0"), tapInto(t, y.Namespace, "eth0")
	if err := unix.Kill(s.PID(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// More than any socket buffer holds, in portions that a veth's backlog holds.
	size := taken(300_000)
	n := uint64(60_000_000 / size)
	for range n {
		from.send(vnettest.Super(super(false, size, 1448)))
	}
	if err := unix.Kill(s.PID(), unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	markers := uint64(0)
	to.until("a later frame to pass", func() bool {
		from.send(vnet.Frame{Head: marker()})
		markers++
		last := len(to.seen) - 1
		return last >= 0 && to.seen[last].Len() == len(marker())
	})
	var frames, lost uint64
	s.until("every frame to be counted", func() bool {
		p := s.ask().Port("a")
		frames, lost = p.RX.Frames, p.KernelDrops
		return frames+lost >= n+markers
	})
	const others = 64 // that the hosts' own stacks may send
	if lost == 0 || frames+lost > n+markers+others {
		t.Errorf("%d frames, %d lost by the kernel, of %d and %d markers", frames, lost, n, markers)
	}
}

// TestKernelDropsOutliveTheDevice: a tap whose reader does not read drops what the switch
// sends there, and is then deleted.
func TestKernelDropsOutliveTheDevice(t *testing.T) {
	b := newBed(t)
	x := b.cabled("a", netns.Link{})
	b.built()
	must(t, b.sw, "ip", "tuntap", "add", "dev", "tX", "mode", "tap", "vnet_hdr")
	openTap(t, b.sw, "tX")
	must(t, b.sw, "ip", "link", "set", "tX", "up")
	s := run(t, b.sw, "a=packet:vA", "x=packet:tX,host=keep")
	s.says(1, "port=x", "port is up")
	from := tapInto(t, x.Namespace, "eth0")
	s.until("drops of the tap", func() bool {
		for range 100 {
			from.send(vnet.Frame{Head: marker()})
		}
		return link(t, b.sw, "tX").Statistics.TxDropped > 0
	})
	must(t, b.sw, "ip", "link", "set", "tX", "down")
	s.says(1, "port=x", "the device is down")
	dropped := link(t, b.sw, "tX").Statistics.TxDropped
	must(t, b.sw, "ip", "link", "del", "tX")
	s.says(1, "port=x", "the device is gone")
	if p := s.port("x"); p.KernelDrops < dropped {
		t.Errorf("kernel_drops is %d; the tap had dropped %d", p.KernelDrops, dropped)
	}
}

// TestWorkersAreTiedToCPUs: each receive queue has a thread on one of the CPUs that the
// process may use, in turn.
func TestWorkersAreTiedToCPUs(t *testing.T) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	var cpus []int
	for cpu := range 64 { // as many as a mask below holds
		if allowed.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	if len(cpus) < 2 {
		t.Skip("there are no two CPUs to choose from")
	}
	const queues = 5
	last := cpus[len(cpus)-1]
	for _, c := range []struct {
		name string
		wrap []string
		cpus []int // that it may use
	}{
		{"all CPUs", nil, cpus},
		{"one of two, by taskset", []string{"taskset", fmt.Sprintf("%x", uint64(1)<<last)}, []int{last}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t)
			b.cabled("a", netns.Link{})
			b.built()
			s := launchUnder(t, b.sw, c.wrap, netnstest.Binary(t), t.TempDir(),
				"a=packet:vA,queues=2", "b=tap:tB,queues=2", "c=tap:tC")
			s.until("ready", func() bool { return s.out.String() == "ready\n" })
			want := map[string]int{} // threads by what Cpus_allowed_list says
			for n := range queues {
				want[strconv.Itoa(c.cpus[n%len(c.cpus)])]++
			}
			var got map[string]int
			s.until("every queue to have its thread", func() bool {
				got = s.affinities()
				if len(c.cpus) == 1 { // the other threads have no choice either
					return got[strconv.Itoa(last)] > queues && len(got) == 1
				}
				for list := range got {
					if strings.ContainsAny(list, ",-") { // a thread that may run anywhere
						delete(got, list)
					}
				}
				return maps.Equal(got, want)
			})
			s.stop()
		})
	}
}

// affinities counts the threads of the process by the CPUs that they may run on.
func (s *sluice) affinities() map[string]int {
	s.t.Helper()
	lists := map[string]int{}
	files, err := filepath.Glob(s.proc("task/*/status"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil { // a thread that has just ended
			continue
		}
		_, list, _ := strings.Cut(string(text), "\nCpus_allowed_list:")
		lists[strings.Fields(list)[0]]++
	}
	return lists
}
