// Package summary holds what `sluice run` reports about its ports when it ends, and the laws that
// its counters obey.
//
// The JSON form is a contract: scripts read it. The package holds plain values
// and imports only the standard library, so that the switch that writes a
// summary and the tools that read one share these types and nothing else.
//
// # Units
//
// Sizes are bytes of a frame: from the Ethernet header on, VLAN tags included,
// the virtio-net header excluded. Everything else counts frames.
package summary

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Summary is the state of a switch at one moment.
type Summary struct {
	Ports []Port `json:"ports"`
	// Retired is the sum of the counters of removed ports, since the laws cover all ports that ever
	// existed. It is nil if none was removed.
	Retired *Port `json:"retired,omitempty"`
}

// Port is one port's identity, limits and counters.
type Port struct {
	Name        string `json:"name"`
	Kind        string `json:"kind"`             // "tap", "packet", "macvtap"
	Device      string `json:"device"`           // as the user named it
	Netdev      string `json:"netdev,omitempty"` // its current name, if different: after an altname or a rename
	Up          bool   `json:"up"`
	Limits      Limits `json:"limits"`
	RX          RX     `json:"rx"`
	TX          TX     `json:"tx"`
	Drops       Drops  `json:"drops"`
	KernelDrops uint64 `json:"kernel_drops"` // counted by the kernel, outside the laws of Conserved
}

// Limits is what the port takes as an egress.
type Limits struct {
	GSOMaxSize     int    `json:"gso_max_size"`
	GSOIPv4MaxSize int    `json:"gso_ipv4_max_size"`
	GSOMaxSegs     int    `json:"gso_max_segs"`
	MTU            int    `json:"mtu"`
	Csum           bool   `json:"csum"`
	TSO4           bool   `json:"tso4"`
	TSO6           bool   `json:"tso6"`
	USO            bool   `json:"uso"`
	IPv6Form       string `json:"ipv6_form"` // "hbh", "plain" or "none": vnet.Form's names
	MaxWrite       int    `json:"max_write"`
}

// RX counts what came in at the port.
type RX struct {
	Frames   uint64 `json:"frames"`
	Bytes    uint64 `json:"bytes"`
	Copies   uint64 `json:"copies"` // a frame flooded to n ports makes n-1
	MaxFrame int    `json:"max_frame"`
}

// TX counts what the switch sent to the port, and what left through it.
type TX struct {
	Offered       uint64 `json:"offered"` // frames before they were cut or merged
	Frames        uint64 `json:"frames"`  // frames that the kernel took
	Bytes         uint64 `json:"bytes"`
	MaxFrame      int    `json:"max_frame"`
	Resegmented   uint64 `json:"resegmented"` // super-packets cut into chunks
	Chunks        uint64 `json:"chunks"`      // what came of them
	Segmented     uint64 `json:"segmented"`   // super-packets cut into segments
	Segments      uint64 `json:"segments"`    // what came of them
	Merged        uint64 `json:"merged"`
	Held          uint64 `json:"held"`
	Retried       uint64 `json:"retried"`
	CsumCompleted uint64 `json:"csum_completed"`
}

// Drops counts discards by reason (vnet.Drop's names). A reason without discards
// may be missing.
type Drops struct {
	Ingress map[string]uint64 `json:"ingress"`
	Egress  map[string]uint64 `json:"egress"`
}

// Port returns the port of that name, or nil.
func (s *Summary) Port(name string) *Port {
	for i := range s.Ports {
		if s.Ports[i].Name == name {
			return &s.Ports[i]
		}
	}
	return nil
}

// all are the present ports and, as one, the removed ones.
func (s *Summary) all() []*Port {
	var all []*Port
	for i := range s.Ports {
		all = append(all, &s.Ports[i])
	}
	if s.Retired != nil {
		all = append(all, s.Retired)
	}
	return all
}

// Add adds q's counters to p's. The longest frame is the longer of the two.
func (p *Port) Add(q *Port) {
	p.RX.Frames += q.RX.Frames
	p.RX.Bytes += q.RX.Bytes
	p.RX.Copies += q.RX.Copies
	p.RX.MaxFrame = max(p.RX.MaxFrame, q.RX.MaxFrame)
	t, u := &p.TX, &q.TX
	t.MaxFrame = max(t.MaxFrame, u.MaxFrame)
	for _, c := range []struct {
		to   *uint64
		from uint64
	}{
		{&t.Offered, u.Offered}, {&t.Frames, u.Frames}, {&t.Bytes, u.Bytes},
		{&t.Resegmented, u.Resegmented}, {&t.Chunks, u.Chunks},
		{&t.Segmented, u.Segmented}, {&t.Segments, u.Segments},
		{&t.Merged, u.Merged}, {&t.Held, u.Held}, {&t.Retried, u.Retried},
		{&t.CsumCompleted, u.CsumCompleted}, {&p.KernelDrops, q.KernelDrops},
	} {
		*c.to += c.from
	}
	p.Drops.Ingress = sum(p.Drops.Ingress, q.Drops.Ingress)
	p.Drops.Egress = sum(p.Drops.Egress, q.Drops.Egress)
}

// sum is a with b's counts added; a may be nil, and is not b.
func sum(a, b map[string]uint64) map[string]uint64 {
	if a == nil {
		a = map[string]uint64{}
	}
	for reason, n := range b {
		a[reason] += n
	}
	return a
}

// Conserved reports where frames appeared or vanished uncounted, or nil. Both laws hold only while
// no frame is in flight, as after the switch has stopped.
//
// Over all ports, what came in was offered to an egress or dropped at ingress:
//
//	sum rx.frames + sum rx.copies = sum tx.offered + sum ingress drops
//
// For each port, what was offered, once cut and merged, left or was dropped:
//
//	offered + (chunks - resegmented) + (segments - segmented) - merged
//	    = tx.frames + egress drops + held
func (s *Summary) Conserved() error {
	var violations []error
	var frames, copies, offered, ingress uint64
	for _, p := range s.all() {
		frames += p.RX.Frames
		copies += p.RX.Copies
		offered += p.TX.Offered
		ingress += total(p.Drops.Ingress)
		if err := p.conserved(); err != nil {
			violations = append(violations, err)
		}
	}
	if frames+copies != offered+ingress {
		violations = append(violations, fmt.Errorf(
			"all ports: rx.frames %d + rx.copies %d = %d, but tx.offered %d + ingress drops %d = %d%s",
			frames, copies, frames+copies, offered, ingress, offered+ingress, s.ingressReasons()))
	}
	return errors.Join(violations...)
}

// conserved checks the egress law. Unsigned differences may wrap; their sums are right modulo 2^64.
func (p *Port) conserved() error {
	t := &p.TX
	egress := total(p.Drops.Egress)
	in := t.Offered + t.Chunks - t.Resegmented + t.Segments - t.Segmented - t.Merged
	out := t.Frames + egress + t.Held
	if in == out {
		return nil
	}
	return fmt.Errorf("port %s: offered %d + (chunks %d - resegmented %d) + "+
		"(segments %d - segmented %d) - merged %d = %d, but tx.frames %d + egress drops %d + held %d = %d%s",
		p.Name, t.Offered, t.Chunks, t.Resegmented, t.Segments, t.Segmented, t.Merged, int64(in),
		t.Frames, egress, t.Held, out, reasons(p.Drops.Egress))
}

func (s *Summary) ingressReasons() string {
	all := map[string]uint64{}
	for _, p := range s.all() {
		sum(all, p.Drops.Ingress)
	}
	return reasons(all)
}

func total(drops map[string]uint64) (sum uint64) {
	for _, n := range drops {
		sum += n
	}
	return sum
}

// reasons is " (reason n, ...)" in a stable order, or empty.
func reasons(drops map[string]uint64) string {
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(drops)) {
		if drops[reason] != 0 {
			parts = append(parts, fmt.Sprintf("%s %d", reason, drops[reason]))
		}
	}
	if parts == nil {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
