package config

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"sluice/dataplane"
	"sluice/vnet"
)

// Switch is the desired state of one switch. Default has the defaults; a zero Switch is
// not valid.
type Switch struct {
	Name     string
	Reserved Reserved // for ports that do not set it
	FDB      FDB
	Ports    []Port   // in the order in which they are shown; names are unique
	Mirrors  []Mirror // names are unique
	Metrics  string   // the address that serves them, [HOST]:PORT; empty for none
	Control  Control
}

// FDB is what the forwarding database may hold.
type FDB struct {
	Size     int // addresses, static ones included
	Ageing   int // seconds without a frame after which an address is forgotten
	MACLimit int // learnt addresses of the switch; 0 means as many as fit
	Static   []Entry
}

// Entry is a static address: it is not learnt, does not age and does not move.
type Entry struct {
	VLAN uint16 // 0 to 4095; 0 is for untagged frames
	MAC  vnet.MAC
	Port string
}

// Mirror copies frames to a port: those of Ports and in VLAN, as far as these are set.
type Mirror struct {
	Name      string
	Ports     []string // empty: all
	Direction Direction
	VLAN      Tag // unset: all
	To        string
}

// Control is the control socket.
type Control struct {
	Socket string // its path; empty: derived from the switch's name
	Group  string // who may use it besides root; empty: group sluice, if it exists
}

// Port is the configuration of one port. DefaultPort has the defaults. A number that was not given
// is 0, a word that was not given is empty. Ports can be compared with ==.
type Port struct {
	Name   string
	Kind   Kind
	Device string // a netdev's name, or an altname

	Netns  string // tap: its namespace
	Lower  string // macvtap: the netdev it is created over
	MTU    int    // bytes from the IP header on
	Queues int

	GSOMaxSize     int // bytes, Ethernet header and tags included
	GSOIPv4MaxSize int // the same
	GSOMaxSegs     int
	Oversize       dataplane.Oversize
	Offload        Offload
	Host           Host
	Reserved       Reserved // unset: the switch's setting

	VLANMode VLANMode // unset: see Mode
	Tag      Tag      // the access or native VLAN
	Trunks   VLANs    // carried by a trunk; empty: all
	Isolated bool
	MACLimit int // learnt addresses; 0: no limit of its own
	Storm    int // flooded frames a second; 0: no limit
	Loop     Loop
}

// Kind is how a port's device is opened.
type Kind string

// Port kinds.
const (
	Tap     Kind = "tap"     // a TAP with IFF_VNET_HDR, created if missing
	Packet  Kind = "packet"  // an AF_PACKET socket on an existing netdev
	Macvtap Kind = "macvtap" // a macvtap's character device
)

var kinds = []Kind{Tap, Packet, Macvtap}

// Offload is what the receiver behind a port can take.
type Offload string

// Offload settings.
const (
	OffloadAuto Offload = "auto" // according to the netdev's features
	OffloadFull Offload = "full" // every checksum and GSO type
	OffloadCsum Offload = "csum" // checksums only
	OffloadNone Offload = "none" // nothing: complete frames of wire size
)

var offloads = []Offload{OffloadAuto, OffloadFull, OffloadCsum, OffloadNone}

// Host says whether the host's own stack also sees what a packet port receives.
type Host string

// Host settings.
const (
	HostAuto Host = ""     // drop, but keep if the netdev has an address or a master
	HostDrop Host = "drop" // Sluice alone sees the frames
	HostKeep Host = "keep" // the host's stack sees them too
)

var hosts = []Host{HostDrop, HostKeep}

// Reserved is what to do with frames for 01:80:c2:00:00:00 to :0f, which bridges do not forward
// (IEEE 802.1Q, table 8-1).
type Reserved string

// Reserved settings.
const (
	ReservedDrop    Reserved = "drop"    // as a bridge does
	ReservedForward Reserved = "forward" // flood them, except PAUSE
)

var reserveds = []Reserved{ReservedDrop, ReservedForward}

// VLANMode says which tags a port takes and sends, by Open vSwitch's rules (conf.db(5), column
// vlan_mode of table Port).
type VLANMode string

// VLAN modes.
const (
	Access         VLANMode = "access"          // one VLAN, untagged
	Trunk          VLANMode = "trunk"           // VLANs as they are tagged
	NativeUntagged VLANMode = "native-untagged" // a trunk; its native VLAN is untagged
	NativeTagged   VLANMode = "native-tagged"   // a trunk; untagged frames belong to the native VLAN
)

var vlanModes = []VLANMode{Access, Trunk, NativeUntagged, NativeTagged}

// Mode is the effective VLAN mode. If none is given, a port with a tag is an access port and one
// without is a trunk (port_configure in vswitchd/bridge.c).
func (p Port) Mode() VLANMode {
	switch {
	case p.VLANMode != "":
		return p.VLANMode
	case p.Tag.Set:
		return Access
	}
	return Trunk
}

// Loop is what happens to a port with a loop behind it.
type Loop string

// Loop settings.
const (
	LoopWarn Loop = "warn" // report an event
	LoopShut Loop = "shut" // and set the port down
)

var loops = []Loop{LoopWarn, LoopShut}

// Direction says which frames of a port a mirror copies.
type Direction string

// Directions, as the switch sees them.
const (
	Ingress Direction = "ingress" // that come in
	Egress  Direction = "egress"  // that go out
	Both    Direction = "both"
)

var directions = []Direction{Ingress, Egress, Both}

// Tag is a VLAN, 0 to 4095, or none. VLAN 0 is an ordinary VLAN, that of untagged frames.
type Tag struct {
	VLAN uint16
	Set  bool
}

// VLANs is a set of VLANs, a bit for each of 4096.
type VLANs [maxVLAN/64 + 1]uint64

// Add puts the VLANs from low to high into the set; both are at most 4095.
func (v *VLANs) Add(low, high uint16) {
	for vlan := low; vlan <= high; vlan++ {
		v[vlan/64] |= 1 << (vlan % 64)
	}
}

// Has reports whether the VLAN, at most 4095, is in the set.
func (v *VLANs) Has(vlan uint16) bool { return v[vlan/64]>>(vlan%64)&1 != 0 }

// Len is how many VLANs are in the set.
func (v *VLANs) Len() (n int) {
	for _, w := range v {
		n += bits.OnesCount64(w)
	}
	return n
}

// ranges are the VLANs in order, as 10 and 20-30.
func (v *VLANs) ranges() (all []string) {
	if *v == (VLANs{}) { // as most are
		return nil
	}
	for low := 0; low <= maxVLAN; low++ {
		if !v.Has(uint16(low)) {
			continue
		}
		high := low
		for high < maxVLAN && v.Has(uint16(high+1)) {
			high++
		}
		text := strconv.Itoa(low)
		if high > low {
			text = fmt.Sprintf("%d-%d", low, high)
		}
		all, low = append(all, text), high
	}
	return all
}

// String is the set in order, as 10+20-30.
func (v VLANs) String() string { return strings.Join(v.ranges(), listSeparator) }

// Default is a switch with no ports.
func Default() Switch {
	var s Switch
	reset(switchKeys, &s)
	return s
}

// DefaultPort is a port that has only a name, a kind and a device.
func DefaultPort(name string, kind Kind, device string) Port {
	p := newPort()
	p.Name, p.Kind, p.Device = name, kind, device
	return p
}

func newPort() (p Port) {
	reset(portKeys, &p)
	return p
}

// Port finds a port by its name.
func (s Switch) Port(name string) (Port, bool) {
	i := s.index(name)
	if i < 0 {
		return Port{}, false
	}
	return s.Ports[i], true
}

func (s Switch) index(name string) int {
	return slices.IndexFunc(s.Ports, func(p Port) bool { return p.Name == name })
}

// Clone is a copy that shares nothing with s.
func (s Switch) Clone() Switch {
	s.FDB.Static = slices.Clone(s.FDB.Static)
	s.Ports = slices.Clone(s.Ports)
	s.Mirrors = slices.Clone(s.Mirrors)
	for i := range s.Mirrors {
		s.Mirrors[i].Ports = slices.Clone(s.Mirrors[i].Ports)
	}
	return s
}

// Equal reports whether both describe the same switch, in the same order. That is exactly when Diff
// finds no change.
func (s Switch) Equal(t Switch) bool {
	return s.Name == t.Name && s.Reserved == t.Reserved && s.Metrics == t.Metrics && s.Control == t.Control &&
		s.FDB.Size == t.FDB.Size && s.FDB.Ageing == t.FDB.Ageing && s.FDB.MACLimit == t.FDB.MACLimit &&
		slices.Equal(s.FDB.Static, t.FDB.Static) && slices.Equal(s.Ports, t.Ports) &&
		slices.EqualFunc(s.Mirrors, t.Mirrors, func(m, n Mirror) bool {
			return m.Name == n.Name && m.Direction == n.Direction && m.VLAN == n.VLAN && m.To == n.To &&
				slices.Equal(m.Ports, n.Ports)
		})
}
