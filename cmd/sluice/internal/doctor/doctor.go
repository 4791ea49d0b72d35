package doctor

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sluice/dataplane/summary"
	"sluice/tunio/link"
	"sluice/tunio/probe"
	"sluice/vnet"
)

// Run examines the kernel and the named netdevs of the process's network namespace. It takes about
// half a second.
func Run(version string, names []string) *Report {
	began := time.Now()
	found := probe.Examine(link.HostDrop)
	r := &Report{
		Schema: 1, Version: version,
		Kernel:  Kernel{Release: found.Release, Tried: found.Probed, Why: found.Why},
		Kinds:   map[string]Kind{},
		Netdevs: []Netdev{}, Findings: []Finding{},
	}
	r.rights()
	r.kernel(&found)
	r.netdevs(&found.Result, names)
	r.Seconds = time.Since(began).Seconds()
	return r
}

// capability is one that a switch uses.
type capability struct {
	number int
	name   string
	mark   Mark   // of a finding that it is missing
	means  string // what it means that it is missing
}

var used = []capability{
	{unix.CAP_NET_RAW, "CAP_NET_RAW", Problem, "packet ports cannot be opened"},
	{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", Problem,
		"tap and macvtap ports cannot be opened, and the limits of netdevs cannot be raised"},
	{unix.CAP_BPF, "CAP_BPF", Problem,
		"packet ports need host=keep: the host's own stack cannot be kept from seeing their frames"},
	{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN", Note,
		"netns= does not work, and the kernel is judged by its release, not by a trial"},
	{unix.CAP_MKNOD, "CAP_MKNOD", Note,
		"a macvtap of another namespace, or in a container, may not open"},
}

// rights finds the capabilities that are missing.
func (r *Report) rights() {
	r.Capabilities = Capabilities{Have: []string{}, Lack: []string{}}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		r.find(Finding{Group: rights, Object: "capabilities", ID: "capabilities", Mark: Problem,
			Text: "the capabilities cannot be read: " + err.Error()})
		return
	}
	for _, c := range used {
		// CAP_SYS_ADMIN stands for CAP_BPF too (bpf_capable in linux/capability.h).
		has := func(n int) bool { return data[n/32].Effective&(1<<(n%32)) != 0 }
		if has(c.number) || c.number == unix.CAP_BPF && has(unix.CAP_SYS_ADMIN) {
			r.Capabilities.Have = append(r.Capabilities.Have, c.name)
			continue
		}
		r.Capabilities.Lack = append(r.Capabilities.Lack, c.name)
		r.find(Finding{
			Group: rights, Object: c.name, ID: "capability", Mark: c.mark,
			Text: c.name + " is missing", Means: c.means,
			Advice: "sudo, or AmbientCapabilities=" + c.name + " in its service",
		})
	}
	if have := r.Capabilities.Have; len(have) > 0 {
		r.find(Finding{Group: rights, Object: "capabilities", ID: "capabilities", Mark: OK,
			Text: strings.Join(have, ", ")})
	}
}

// kernel adds what was found out about each kind of port.
func (r *Report) kernel(found *probe.Report) {
	tried := found.Kinds
	if len(tried) == 0 {
		r.find(Finding{
			Group: kinds, Object: "kernel", ID: "tried", Mark: Note,
			Text:  "nothing could be tried: " + found.Why,
			Means: "the following was measured on other kernels of the release " + found.Release,
			Mend:  "sudo sluice doctor",
		})
		tried = []probe.Kind{
			{Name: "tap", Ability: found.Tap}, {Name: "packet", Ability: found.Packet},
			{Name: "macvtap", Ability: found.Packet},
		}
	}
	all := link.TakesAll()
	for i := range tried {
		k := &tried[i]
		limits := limitsOf(k.Name, all, all, &found.Result)
		out := Kind{
			MaxWrite: limits.MaxWrite, IPv6Form: limits.IPv6Form.String(), MaxOut: maxOut(&limits),
		}
		if k.Err != nil {
			out.Error = k.Err.Error()
		}
		if k.HeaderLen != 0 {
			out.Tried = &Tried{
				HeaderLen: k.HeaderLen,
				Out:       Out{IPv4: k.Out.IPv4, HBH: k.Out.HBH, Plain: k.Out.Plain, Types: Types(k.Out.Types)},
				In:        In{Max{k.In.IPv4, k.In.IPv6}, Types(k.In.Types)},
			}
		}
		r.Kinds[k.Name] = out
		r.kind(k.Name, &out)
		if k.Name == "macvtap" && k.HeaderLen != 0 && k.Err == nil && k.Ability != found.Packet {
			r.find(Finding{
				Group: kinds, Object: k.Name, ID: "ability", Mark: Note,
				Text: fmt.Sprintf("a macvtap port carries other frames than a packet port: IPv4 above 64 KiB %v, IPv6 %s, up to %d bytes",
					k.IPv4, k.IPv6, k.Ability.MaxWrite),
				Means: "a switch assumes what a packet port carries",
			})
		}
	}
	r.hostDrop(found)
}

// limitsOf are the limits that a port of this kind on a netdev starts with in `sluice run`. lower
// is a macvtap's lower netdev.
func limitsOf(kind string, f, lower *link.Facts, found *probe.Result) vnet.Limits {
	switch kind {
	case "tap":
		return link.TapLimits(f, found.Tap)
	case "macvtap":
		return link.MacvtapLimits(f, lower, found.Packet)
	}
	return link.PacketLimits(f, found.Packet)
}

// maxOut is the longest super-packet of TCP without tags.
func maxOut(l *vnet.Limits) Max {
	return Max{
		IPv4: l.MaxSuper(&vnet.L2{EtherType: vnet.EtherTypeIPv4}, vnet.GSOTCPv4),
		IPv6: l.MaxSuper(&vnet.L2{EtherType: vnet.EtherTypeIPv6}, vnet.GSOTCPv6),
	}
}

// summaryLimits is l in the format of the summary.
func summaryLimits(l *vnet.Limits) summary.Limits {
	return summary.Limits{
		GSOMaxSize: l.GSOMaxSize, GSOIPv4MaxSize: l.GSOIPv4MaxSize, GSOMaxSegs: l.GSOMaxSegs,
		MTU: l.MTU, MaxWrite: l.MaxWrite, IPv6Form: l.IPv6Form.String(),
		Csum: l.Csum, TSO4: l.TSO4, TSO6: l.TSO6, USO: l.USO,
	}
}

// kind finds what a kind of port cannot do.
func (r *Report) kind(name string, k *Kind) {
	found := func(id string, mark Mark, text, means, advice string) {
		r.find(Finding{
			Group: kinds, Object: name, ID: id, Mark: mark, Text: text, Means: means, Advice: advice,
		})
	}
	switch {
	case k.Tried == nil && k.Error == "":
		// Not tried at all, which was already reported.
	case k.Error != "" && name == "macvtap":
		found("works", Note, "it could not be tried: "+k.Error, "macvtap ports may not open", "")
	case k.Error != "":
		found("works", Problem, "it could not be tried: "+k.Error, name+" ports may not open", "")
	default:
		found("works", OK, fmt.Sprintf("ports open, with a virtio-net header of %d bytes",
			k.Tried.HeaderLen), "", "")
	}
	const legacy = vnet.LegacyGSOMaxSize
	switch {
	case k.MaxOut.IPv4 < legacy:
		found("big_ipv4", Note, "IPv4 above 64 KiB does not get through",
			"it is cut to super-packets below 64 KiB", "Linux 6.6 or later")
	default:
		found("big_ipv4", OK, fmt.Sprintf("IPv4 leaves in super-packets of up to %d bytes", k.MaxOut.IPv4), "", "")
	}
	switch {
	case k.MaxOut.IPv6 < legacy && k.MaxOut.IPv4 < legacy:
		found("big_ipv6", Note, "IPv6 above 64 KiB does not get through, in either form",
			"it is cut to super-packets below 64 KiB", "Linux 6.6 or later")
	case k.MaxOut.IPv6 < legacy:
		found("big_ipv6", Note, "IPv6 above 64 KiB is lost, with a hop-by-hop header and without",
			"it is cut to super-packets below 64 KiB", "Linux 7.0 or later, or a tap port if possible")
	default:
		found("big_ipv6", OK, fmt.Sprintf("IPv6 leaves in super-packets of up to %d bytes, in the form %s",
			k.MaxOut.IPv6, k.IPv6Form), "", "")
	}
	if k.Tried == nil || k.Error != "" {
		return
	}
	if name == "packet" && k.Tried.HeaderLen < vnet.HeaderLen {
		found("header", Note, "PACKET_VNET_HDR_SZ is missing: the virtio-net header is the short one",
			"this has no disadvantage", "Linux 6.4 or later")
	}
	if lack := k.Tried.Out.lack(); lack != "" {
		found("gso_out", Note, "the kernel refuses or loses super-packets of "+lack,
			"they leave as segments", "another kernel build: this release should take them")
	}
	if lack := k.Tried.In.lack(); lack != "" {
		found("gso_in", Note, "super-packets of "+lack+" do not come in whole", "the kernel cuts or drops them before a switch reads them", "")
	}
}

// lack names the types that do not pass.
func (t *Types) lack() string {
	var lack []string
	for _, c := range []struct {
		passes bool
		name   string
	}{{t.TCPv4, "TCPv4"}, {t.TCPv6, "TCPv6"}, {t.UDP, "UDP (USO)"}, {t.ECN, "TCP with CWR (ECN)"}} {
		if !c.passes {
			lack = append(lack, c.name)
		}
	}
	return strings.Join(lack, ", ")
}

// hostDrop finds whether host=drop works.
func (r *Report) hostDrop(found *probe.Report) {
	err := found.HostDrop
	r.HostDrop.Works = err == nil
	f := Finding{Group: kinds, Object: "packet", ID: "host_drop", Mark: OK,
		Text: "host=drop works: a tcx program keeps the frames from the host's own stack"}
	if err != nil {
		r.HostDrop.Why = err.Error()
		f.Mark, f.Text = Note, "host=drop could not be shown to work: "+err.Error()
		f.Means = "the host's own stack may also answer what a packet port receives"
		if errors.Is(err, errors.ErrUnsupported) {
			f.Advice = "Linux 6.6 or later, or netdevs without addresses in a separate namespace"
		}
	}
	r.find(f)
}

// netdevs adds the named ones.
func (r *Report) netdevs(found *probe.Result, names []string) {
	if len(names) == 0 {
		return
	}
	ns, err := link.OpenNamespace("")
	if err != nil {
		r.find(Finding{Group: netdevs, ID: "namespace", Mark: Problem, Text: err.Error()})
		return
	}
	defer ns.Close()
	for _, name := range names {
		d := Netdev{Name: name, AltNames: []string{}, Addresses: []string{}, Qdiscs: []string{},
			TCXIngress: []string{}, TCXEgress: []string{}, BridgeNFCalls: []string{}, Ports: map[string]Port{}}
		e := &examination{Report: r, Netdev: &d, ns: ns, found: found}
		e.run()
		r.Netdevs = append(r.Netdevs, d)
	}
	r.mtus()
}

// mtus finds netdevs of different MTUs.
func (r *Report) mtus() {
	least := 0
	for _, d := range r.Netdevs {
		if d.Found && (least == 0 || d.MTU < least) {
			least = d.MTU
		}
	}
	var larger, mend []string
	for _, d := range r.Netdevs {
		if d.MTU > least {
			larger = append(larger, fmt.Sprintf("%s %d", d.Name, d.MTU))
			mend = append(mend, fmt.Sprintf("ip link set %s mtu %d", d.Netdev, least))
		}
	}
	if len(larger) == 0 {
		return
	}
	r.find(Finding{
		Group: netdevs, ID: "mtu", Mark: Note,
		Text:  fmt.Sprintf("the MTUs differ: the smallest is %d, and larger %s", least, strings.Join(larger, ", ")),
		Means: "longer frames are dropped there as over_mtu: all netdevs of a network need the same MTU",
		Mend:  strings.Join(mend, "; "),
	})
}
