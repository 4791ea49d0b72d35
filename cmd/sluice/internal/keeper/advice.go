package keeper

import (
	"time"

	"sluice/cmd/sluice/internal/config"
	"sluice/dataplane"
	"sluice/vnet"
)

// What counts as a rate that kills a flow.
const (
	// watchWindow is how long drops are counted together, at least; at most twice as long.
	watchWindow = 10 * time.Second
	// fatal is how many drops in a window are too many for a reason that hits one frame
	// as it hits the next: a flow that dies of it leaves more. TCP sends the same data
	// again after 0.2, 0.6, 1.4, 3 and 6.2 s (RFC 6298, 5.5, with the kernel's
	// TCP_RTO_MIN), and a neighbour is asked for once a second (RFC 4861, 10). A higher
	// rate would miss it: a dying flow sends less and less.
	fatal = 3
	// fatalShare is one over the share of a port's frames that may be dropped, over a
	// whole window, for a reason that is there in honest traffic too. TCP itself makes a
	// queue drop, and lives on less than 1 %. Its window is 1.2/sqrt(p) segments
	// (RFC 3649): at 10 % less than the four that a fast retransmit takes (RFC 5681, 3.2),
	// so that each loss costs a timeout.
	fatalShare = 10
)

// advice is what a user is told of frames that are dropped for a reason.
type advice struct {
	text  string // what to do
	usual bool   // honest traffic has such drops too: their share tells
	// elsewhere is the message that tells of it as it begins, in place of text.
	elsewhere string
}

// advised has what to do about each drop reason. DEV in a command is a netdev that the
// port's log line does not name.
var advised = [vnet.NumDrops]advice{
	vnet.DropRunt: {text: "they end within the Ethernet header: look at their sender with tcpdump -eni DEV"},
	vnet.DropTooLong: {text: "they are longer than 524279 bytes; where they are sent: " +
		"ip link set DEV gso_max_size 524280"},
	vnet.DropTruncated: {text: "they are longer than a read takes; where they are sent: " +
		"ip link set DEV gso_max_size 524280"},
	vnet.DropBadHeader: {text: "their virtio-net header is cut off: mend the program that writes them"},
	vnet.DropBadCsum: {text: "their checksum field lies outside of them; where they are sent: " +
		"ethtool -K DEV tx off"},
	vnet.DropBadGSO: {text: "their GSO type does not fit them; where they are sent: " +
		"ethtool -K DEV tso off gso off tx-udp-segmentation off"},
	vnet.DropUnsupportedGSO: {text: "SCTP, or USO before Linux 6.2; where they are sent: " +
		"ethtool -K DEV tx-sctp-segmentation off tx-udp-segmentation off"},
	vnet.DropHeadersTooLong: {text: "super-packets with over 1024 bytes of headers; where they are sent: " +
		"ethtool -K DEV tso off gso off"},
	vnet.DropBadSource: {text: "their source is a group address or zero; where they are sent: " +
		"ip link set DEV address MAC"},
	vnet.DropReservedMulticast: {text: "STP, LACP, LLDP and 802.1X end at a bridge; " +
		"to pass them, use the key reserved=forward"},
	vnet.DropLoop: {elsewhere: loopMsg}, // port.advise, again and again
	vnet.DropVLAN: {text: "the port does not take their VLAN tag, or takes none: " +
		"see its keys vlan_mode, tag and trunks"},
	vnet.DropIsolated: {usual: true, text: "isolated ports send each other nothing: " +
		"take the key isolated off one of them"},
	vnet.DropStorm: {usual: true, text: "more frames a second are to be flooded than the port's key storm allows"},
	vnet.DropSamePort: {usual: true, text: "they are for the port they came from: two hosts with one MAC " +
		"address, a loop, or a switch there that floods"},
	vnet.DropNoEgress: {usual: true, text: "no other port is up: the log has why"},
	vnet.DropOverMTU: {text: "they are longer than the port's MTU: " +
		"all netdevs and hosts of one network need the same"},
	vnet.DropTooManySegments: {text: "they are more than 65535 segments: raise the MSS of their sender"},
	vnet.DropTooBig: {text: "the device takes less than it says (EMSGSIZE): " +
		"give the port gso_max_size=65536"},
	vnet.DropFull: {usual: true, text: "whoever is behind the port takes less than comes; " +
		"for a queueing discipline's part: tc -s qdisc show dev DEV"},
	vnet.DropNoMemory: {text: "the kernel has no memory for them: " +
		"sysctl -w vm.min_free_kbytes=131072, or give the port gso_max_size=65536"},
	vnet.DropRefused: {text: "the kernel refuses them even as plain segments (EINVAL): " +
		"look at what they are with tcpdump -eni DEV"},
	vnet.DropPortDown: {elsewhere: "port is down"},                            // port.say
	vnet.DropIOError:  {elsewhere: "writes fail and are counted as io_error"}, // port.failed
}

// loopMsg begins the warning of a loop.
const loopMsg = "frames that were flooded come back in here: a layer-2 loop"

// tunnelAdvice has what to do about super-packets in tunnels, by what they are in.
var tunnelAdvice = [vnet.NumTunnels]string{
	vnet.NoTunnel: advised[vnet.DropUnsupportedGSO].text,
	vnet.TunnelUDP: "super-packets in VXLAN, Geneve, ...; where they are sent: " +
		"ethtool -K DEV tx-udp_tnl-segmentation off tx-udp_tnl-csum-segmentation off",
	vnet.TunnelGRE: "super-packets in GRE; where they are sent: " +
		"ethtool -K DEV tx-gre-segmentation off tx-gre-csum-segmentation off",
	vnet.TunnelIP: "super-packets in IPIP, SIT, ...; where they are sent: " +
		"ethtool -K DEV tx-ipxip4-segmentation off tx-ipxip6-segmentation off",
	vnet.TunnelTags: "super-packets with MPLS labels or three VLAN tags; where they are sent: " +
		"ethtool -K DEV tso off tx-udp-segmentation off",
}

// dropWatch finds out which drop reasons kill flows. Its zero value is ready for use.
type dropWatch struct {
	since time.Time       // when the window began,
	next  dataplane.Stats // what the counters were then,
	then  dataplane.Stats // and when the window before began
}

// look returns the reasons whose drops in this window and the one before are too many,
// for as long as they are. The counters c are the port's as they are now.
func (w *dropWatch) look(now time.Time, c *dataplane.Stats) (found []vnet.Drop) {
	over := !w.since.IsZero() && now.Sub(w.since) >= watchWindow
	for d := vnet.Keep + 1; d < vnet.NumDrops; d++ {
		if advised[d].elsewhere != "" {
			continue
		}
		n, frames := grown(w.then.EgressDrops[d], c.EgressDrops[d]), egressFrames(c)-egressFrames(&w.then)
		if d.Ingress() {
			n, frames = grown(w.then.IngressDrops[d], c.IngressDrops[d]), c.RxFrames-w.then.RxFrames
		}
		if n >= fatal && (!advised[d].usual || over && n*fatalShare >= frames) {
			found = append(found, d)
		}
	}
	return found
}

// roll begins a new window where the last is over.
func (w *dropWatch) roll(now time.Time, c *dataplane.Stats) {
	if now.Sub(w.since) < watchWindow {
		return
	}
	w.then = w.next
	if w.since.IsZero() {
		w.then = *c
	}
	w.since, w.next = now, *c
}

// egressFrames is how many writes a port was to make: with what was cut, pieces count.
func egressFrames(c *dataplane.Stats) uint64 {
	n := c.TxFrames
	for _, d := range c.EgressDrops {
		n += d
	}
	return n
}

// advise warns of a loop for as long as there is one, and once each of other drop reasons
// that kill flows, with what to do: without it connections stall, and nobody knows why
// until the summary.
func (p *port) advise(now time.Time) {
	c := p.sw.Stats()
	if rate, tell := p.loop.look(c.IngressDrops[vnet.DropLoop], now); tell {
		p.log.Warn(loopMsg+"; they are dropped as loop; "+
			"to break it: "+p.ip()+" link set "+p.netdev+" down", "per_second", rate)
	}
	p.warn(now, &c)
}

// warn is advise with the port's counters.
func (p *port) warn(now time.Time, c *dataplane.Stats) {
	for _, d := range p.watch.look(now, c) {
		switch d {
		case vnet.DropOverMTU:
			p.dropping(d, advised[d].text, "mtu", p.sw.Limits().MTU)
		case vnet.DropUnsupportedGSO:
			p.unsupported(c)
		default:
			p.dropping(d, advised[d].text)
		}
	}
	p.watch.roll(now, c)
}

// dropping warns of drops for a reason.
func (p *port) dropping(d vnet.Drop, text string, args ...any) {
	p.warnOnce(droppingMsg(d, text), args...)
}

// droppingMsg is the line about a reason.
func droppingMsg(d vnet.Drop, text string) string { return d.String() + " drops: " + text }

// unsupported warns of each kind of tunnel that the dropped super-packets of the window
// came in.
func (p *port) unsupported(c *dataplane.Stats) {
	const d = vnet.DropUnsupportedGSO
	tunnels, plain := false, grown(p.watch.then.IngressDrops[d], c.IngressDrops[d])
	for kind := vnet.NoTunnel + 1; kind < vnet.NumTunnels; kind++ {
		if n := grown(p.watch.then.Tunnels[kind], c.Tunnels[kind]); n > 0 {
			p.dropping(d, tunnelAdvice[kind])
			plain -= n
			tunnels = true
		}
	}
	if plain > 0 {
		p.dropping(d, tunnelAdvice[vnet.NoTunnel])
	}
	if device := p.gro(); tunnels && device != "" {
		p.dropping(d, groAdvice(device))
	}
}

// groAdvice has what to do where GRO at a netdev undoes what the sender does.
func groAdvice(device string) string {
	return "GRO makes super-packets of what comes in segments, too; try: ethtool -K " + device + " gro off"
}

// gro is the netdev whose GRO merges what the port receives, or "".
func (p *port) gro() string {
	if p.spec.Kind == config.Tap || p.ns.ns == nil { // what comes out of a TAP has not been received
		return ""
	}
	f, err := p.ns.ns.GetIndex(p.index)
	if err == nil && p.spec.Kind == config.Macvtap && !f.LowerElsewhere {
		f, err = p.ns.ns.GetIndex(f.Lower)
	}
	if err != nil || !f.GRO || f.Tun != nil { // a TAP says that it does, and does not (IFF_NAPI)
		return ""
	}
	return f.Name
}
