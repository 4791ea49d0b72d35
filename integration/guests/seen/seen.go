package seen

import "sluice/vnet"

// Flow is a frame's IP version and transport.
type Flow string

// Flows.
const (
	TCP4  Flow = "tcp4"
	TCP6  Flow = "tcp6"
	UDP4  Flow = "udp4"
	UDP6  Flow = "udp6"
	Other Flow = "other"
)

// Tally counts the frames of one flow.
type Tally struct {
	Frames  int
	Max     int // length of the longest frame
	Plain   int // length of the longest frame without a GSO type
	GSO     int // frames with a GSO type
	ECN     int // of them, those with the ECN bit
	Partial int // frames whose checksum is left to the receiver (NEEDS_CSUM)
}

// Frames is what was seen in a period.
type Frames struct {
	Flows map[Flow]Tally
	Lost  int // frames that the capture missed
}

// Add counts a frame of length n, whose headers are in f.
func (s *Frames) Add(f *vnet.Frame, n int) {
	if s.Flows == nil {
		s.Flows = map[Flow]Tally{}
	}
	flow := flowOf(f)
	t := s.Flows[flow]
	one := Tally{Frames: 1, Max: n}
	if f.Hdr.GSO == vnet.GSONone {
		one.Plain = n
	} else {
		one.GSO = 1
	}
	if f.Hdr.GSO&vnet.GSOECN != 0 {
		one.ECN = 1
	}
	if f.Hdr.Flags&vnet.NeedsCsum != 0 {
		one.Partial = 1
	}
	s.Flows[flow] = t.and(one)
}

// flowOf does not look behind IPv6 extension headers. A guest on a tap sends no BIG TCP, which
// would have one.
func flowOf(f *vnet.Frame) Flow {
	const (
		v4Proto = vnet.EthLen + 9
		v6Proto = vnet.EthLen + 6
	)
	var l2 vnet.L2
	if f.Check(&l2) != vnet.Keep || l2.Tags > 0 || len(f.Head) < vnet.EthLen+vnet.IPv4Len {
		return Other
	}
	switch l2.EtherType {
	case vnet.EtherTypeIPv4:
		switch f.Head[v4Proto] {
		case vnet.ProtoTCP:
			return TCP4
		case vnet.ProtoUDP:
			return UDP4
		}
	case vnet.EtherTypeIPv6:
		switch f.Head[v6Proto] {
		case vnet.ProtoTCP:
			return TCP6
		case vnet.ProtoUDP:
			return UDP6
		}
	}
	return Other
}

// and is both tallies in one.
func (t Tally) and(o Tally) Tally {
	return Tally{
		Frames:  t.Frames + o.Frames,
		Max:     max(t.Max, o.Max),
		Plain:   max(t.Plain, o.Plain),
		GSO:     t.GSO + o.GSO,
		ECN:     t.ECN + o.ECN,
		Partial: t.Partial + o.Partial,
	}
}

// Merge adds what was seen in another period.
func (s *Frames) Merge(o Frames) {
	if s.Flows == nil {
		s.Flows = map[Flow]Tally{}
	}
	for flow, t := range o.Flows {
		s.Flows[flow] = s.Flows[flow].and(t)
	}
	s.Lost += o.Lost
}

// Sum adds up all flows.
func (s *Frames) Sum() (sum Tally) {
	for _, t := range s.Flows {
		sum = sum.and(t)
	}
	return sum
}
