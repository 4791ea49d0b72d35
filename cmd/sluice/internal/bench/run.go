package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sluice/dataplane/summary"
	"sluice/integration/netns"
)

// warmUp is sent before each measurement, untimed, in bytes. It opens TCP's window and fills the
// neighbour tables and the FDB, and a bridge's frames are measured during it.
const warmUp = 64 << 20

// Config says how much to measure.
type Config struct {
	Rounds  int      // samples per case
	Seconds int      // length of a sample
	Paths   []string // a subset of Paths; nil: all
	Binary  string   // the sluice executable
	Log     io.Writer

	// Congestion names the sender's congestion control; empty means the system's default. It
	// matters: one that paces (bbr) shapes the super-packets themselves.
	Congestion string

	binding netns.Binding // of every stream; set by Run
}

// ErrFailed is returned with a report in which a case failed; its Skipped field says why.
var ErrFailed = errors.New("bench: a case failed")

// Run measures. With ErrFailed it also returns a report. When it returns, the namespaces are gone,
// even if ctx ended.
func Run(ctx context.Context, c Config) (*Report, error) {
	if err := checkMachine(); err != nil {
		return nil, err
	}
	if c.Congestion == "" {
		c.Congestion = readCongestion("tcp_congestion_control")
	}
	available := readCongestion("tcp_available_congestion_control")
	if !slices.Contains(strings.Fields(available), c.Congestion) {
		return nil, fmt.Errorf("bench: congestion control %q is not among this kernel's: %s",
			c.Congestion, available)
	}
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return nil, fmt.Errorf("bench: find the CPUs: %w", err)
	}
	c.binding = bindingOf(&allowed)
	cases := measurements(&c)
	failed := false
	for round := range c.Rounds {
		start := time.Now()
		for _, m := range runOrder(cases, round) {
			if m.result.Skipped != "" {
				continue
			}
			err := m.sample(ctx)
			if ctx.Err() != nil {
				return nil, fmt.Errorf("bench: interrupted in round %d: %w", round+1, context.Cause(ctx))
			}
			if err != nil {
				failed = true
				m.skip(fmt.Sprintf("failed in round %d: %v", round+1, err))
			}
		}
		fmt.Fprintf(c.Log, "round %d of %d: %v\n", round+1, c.Rounds, time.Since(start).Round(time.Second))
	}
	report := newReport(c, cases)
	if failed {
		return report, ErrFailed
	}
	return report, nil
}

// measurements are the cases of a run, in the order of the report.
func measurements(c *Config) []*measurement {
	var cases []*measurement
	for _, path := range Paths {
		if c.Paths != nil && !slices.Contains(c.Paths, path) {
			continue
		}
		scenarios := switchScenarios
		if path == Bridge {
			scenarios = bridgeScenarios
		}
		for f := range families {
			for _, s := range scenarios {
				cases = append(cases, &measurement{
					scenario: s, path: path, family: f, config: c,
					result: Case{Case: s.name, Path: path, Family: families[f].name},
				})
			}
		}
	}
	return cases
}

// bindingOf binds the sender to the last of the CPUs that may be used, and the receiver to the one
// before it. `sluice run` binds its workers from the first one on, so with three CPUs the worker
// that carries the stream has its own, and with two it shares the receiver's. A bridge always works
// on the sender's CPU.
func bindingOf(allowed *unix.CPUSet) (b netns.Binding) {
	found := 0
	for cpu := 0; found < allowed.Count(); cpu++ {
		if !allowed.IsSet(cpu) {
			continue
		}
		if found == 0 {
			b.Sender = cpu // one CPU is both ends'
		}
		b.Receiver, b.Sender = b.Sender, cpu
		found++
	}
	return b
}

// runOrder puts cases that are compared next to each other, so that other load on the machine
// affects all of them. Every second round, from number 1 on, runs backwards, so that no case always
// comes first.
func runOrder(cases []*measurement, round int) []*measurement {
	order := slices.SortedStableFunc(slices.Values(cases), func(a, b *measurement) int {
		return cmp.Or(cmp.Compare(a.family, b.family),
			cmp.Compare(a.scenario.sender, b.scenario.sender), cmp.Compare(b.egress, a.egress))
	})
	if round%2 == 1 {
		slices.Reverse(order)
	}
	return order
}

// checkMachine reports what is missing before anything is built.
func checkMachine() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("bench: %w: it makes network namespaces, run it as root", os.ErrPermission)
	}
	for program, pkg := range map[string]string{"iperf3": "iperf3", "ip": "iproute2"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("bench: %s is missing (apt-get install %s): %w", program, pkg, err)
		}
	}
	return nil
}

// readCongestion reads one of the kernel's parameters about congestion control.
func readCongestion(name string) string {
	text, err := os.ReadFile("/proc/sys/net/ipv4/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// measurement is the running measurement of one case over one path in one family.
type measurement struct {
	scenario
	path   string
	family int // index of families
	config *Config
	able   bool // the switch's limits allow the case

	result Case
}

// skip drops the samples: a case has either numbers or a reason.
func (m *measurement) skip(why string) {
	m.result.Skipped = why
	m.result.Samples, m.result.Retransmits = nil, 0
}

// sample builds a lab and measures once. It skips the case when the
// kernel cannot do it, or did something else.
func (m *measurement) sample(ctx context.Context) (err error) {
	lab := netns.New("bench")
	defer func() { err = errors.Join(err, lab.Close()) }()
	s, err := newSite(lab, m)
	if err != nil {
		return err
	}
	if !m.able && m.path != Bridge {
		why, err := s.cannot(ctx)
		if err != nil {
			return err
		}
		if why != "" {
			m.skip(why)
			return nil
		}
		m.able = true
	}
	r, in, out, err := s.measure(ctx)
	if err != nil {
		return err
	}
	m.result.MaxIn, m.result.MaxOut = max(m.result.MaxIn, in), max(m.result.MaxOut, out)
	if why := m.wasItself(in, out); why != "" {
		m.skip(why)
		return nil
	}
	m.result.Samples = append(m.result.Samples, r.Gbits)
	m.result.Retransmits += r.Retransmits
	return nil
}

// site is the lab of one sample.
type site struct {
	*measurement
	lab                   *netns.Lab
	sender, mid, receiver *netns.Namespace
}

// newSite builds everything except the switch or bridge.
func newSite(lab *netns.Lab, m *measurement) (*site, error) {
	s := &site{
		measurement: m, lab: lab,
		sender: lab.Namespace("sender"), mid: lab.Namespace("switch"), receiver: lab.Namespace("receiver"),
	}
	s.mid.Silent()
	lab.Veth(s.sender, "eth0", s.mid, "vA", netns.Link{MTU: mtu, GSO: m.scenario.sender})
	s.address(s.sender, "eth0", families[m.family].sender)
	if m.path != PacketToTap { // the switch makes the tap
		lab.Veth(s.receiver, "eth0", s.mid, "vB", netns.Link{MTU: mtu, GSO: m.egress})
		s.address(s.receiver, "eth0", families[m.family].receiver)
	}
	return s, lab.Err()
}

func (s *site) address(ns *netns.Namespace, device, address string) {
	ns.Address(device, address+families[s.family].mask)
}

// cannot starts the switch only to read its egress's limits.
func (s *site) cannot(ctx context.Context) (why string, err error) {
	sw, err := s.mid.Sluice(ctx, s.config.Binary, s.ports(s.path, s.receiver.Name)...)
	if err != nil {
		return "", err
	}
	_, egress, err := ends(sw)
	if err != nil {
		return "", err
	}
	return s.scenario.cannot(families[s.family].name, &egress.Limits), nil
}

// measure sends the warm-up and the timed stream, and returns the lengths of the greatest frames in
// and out.
func (s *site) measure(ctx context.Context) (r netns.IperfResult, in, out int, err error) {
	if s.path == Bridge {
		return s.measureBridge(ctx)
	}
	sw, err := s.mid.Sluice(ctx, s.config.Binary, s.ports(s.path, s.receiver.Name)...)
	if err != nil {
		return r, 0, 0, err
	}
	if s.path == PacketToTap {
		s.receiver.SetLink("tap0", netns.Link{})
		s.address(s.receiver, "tap0", families[s.family].receiver)
		if err := s.lab.Err(); err != nil {
			return r, 0, 0, err
		}
	}
	if _, err = s.stream(ctx, netns.Load{Bytes: warmUp}); err == nil {
		r, err = s.stream(ctx, netns.Load{Seconds: s.config.Seconds})
	}
	ingress, egress, stopErr := ends(sw)
	if err := errors.Join(err, stopErr); err != nil {
		return r, 0, 0, err
	}
	if why := s.wasCut(&egress.TX); why != "" {
		return r, 0, 0, errors.New(why)
	}
	return r, ingress.RX.MaxFrame, egress.TX.MaxFrame, nil
}

// measureBridge measures frames only during the warm-up, because a capture would slow the timed
// stream.
func (s *site) measureBridge(ctx context.Context) (r netns.IperfResult, in, out int, err error) {
	s.mid.Bridge("br0", "vA", "vB")
	if err := s.lab.Err(); err != nil {
		return r, 0, 0, err
	}
	before, err := s.mid.MeasureFrames("vA")
	if err != nil {
		return r, 0, 0, err
	}
	behind, err := s.receiver.MeasureFrames("eth0")
	if err != nil {
		return r, 0, 0, err
	}
	_, err = s.stream(ctx, netns.Load{Bytes: warmUp})
	if err := errors.Join(err, before.Stop(), behind.Stop()); err != nil {
		return r, 0, 0, err
	}
	r, err = s.stream(ctx, netns.Load{Seconds: s.config.Seconds})
	return r, before.MaxIn(), behind.MaxIn(), err
}

func (s *site) stream(ctx context.Context, load netns.Load) (netns.IperfResult, error) {
	load.Congestion, load.Binding = s.config.Congestion, &s.config.binding
	return s.lab.Iperf(ctx, s.sender, s.receiver, families[s.family].receiver, load)
}

// ends stops the switch and returns its ports' last state. If the switch lost count of its frames,
// the measurement cannot be trusted.
func ends(sw *netns.Sluice) (ingress, egress *summary.Port, err error) {
	sum, err := sw.Stop()
	if err != nil {
		return nil, nil, err
	}
	ingress, egress = sum.Port("a"), sum.Port("b")
	if ingress == nil || egress == nil {
		return nil, nil, errors.New("the switch's summary lacks a port")
	}
	return ingress, egress, sum.Conserved()
}
