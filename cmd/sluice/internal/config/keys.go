package config

import (
	"fmt"
	"slices"
	"strings"

	"sluice/dataplane"
	"sluice/vnet"
)

// Bounds of numbers.
const (
	minMTU     = 68    // RFC 791, 3.2: every IPv4 module takes this
	maxMTU     = 65535 // IP_MAX_MTU (include/net/ip.h)
	maxQueues  = 256   // MAX_TAP_QUEUES (include/linux/if_tap.h); tun has the same
	minGSOSize = 128   // below this not even one segment with a small MSS fits

	minFDB    = 16384   // addresses: what a switch chip of the last decade holds
	maxFDB    = 1 << 20 // 16 MiB of table
	defAgeing = 300     // seconds: IEEE 802.1Q, table 8-10
	maxAgeing = 1000000 // seconds: the same table
	minAgeing = 10      // seconds: the same table
	maxPerSec = 1 << 30 // more than any port carries
)

var gsoSizes = numbers{minGSOSize, vnet.MaxGSOMaxSize}

// portKeys are the keys of a port. All spellings, the help, the schema and Diff use them: a new key
// is a field of Port and a line here.
var portKeys = []key[Port]{
	bind(key[Port]{
		name: "kind", needs: Reattach, must: true,
		help: "tap (created if missing), packet (an existing netdev) or macvtap (an existing one, or created over lower)",
	}, words[Kind]{what: "port kind", all: kinds}, "",
		func(p *Port) *Kind { return &p.Kind }),
	bind(key[Port]{
		name: "device", needs: Reattach, must: true,
		help: "the netdev's name",
	}, netdevs, "",
		func(p *Port) *string { return &p.Device }),
	bind(key[Port]{
		name: "netns", arg: "NAME", kinds: []Kind{Tap}, needs: Reattach,
		help: "its network namespace",
	}, namespaces, "",
		func(p *Port) *string { return &p.Netns }),
	bind(key[Port]{
		name: "lower", arg: "NETDEV", kinds: []Kind{Macvtap}, needs: Reattach,
		help: "the netdev to create it over",
	}, netdevs, "",
		func(p *Port) *string { return &p.Lower }),
	bind(key[Port]{
		name: "mtu", arg: "N",
		help: "the MTU of a netdev that Sluice creates; on others it only limits the port",
	}, numbers{minMTU, maxMTU}, 0,
		func(p *Port) *int { return &p.MTU }),
	bind(key[Port]{
		name: "queues", arg: "N", needs: Reattach,
		help: "receive queues, one worker each (default 1)",
	}, numbers{1, maxQueues}, 1,
		func(p *Port) *int { return &p.Queues }),
	bind(key[Port]{
		name: "gso_max_size", arg: "N",
		help: "super-packets that are sent are shorter than this",
	}, gsoSizes, 0,
		func(p *Port) *int { return &p.GSOMaxSize }),
	bind(key[Port]{
		name: "gso_ipv4_max_size", arg: "N",
		help: "the same, for IPv4",
	}, gsoSizes, 0,
		func(p *Port) *int { return &p.GSOIPv4MaxSize }),
	bind(key[Port]{
		name: "gso_max_segs", arg: "N",
		help: "super-packets that are sent stand for at most this many segments",
	}, numbers{1, vnet.MaxSegments}, 0,
		func(p *Port) *int { return &p.GSOMaxSegs }),
	bind(key[Port]{
		name: "oversize", arg: "HOW",
		help: "what to do with a longer super-packet: resegment (default: the fewest chunks that fit), " +
			"segment (MSS-size packets) or pass (the kernel gets it whole)",
	}, words[dataplane.Oversize]{all: []dataplane.Oversize{
		dataplane.OversizeResegment, dataplane.OversizeSegment, dataplane.OversizePass,
	}}, dataplane.OversizeResegment,
		func(p *Port) *dataplane.Oversize { return &p.Oversize }),
	bind(key[Port]{
		name: "offload", arg: "WHAT",
		help: "auto (default), full, csum or none: what the receiver takes",
	}, words[Offload]{all: offloads}, OffloadAuto,
		func(p *Port) *Offload { return &p.Offload }),
	bind(key[Port]{
		name: "host", arg: "HOW", kinds: []Kind{Packet},
		help: "whether the host's own stack also sees the frames: drop (no) or keep (yes); by default it does " +
			"while the netdev has an address, is a bridge's port or carries another netdev",
	}, words[Host]{all: hosts}, HostAuto,
		func(p *Port) *Host { return &p.Host }),
	bind(key[Port]{
		name: "reserved", arg: "HOW",
		help: "what to do with frames for 01:80:c2:00:00:0x (LLDP, LACP, STP, 802.1X) that come in at the port: drop, " +
			"or forward to every other port, except PAUSE; by default the switch's setting, which is drop",
	}, words[Reserved]{all: reserveds}, "",
		func(p *Port) *Reserved { return &p.Reserved }),
	bind(key[Port]{
		name: "vlan_mode", arg: "MODE",
		help: "access, trunk, native-untagged or native-tagged; by default access if there is a tag, otherwise trunk",
	}, words[VLANMode]{all: vlanModes}, "",
		func(p *Port) *VLANMode { return &p.VLANMode }),
	bind(key[Port]{
		name: "tag", arg: "VLAN",
		help: "the VLAN of an access port, or the native one, 0 to 4095",
	}, tags{}, Tag{},
		func(p *Port) *Tag { return &p.Tag }),
	bind(key[Port]{
		name: "trunks", arg: "VLANS",
		help: "the VLANs that a trunk carries, such as 10+20-30; 0 is for untagged frames (default: all)",
	}, vlanSets{}, VLANs{},
		func(p *Port) *VLANs { return &p.Trunks }),
	bind(key[Port]{
		name: "isolated", arg: "BOOL",
		help: "true: no frames to or from other isolated ports",
	}, flag{}, false,
		func(p *Port) *bool { return &p.Isolated }),
	bind(key[Port]{
		name: "mac_limit", arg: "N",
		help: "at most this many addresses are learnt here (default 0: no limit)",
	}, numbers{0, maxFDB}, 0,
		func(p *Port) *int { return &p.MACLimit }),
	bind(key[Port]{
		name: "storm", arg: "N",
		help: "at most this many frames a second are flooded from here (default 0: no limit)",
	}, numbers{0, maxPerSec}, 0,
		func(p *Port) *int { return &p.Storm }),
	bind(key[Port]{
		name: "loop", arg: "HOW",
		help: "what to do about a loop behind the port: warn (default: an event) or shut (and set the port down)",
	}, words[Loop]{all: loops}, LoopWarn,
		func(p *Port) *Loop { return &p.Loop }),
}

var entryKeys = []key[Entry]{
	bind(key[Entry]{name: "vlan", help: "its VLAN, 0 to 4095 (default 0: for untagged frames)"},
		vlans{}, 0, func(e *Entry) *uint16 { return &e.VLAN }),
	bind(key[Entry]{name: "mac", must: true, help: "the MAC address of a host, such as 52:54:00:00:00:0a"},
		macs{}, 0, func(e *Entry) *vnet.MAC { return &e.MAC }),
	bind(key[Entry]{name: "port", must: true, help: "the port that it is behind"},
		names, "", func(e *Entry) *string { return &e.Port }),
}

var fdbKeys = []key[FDB]{
	bind(key[FDB]{name: "size", needs: Restart, help: "room for addresses, static ones included"},
		numbers{minFDB, maxFDB}, minFDB, func(f *FDB) *int { return &f.Size }),
	bind(key[FDB]{name: "ageing", help: "seconds without a frame after which an address is forgotten"},
		numbers{minAgeing, maxAgeing}, defAgeing, func(f *FDB) *int { return &f.Ageing }),
	bind(key[FDB]{name: "mac_limit", help: "at most this many addresses are learnt (default 0: as many as fit)"},
		numbers{0, maxFDB}, 0, func(f *FDB) *int { return &f.MACLimit }),
	group[FDB, Entry]{
		name: "static", help: "addresses that are not learnt, do not age and do not move", what: "static address",
		keys: entryKeys, field: func(f *FDB) *[]Entry { return &f.Static },
		label: func(e *Entry) string { return fmt.Sprintf("%s in VLAN %d", e.MAC, e.VLAN) },
		note:  func(e *Entry) string { return "port " + e.Port },
	}.key(),
}

var mirrorKeys = []key[Mirror]{
	bind(key[Mirror]{name: "ports", help: "the ports whose frames are copied (default: all)"},
		portLists{}, nil, func(m *Mirror) *[]string { return &m.Ports }),
	bind(key[Mirror]{name: "direction", help: "which of their frames: ingress, egress or both (default)"},
		words[Direction]{all: directions}, Both, func(m *Mirror) *Direction { return &m.Direction }),
	bind(key[Mirror]{name: "vlan", help: "only frames of this VLAN (default: all)"},
		tags{}, Tag{}, func(m *Mirror) *Tag { return &m.VLAN }),
	bind(key[Mirror]{name: "to", must: true, help: "the port that gets the copies"},
		names, "", func(m *Mirror) *string { return &m.To }),
}

var controlKeys = []key[Control]{
	bind(key[Control]{name: "socket", needs: Restart, help: "the control socket's path, or none (default: derived from the switch's name)"},
		sockets, "", func(c *Control) *string { return &c.Socket }),
	bind(key[Control]{name: "group", help: "the group that may use it besides root (default: sluice, if it exists)"},
		groups, "", func(c *Control) *string { return &c.Group }),
}

// switchKeys are the keys of a document.
var switchKeys = []key[Switch]{
	bind(key[Switch]{name: "name", needs: Restart, help: "the switch's name, unique on this machine"},
		names, defaultName, func(s *Switch) *string { return &s.Name }),
	bind(key[Switch]{name: "reserved", help: "drop (default) or forward: what to do with frames for 01:80:c2:00:00:0x if the port does not set it"},
		words[Reserved]{all: reserveds}, ReservedDrop, func(s *Switch) *Reserved { return &s.Reserved }),
	section("fdb", "the forwarding database", fdbKeys, func(s *Switch) *FDB { return &s.FDB }),
	group[Switch, Port]{
		name: "ports", help: "the ports by name, in the order in which they are shown", what: portKind,
		keys: portKeys, field: func(s *Switch) *[]Port { return &s.Ports },
		title: func(p *Port) *string { return &p.Name },
		label: func(p *Port) string { return p.Name },
		note:  func(p *Port) string { return p.String() },
		needs: Reattach, rules: portRules(),
	}.key(),
	group[Switch, Mirror]{
		name: "mirrors", help: "copies of frames to a port, by name", what: "mirror",
		keys: mirrorKeys, field: func(s *Switch) *[]Mirror { return &s.Mirrors },
		title: func(m *Mirror) *string { return &m.Name },
		label: func(m *Mirror) string { return m.Name },
		note:  func(m *Mirror) string { return printObject(mirrorKeys, m).spell() },
	}.key(),
	bind(key[Switch]{name: "metrics", help: "the address that serves metrics, such as 127.0.0.1:9100 (default: none)"},
		addresses, "", func(s *Switch) *string { return &s.Metrics }),
	section("control", "the control socket", controlKeys, func(s *Switch) *Control { return &s.Control }),
}

const defaultName = "sluice"

// PortHelp describes the keys of a port for the command line, at most 80 columns wide.
func PortHelp() string {
	const width, column = 80, 23
	var b strings.Builder
	for i := range portKeys {
		k := &portKeys[i]
		if k.arg == "" {
			continue
		}
		line := fmt.Sprintf("%-*s", column-1, "  "+k.name+"="+k.arg)
		for _, word := range strings.Fields(k.describe()) {
			if len(line)+1+len(word) >= width {
				b.WriteString(line + "\n")
				line = strings.Repeat(" ", column-1)
			}
			line += " " + word
		}
		b.WriteString(line + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// PortKey is a key of a port, for a command line that is completed.
type PortKey struct {
	Name   string
	Help   string
	Values []string // if it takes words
}

// PortKeys are those that an argument may have.
func PortKeys() (all []PortKey) {
	for i := range portKeys {
		k := &portKeys[i]
		if k.arg == "" {
			continue
		}
		one := PortKey{Name: k.name, Help: k.describe()}
		for _, p := range k.schema().pairs {
			if p.key == "enum" {
				for _, v := range p.value.items {
					one.Values = append(one.Values, v.text)
				}
			}
		}
		all = append(all, one)
	}
	return all
}

// Kinds are the kinds of ports.
func Kinds() []Kind { return slices.Clone(kinds) }
