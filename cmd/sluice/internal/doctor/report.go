package doctor

import (
	"sluice/dataplane/summary"
)

// Report is everything that was found. The package comment has its JSON form.
type Report struct {
	Schema       int             `json:"schema"`
	Version      string          `json:"version"`
	Seconds      float64         `json:"seconds"`
	Problems     int             `json:"problems"`
	Kernel       Kernel          `json:"kernel"`
	Kinds        map[string]Kind `json:"kinds"`
	HostDrop     Works           `json:"host_drop"`
	Capabilities Capabilities    `json:"capabilities"`
	Netdevs      []Netdev        `json:"netdevs"`
	Findings     []Finding       `json:"findings"`
}

// Kernel is the examined kernel. If it could not be tried, its release decided.
type Kernel struct {
	Release string `json:"release"`
	Tried   bool   `json:"tried"`
	Why     string `json:"why"` // why it was not tried, or not completely
}

// Kind is what a port of one kind carries.
type Kind struct {
	Error    string `json:"error"` // why it could not be opened, or why the trial ended early
	MaxWrite int    `json:"max_write"`
	IPv6Form string `json:"ipv6_form"`
	MaxOut   Max    `json:"max_out"`
	Tried    *Tried `json:"tried"`
}

// Max is the length of the longest super-packet, by family.
type Max struct {
	IPv4 int `json:"ipv4"`
	IPv6 int `json:"ipv6"`
}

// Tried is what was seen to pass a port of one kind.
type Tried struct {
	HeaderLen int `json:"header_len"`
	Out       Out `json:"out"`
	In        In  `json:"in"`
}

// Out is what reaches the IP layer behind the port whole.
type Out struct {
	IPv4  int `json:"ipv4"`
	HBH   int `json:"ipv6_hbh"`
	Plain int `json:"ipv6_plain"`
	Types
}

// In is what can be read from the port whole.
type In struct {
	Max
	Types
}

// Types are the GSO types that pass.
type Types struct {
	TCPv4 bool `json:"tcpv4"`
	TCPv6 bool `json:"tcpv6"`
	UDP   bool `json:"udp_l4"`
	ECN   bool `json:"ecn"`
}

// Works is whether something works, or why not.
type Works struct {
	Works bool   `json:"works"`
	Why   string `json:"why"`
}

// Capabilities are those that a switch uses.
type Capabilities struct {
	Have []string `json:"have"`
	Lack []string `json:"lack"`
}

// Netdev is everything about a netdev. If it was not found, only Name is valid.
type Netdev struct {
	Name          string          `json:"name"` // as on the command line
	Found         bool            `json:"found"`
	Index         int             `json:"index"`
	Netdev        string          `json:"netdev"` // its name; Name may be an altname
	Kind          string          `json:"kind"`
	AltNames      []string        `json:"altnames"`
	MTU           int             `json:"mtu"`
	Up            bool            `json:"up"`
	Carrier       bool            `json:"carrier"`
	Master        string          `json:"master"`
	Addresses     []string        `json:"addresses"`
	HostUse       string          `json:"host_use"`
	HeldBy        *Holder         `json:"held_by"`
	Sizes         Sizes           `json:"sizes"`
	Features      Features        `json:"features"`
	Qdiscs        []string        `json:"qdiscs"`
	XDP           string          `json:"xdp"`
	TCXIngress    []string        `json:"tcx_ingress"`
	TCXEgress     []string        `json:"tcx_egress"`
	BridgeNFCalls []string        `json:"bridge_nf_call"`
	Ports         map[string]Port `json:"ports"`
}

// Holder is the process whose switch has the netdev.
type Holder struct {
	PID  int    `json:"pid"` // 0: of another PID namespace
	Name string `json:"name"`
	UID  int    `json:"uid"`
}

// Sizes are the netdev's own limits.
type Sizes struct {
	GSOMaxSize     int `json:"gso_max_size"`
	GSOIPv4MaxSize int `json:"gso_ipv4_max_size"`
	GSOMaxSegs     int `json:"gso_max_segs"`
	GROMaxSize     int `json:"gro_max_size"`
	GROIPv4MaxSize int `json:"gro_ipv4_max_size"`
	TSOMaxSize     int `json:"tso_max_size"`
	TSOMaxSegs     int `json:"tso_max_segs"`
}

// Features are the offloads that are on.
type Features struct {
	Csum bool `json:"csum"`
	TSO4 bool `json:"tso4"`
	TSO6 bool `json:"tso6"`
	USO  bool `json:"uso"`
	GRO  bool `json:"gro"`
}

// Port is what a port of one kind on the netdev would take.
type Port struct {
	Limits summary.Limits `json:"limits"`
	MaxOut Max            `json:"max_out"`
}

// Mark says how much a finding matters.
type Mark string

// Marks. See the package comment.
const (
	OK      Mark = "ok"
	Note    Mark = "note"
	Problem Mark = "problem"
)

// Finding is one thing that was found, what it means, and the command that fixes it.
type Finding struct {
	Group  string `json:"group"`  // "rights", "kinds", "netdevs"
	Object string `json:"object"` // a capability, a port kind, a netdev
	ID     string `json:"id"`
	Mark   Mark   `json:"mark"`
	Text   string `json:"text"`
	Means  string `json:"means"`  // empty if the text is enough
	Mend   string `json:"mend"`   // the command that fixes it; empty if there is none
	Advice string `json:"advice"` // what else helps
}

// Groups of findings, in the order in which they are shown.
const (
	rights  = "rights"
	kinds   = "kinds"
	netdevs = "netdevs"
)

// find adds a finding.
func (r *Report) find(f Finding) {
	if f.Mark == Problem {
		r.Problems++
	}
	r.Findings = append(r.Findings, f)
}
