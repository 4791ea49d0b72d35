package traffic

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	bpflink "github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sluice/dataplane/summary"
	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// lengths of the longest super-packet, by family.
type perFamily struct{ IPv4, IPv6 int }

func (p perFamily) of(v6 bool) int {
	if v6 {
		return p.IPv6
	}
	return p.IPv4
}

// diagnosis is what is used here of what `sluice doctor --json` prints, by the names that
// its documentation has.
type diagnosis struct {
	Schema, Problems int
	Seconds          float64
	Kernel           struct {
		Release, Why string
		Tried        bool
	}
	Kinds map[string]struct {
		Error    string
		MaxWrite int       `json:"max_write"`
		IPv6Form string    `json:"ipv6_form"`
		MaxOut   perFamily `json:"max_out"`
		Tried    *struct {
			HeaderLen int `json:"header_len"`
			In        struct {
				perFamily
				UDP bool `json:"udp_l4"`
			}
		}
	}
	HostDrop struct {
		Works bool
		Why   string
	} `json:"host_drop"`
	Capabilities struct{ Have, Lack []string }
	Netdevs      []struct {
		Name, Netdev string
		Found        bool
		AltNames     []string
		HeldBy       *struct{ PID int } `json:"held_by"`
		Ports        map[string]struct {
			Limits summary.Limits
			MaxOut perFamily `json:"max_out"`
		}
	}
	Findings []finding
}

type finding struct{ Group, Object, ID, Mark, Text, Means, Mend, Advice string }

// find is the first finding of this id about a netdev whose text contains says.
func (d *diagnosis) find(netdev, id, says string) *finding {
	i := slices.IndexFunc(d.Findings, func(f finding) bool {
		return f.Group == "netdevs" && f.Object == netdev && f.ID == id && strings.Contains(f.Text, says)
	})
	if i < 0 {
		return nil
	}
	return &d.Findings[i]
}

// doctor runs `sluice doctor` under the command in wrap and returns what it prints, and
// its exit code.
func doctor(t testing.TB, ns *netns.Namespace, wrap []string, args ...string) (string, int) {
	t.Helper()
	command := append(slices.Clone(wrap), netnstest.Binary(t), "doctor")
	command = append(command, args...)
	out, err := ns.Run(deadline(t, patience), command[0], command[1:]...)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return string(out), exit.ExitCode()
	case err != nil:
		t.Fatal(err)
	}
	return string(out), 0
}

// diagnose is doctor with --json. Its exit code and its findings say the same.
func diagnose(t testing.TB, ns *netns.Namespace, wrap []string, netdevs ...string) *diagnosis {
	t.Helper()
	text, code := doctor(t, ns, wrap, append([]string{"--json"}, netdevs...)...)
	var d diagnosis
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatalf("exit code %d, %v:\n%s", code, err, text)
	}
	problems := 0
	for _, f := range d.Findings {
		if f.Mark == "problem" {
			problems++
		}
	}
	if d.Schema != 1 || d.Problems != problems || code != min(problems, 1) {
		t.Errorf("schema %d, exit code %d, %d problems, of which %d are told:\n%s",
			d.Schema, code, d.Problems, problems, text)
	}
	return &d
}

// greatest makes room for the longest frames.
var greatest = netns.Link{GSO: vnet.MaxGSOMaxSize}

// receiver is a host that gets the frames that vnettest makes, and what arrives at its IP
// layer.
type receiver struct {
	*host
	t   testing.TB
	raw map[bool]int // IPv6, and the socket
}

func (r *receiver) open() {
	r.t.Helper()
	r.SetLink("eth0", netns.Link{MAC: "02:00:5e:10:00:02"})
	r.Address("eth0", "192.0.2.2/24", "2001:db8::2/64")
	r.raw = map[bool]int{}
	for v6, family := range map[bool]int{false: unix.AF_INET, true: unix.AF_INET6} {
		fd := -1
		netnstest.Need(r.t, r.Do(func() (err error) {
			fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
			return err
		}))
		r.t.Cleanup(func() { unix.Close(fd) })
		tv := unix.NsecToTimeval(int64(200_000_000))
		netnstest.Need(r.t, errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv),
		))
		r.raw[v6] = fd
	}
}

// next is the TCP payload of the next packet, -1 if none comes.
func (r *receiver) next(v6 bool) int {
	r.t.Helper()
	n, _, err := unix.Recvfrom(r.raw[v6], nil, unix.MSG_TRUNC)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return -1
	case err != nil:
		r.t.Fatal(err)
	case v6:
		return n - vnet.TCPLen
	}
	return n - vnet.IPv4Len - vnet.TCPLen
}

// gets sends a packet with n bytes of payload and returns the longest payload of what
// arrives, or 0 if not all of it does.
func (r *receiver) gets(from *tapped, v6 bool, n int) (longest int) {
	r.t.Helper()
	s := vnettest.Spec{V6: v6, Payload: vnettest.Pattern(n), TCPFlags: vnettest.ACK, Form: vnet.FormPlain}
	if n > 1000 {
		s.GSOSize = 1400
	}
	if _, refusal, err := from.tx.WriteBatch([]vnet.Frame{vnettest.Super(s)}); refusal == vnet.NoMemory {
		return 0
	} else if err != nil {
		r.t.Fatal(err)
	}
	for total := 0; total < n; {
		got := r.next(v6)
		if got < 0 {
			return 0
		}
		total += got
		longest = max(longest, got)
	}
	return longest
}

// TestDoctorAgreesWithTheSwitch: the longest frames that `sluice doctor` reports, in and out, in
// each family, are those that a running switch carries from one host to another's IP layer, in the
// reported form. Longer ones are cut.
func TestDoctorAgreesWithTheSwitch(t *testing.T) {
	if !since(6, 6) {
		t.Skip("before Linux 6.6 there is nothing longer than 64 KiB")
	}
	for _, c := range []struct{ from, to string }{
		{"packet", "packet"}, {"packet", "tap"}, {"packet", "macvtap"}, {"macvtap", "tap"}, {"tap", "packet"},
	} {
		t.Run("from="+c.from+"/to="+c.to, func(t *testing.T) {
			b := newBed(t)
			x, y := b.host("a"), &receiver{host: b.host("b"), t: t}
			port := func(name, kind string, h *host) string {
				far := "v" + strings.ToUpper(name)
				switch kind {
				case "tap":
					return fmt.Sprintf("%s=tap:eth0,netns=%s,gso_max_size=524280,gso_ipv4_max_size=524280", name, h.Name)
				case "macvtap":
					b.Veth(h.Namespace, "eth0", b.sw, far, greatest)
					return fmt.Sprintf("%s=macvtap:m%[1]s,lower=%s", name, far)
				}
				b.Veth(h.Namespace, "eth0", b.sw, far, greatest)
				return name + "=packet:" + far
			}
			ports := []string{port("a", c.from, x), port("b", c.to, y.host)}
			b.built()
			d := diagnose(t, b.sw, nil)
			from, to := d.Kinds[c.from], d.Kinds[c.to]
			if !d.Kernel.Tried || from.Tried == nil || to.Tried == nil {
				t.Fatalf("%+v", d)
			}
			t.Logf("examined in %.2f s: in %+v, out %+v (%s)", d.Seconds, from.Tried.In, to.MaxOut, to.IPv6Form)
			s := run(t, b.sw, ports...)
			y.open()
			b.built()
			out := tapInto(t, x.Namespace, "eth0")
			headers := map[bool]int{false: vnet.EthLen + vnet.IPv4Len + vnet.TCPLen, true: vnet.EthLen + vnet.IPv6Len + vnet.TCPLen}
			for _, v6 := range []bool{false, true} {
				wait(t, "small packets to arrive", func() bool { return y.gets(out, v6, 100) == 100 })
				in, most := from.Tried.In.of(v6), to.MaxOut.of(v6)
				extra := 0 // what the switch adds
				if v6 && to.IPv6Form == "hbh" && most > vnet.LegacyGSOMaxSize {
					extra = vnet.JumboHBHLen
				}
				whole := min(in, most-extra) - headers[v6]
				last := 0
				wait(t, fmt.Sprintf("v6=%v: %d bytes of payload to cross whole", v6, whole), func() bool {
					last = y.gets(out, v6, whole)
					return last == whole
				})
				if in+extra > most { // cut, to what fits
					const segment = 1400
					wait(t, fmt.Sprintf("v6=%v: %d bytes to be cut to at most %d", v6, in, most), func() bool {
						n := y.gets(out, v6, in-headers[v6])
						return n <= most-headers[v6] && n > most-headers[v6]-extra-segment
					})
				}
			}
			sum := s.stop()
			a, z := sum.Port("a"), sum.Port("b")
			in, most := max(from.Tried.In.IPv4, from.Tried.In.IPv6), max(to.MaxOut.IPv4, to.MaxOut.IPv6)
			if n, m := a.RX.MaxFrame, z.TX.MaxFrame; n != in || m != min(in, most) {
				t.Errorf("longest frame in %d, out %d; the doctor says %d, %d", n, m, in, most)
			}
			if z.Limits.IPv6Form != to.IPv6Form || z.Limits.MaxWrite != to.MaxWrite {
				t.Errorf("limits %+v, the doctor says form %s, max_write %d", z.Limits, to.IPv6Form, to.MaxWrite)
			}
		})
	}
}

// TestDoctorForetellsLimits: the limits that it reports for netdevs are those that ports on them
// then have.
func TestDoctorForetellsLimits(t *testing.T) {
	b := newBed(t)
	x := b.cabled("a", netns.Link{GSO: 200_000, GSOIPv4: 100_000, GSOSegs: 500})
	b.cabled("b", netns.Link{GSO: 150_000, MTU: 1400})
	b.built()
	shell(t, b.sw, `ip tuntap add dev t0 mode tap vnet_hdr; ip link set t0 gro_max_size 300000 up
		ip link add link vB name m0 type macvtap mode passthru; ip link set m0 gso_max_size 200000 up
		ethtool -K vA tso off; ip link property add dev vA altname a-longer-name-of-the-same`)
	d := diagnose(t, b.sw, nil, "vA", "t0", "m0")
	s := run(t, b.sw, "a=packet:vA", "t=tap:t0", "m=macvtap:m0")
	x.Address("eth0", "192.0.2.1/24")
	sum := s.stop()
	for i, port := range []struct{ name, kind string }{{"a", "packet"}, {"t", "tap"}, {"m", "macvtap"}} {
		got, ok := d.Netdevs[i].Ports[port.kind]
		if want := sum.Port(port.name).Limits; !ok || got.Limits != want {
			t.Errorf("%s: the doctor says %+v, the switch %+v", d.Netdevs[i].Name, got.Limits, want)
		}
		if got.MaxOut.IPv4 >= got.Limits.GSOIPv4MaxSize || got.MaxOut.IPv6 >= got.Limits.GSOMaxSize {
			t.Errorf("%s: longest super-packets %+v, limits %+v", d.Netdevs[i].Name, got.MaxOut, got.Limits)
		}
	}
	if want := []string{"a-longer-name-of-the-same"}; !reflect.DeepEqual(d.Netdevs[0].AltNames, want) {
		t.Errorf("altnames %q", d.Netdevs[0].AltNames)
	}
}

// TestDoctorTellsWhatIsWrong: each finding about a netdev comes and goes with its cause, and its
// command fixes the cause.
func TestDoctorTellsWhatIsWrong(t *testing.T) {
	b := newBed(t)
	x := b.cabled("a", greatest)
	b.cabled("b", greatest)
	b.built()
	sh := func(command string) func(testing.TB) {
		return func(t testing.TB) { shell(t, b.sw, command) }
	}
	program := func(t testing.TB, typ ebpf.ProgramType, verdict int32) *ebpf.Program {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "somebody", Type: typ, Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, verdict), asm.Return()},
		})
		netnstest.Need(t, err)
		t.Cleanup(func() { p.Close() })
		return p
	}
	before := diagnose(t, b.sw, nil, "vA", "vB")
	var tcx bpflink.Link
	for _, c := range []struct {
		netdevs, id, mark, says string
		needs                   string           // a file, or a release
		cause, undo             func(testing.TB) // undo: if the finding has no command
	}{
		{netdevs: "vA", id: "down", mark: "problem", cause: sh("ip link set vA down")},
		{netdevs: "vA", id: "no_carrier", mark: "problem", says: "other end",
			cause: func(t testing.TB) { shell(t, x.Namespace, "ip link set eth0 down") },
			undo:  func(t testing.TB) { shell(t, x.Namespace, "ip link set eth0 up") }},
		{netdevs: "t1", id: "no_carrier", mark: "note", says: "TAP",
			cause: sh("ip tuntap add dev t1 mode tap vnet_hdr; ip link set t1 up"), undo: sh("ip link del t1")},
		{netdevs: "t1", id: "gro_max_size", mark: "note", says: "65536",
			cause: sh("ip tuntap add dev t1 mode tap vnet_hdr; ip link set t1 up")},
		{netdevs: "t2", id: "not_ethernet", mark: "problem", cause: sh("ip tuntap add dev t2 mode tun"), undo: sh("ip link del t2")},
		{netdevs: "nosuch", id: "missing", mark: "problem", cause: func(t testing.TB) {}, undo: sh("ip link add nosuch type veth peer name nope")},
		{netdevs: "vA", id: "host_use", mark: "note", says: "has an address",
			cause: sh("ip addr add 192.0.2.1/24 dev vA"), undo: sh("ip addr del 192.0.2.1/24 dev vA")},
		{netdevs: "vA", id: "host_use", mark: "note", says: "carries mv0",
			cause: sh("ip link add mv0 link vA type macvlan"), undo: sh("ip link del mv0")},
		{netdevs: "vA", id: "host_use", mark: "note", says: "a port of br0",
			cause: sh("ip link add br0 type bridge; ip link set vA master br0")},
		{netdevs: "vA", id: "bridge_nf", mark: "note", says: "iptables, ip6tables, arptables",
			needs: "/proc/sys/net/bridge",
			cause: sh(`for t in iptables ip6tables arptables; do sysctl -qw net.bridge.bridge-nf-call-$t=1; done
				ip link set vA master br0`)},
		{netdevs: "vA", id: "gso_max_size", mark: "note", says: "16384, less than the kernel's default",
			cause: sh("ip link set vA gso_max_size 16384")},
		{netdevs: "vA", id: "gso_max_size", mark: "note", says: "65536, the kernel's default",
			cause: sh("ip link set vA gso_max_size 65536")},
		{netdevs: "vA", id: "gso_ipv4_max_size", mark: "note", says: "is 1000, and gso_max_size 524280", needs: "6.6",
			cause: func(t testing.TB) { b.sw.SetLink("vA", netns.Link{GSO: 524280, GSOIPv4: 1000}) },
			undo:  func(t testing.TB) { b.sw.SetLink("vA", greatest) }},
		{netdevs: "vA", id: "gso_max_segs", mark: "note", says: "100", cause: sh("ip link set vA gso_max_segs 100")},
		{netdevs: "vA", id: "offloads", mark: "note", says: "checksums", cause: sh("ethtool -K vA tx off")},
		{netdevs: "vA", id: "offloads", mark: "note", says: "TCP", cause: sh("ethtool -K vA tso off")},
		{netdevs: "vA", id: "offloads", mark: "note", says: "UDP", cause: sh("ethtool -K vA tx-udp-segmentation off")},
		{netdevs: "vA", id: "qdisc", mark: "note", says: "pfifo", cause: sh("tc qdisc add dev vA root pfifo")},
		{netdevs: "vA", id: "tcx", mark: "note", says: "somebody", needs: "6.6",
			cause: func(t testing.TB) {
				p := program(t, ebpf.SchedCLS, -1)
				netnstest.Need(t, b.sw.Do(func() (err error) {
					tcx, err = bpflink.AttachTCX(bpflink.TCXOptions{
						Interface: link(t, b.sw, "vA").Index, Program: p, Attach: ebpf.AttachTCXIngress,
					})
					return err
				}))
			},
			undo: func(t testing.TB) { tcx.Close() }},
		{netdevs: "vA", id: "xdp", mark: "note", cause: func(t testing.TB) {
			p := program(t, ebpf.XDP, 2)
			netnstest.Need(t, b.sw.Do(func() error {
				return netlink.LinkSetXdpFdWithFlags(&netlink.Device{LinkAttrs: *link(t, b.sw, "vA")}, p.FD(), unix.XDP_FLAGS_SKB_MODE)
			}))
		}},
		{netdevs: "vA vB", id: "mtu", mark: "note", says: "vB 1500", cause: sh("ip link set vA mtu 1400"),
			undo: sh("ip link set vA mtu 1500")},
	} {
		name := strings.ReplaceAll(c.id+" "+c.says, " ", "-")
		t.Run(name, func(t *testing.T) {
			if strings.HasPrefix(c.needs, "/") {
				if _, err := os.Stat(c.needs); err != nil {
					t.Skip(err)
				}
			} else if c.needs != "" && !since(6, 6) {
				t.Skip("needs Linux " + c.needs)
			}
			names := strings.Fields(c.netdevs)
			object := names[0]
			if len(names) > 1 {
				object = "" // of them all
			}
			if f := before.find(object, c.id, c.says); f != nil {
				t.Fatalf("told without a reason: %+v", f)
			}
			c.cause(t)
			b.built()
			d := diagnose(t, b.sw, nil, names...)
			f := d.find(object, c.id, c.says)
			if f == nil || f.Mark != c.mark {
				t.Fatalf("%+v, want a %s; all: %+v", f, c.mark, d.Findings)
			}
			switch {
			case c.undo != nil:
				c.undo(t)
			case f.Mend == "":
				t.Fatalf("no command: %+v", f)
			default:
				shell(t, b.sw, f.Mend)
			}
			b.built()
			if f := diagnose(t, b.sw, nil, names...).find(object, c.id, c.says); f != nil {
				t.Errorf("still told: %+v", f)
			}
		})
	}
	// If nothing is wrong, that is the only finding.
	shell(t, b.sw, "ip link set vA nomaster; ip link set vA mtu 1500")
	for _, f := range diagnose(t, b.sw, nil, "vA", "vB").Findings {
		if f.Group == "netdevs" && (f.ID != "ready" || f.Mark != "ok") {
			t.Errorf("%+v", f)
		}
	}
}

// TestDoctorTellsWhoHoldsANetdev: another switch.
func TestDoctorTellsWhoHoldsANetdev(t *testing.T) {
	b, _, _ := pair(t, greatest, greatest)
	s := run(t, b.sw, "a=packet:vA", "b=packet:vB")
	d := diagnose(t, b.sw, nil, "vA")
	f := d.find("vA", "held", fmt.Sprintf("process %d (sluice)", s.PID()))
	if f == nil || f.Mark != "problem" || d.Netdevs[0].HeldBy == nil || d.Netdevs[0].HeldBy.PID != s.PID() {
		t.Fatalf("%+v, %+v", f, d.Netdevs)
	}
	if f := d.find("vA", "tcx", ""); f != nil {
		t.Errorf("the switch's own program is told of: %+v", f)
	}
	shell(t, b.sw, f.Mend)
	if code := s.exit(); code != 0 {
		t.Errorf("the switch ends with %d", code)
	}
	d = diagnose(t, b.sw, nil, "vA")
	if f := d.find("vA", "held", ""); f != nil || d.Netdevs[0].HeldBy != nil {
		t.Errorf("still held: %+v", f)
	}
}

// TestDoctorWithoutPrivilege: it reports what is missing, and what it can still find out.
func TestDoctorWithoutPrivilege(t *testing.T) {
	b, _, _ := pair(t, greatest, netns.Link{})
	shell(t, b.sw, "ip link set vA down")
	nobody := []string{"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
		"--bounding-set", "-all", "--inh-caps", "-all"}
	d := diagnose(t, b.sw, nobody, "vA", "vB")
	if d.Kernel.Tried || !strings.Contains(d.Kernel.Why, "CAP_SYS_ADMIN") || d.HostDrop.Works {
		t.Errorf("%+v, %+v", d.Kernel, d.HostDrop)
	}
	for _, c := range []string{"CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_BPF", "CAP_SYS_ADMIN"} {
		told := slices.ContainsFunc(d.Findings, func(f finding) bool { return f.Object == c && f.ID == "capability" })
		if !told || !slices.Contains(d.Capabilities.Lack, c) {
			t.Errorf("%s: told %v, lacking %v", c, told, d.Capabilities.Lack)
		}
	}
	if d.Netdevs[0].Ports["packet"].Limits.GSOMaxSize != vnet.MaxGSOMaxSize || d.find("vA", "down", "") == nil ||
		d.find("vB", "gso_max_size", "65536") == nil {
		t.Errorf("of the netdevs: %+v, %+v", d.Netdevs, d.Findings)
	}
	root := diagnose(t, b.sw, nil, "vA", "vB")
	if len(root.Capabilities.Lack) != 0 || !root.Kernel.Tried || root.HostDrop.Works != since(6, 6) {
		t.Errorf("as root: %+v, %+v, %+v", root.Capabilities, root.Kernel, root.HostDrop)
	}
}

// TestDoctorForAPerson: the text fits a terminal, and has no colours without one; usage errors are
// reported as such.
func TestDoctorForAPerson(t *testing.T) {
	b, _, _ := pair(t, netns.Link{}, netns.Link{MTU: 1400})
	shell(t, b.sw, `for i in 1 2 3 4 5 6 7; do ip addr add 198.51.100.$i/24 dev vA; done
		ip link property add dev vA altname a-name-of-more-than-eighty-columns-which-is-cut-where-the-terminal-ends-and-goes-on`)
	text, code := doctor(t, b.sw, nil, "vA", "vB", "nosuch")
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	help, code := doctor(t, b.sw, nil, "--help")
	if code != 0 || !strings.Contains(help, "Exit codes: 0") {
		t.Errorf("exit code %d:\n%s", code, help)
	}
	for line := range strings.Lines(text + help) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 || strings.Contains(line, "\x1b") {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	for _, want := range []string{"Netdev vA", "try: ip link set vA gso_max_size 524280", "problem  there is no such netdev", "1 problem, "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	for _, args := range [][]string{{"--no-such-flag"}, {""}} {
		if out, code := doctor(t, b.sw, nil, args...); code != 2 || out != "" {
			t.Errorf("%q: exit code %d, %q", args, code, out)
		}
	}
}
