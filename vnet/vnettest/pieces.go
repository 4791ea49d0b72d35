package vnettest

import "sluice/vnet"

// Segments are the wire packets, in bytes, that the super-packet of s must become. Each is built
// from scratch; this code only knows how they differ.
func Segments(s Spec) [][]byte {
	var packets [][]byte
	for from, i := 0, 0; ; i++ {
		to := min(from+s.GSOSize, len(s.Payload))
		p := part(s, from, to, i)
		p.Csum = Full
		f := Super(p)
		packets = append(packets, f.Head)
		if from = to; from == len(s.Payload) {
			return packets
		}
	}
}

// Chunks are the frames that the super-packet of s must become when each chunk holds segs segments.
// IPv6 above 64 KiB is in the given form; a chunk of one segment has no GSO type.
func Chunks(s Spec, segs int, form vnet.Form) []vnet.Frame {
	var frames []vnet.Frame
	for from, i := 0, 0; ; i += segs {
		to := min(from+segs*s.GSOSize, len(s.Payload))
		p := part(s, from, to, i)
		p.Csum = Seed
		p.Form = vnet.FormNone
		if to-from > s.GSOSize {
			p.GSOSize = s.GSOSize
			p.Form = form
		}
		frames = append(frames, Super(p))
		if from = to; from == len(s.Payload) {
			return frames
		}
	}
}

// part is a packet with the payload bytes from to to of s, with i segments before it.
func part(s Spec, from, to, i int) Spec {
	p := s
	p.Payload = s.Payload[from:to]
	p.GSOSize = 0
	p.ID = s.ID + uint16(i)
	p.Seq = s.Seq + uint32(from)
	if from > 0 {
		p.TCPFlags &^= CWR
	}
	if to < len(s.Payload) {
		p.TCPFlags &^= FIN | PSH
	}
	return p
}
