package dataplane

import (
	"sync/atomic"

	"golang.org/x/sys/cpu"

	"sluice/vnet"
)

// rxTally is what one receive queue counted since it last published. It has one
// owner.
type rxTally struct {
	frames, bytes, copies uint64
	maxFrame              int
	drops                 [vnet.NumDrops]uint64
	tunnels               [vnet.NumTunnels]uint64 // of drops[vnet.DropUnsupportedGSO]
}

// drop counts a frame that its ingress drops.
func (t *rxTally) drop(f *vnet.Frame, d vnet.Drop) {
	t.drops[d]++
	if d == vnet.DropUnsupportedGSO {
		t.tunnels[f.Tunnel()]++
	}
}

// rxCounters are the published counters of one receive queue. Only the worker that
// owns the queue writes them.
type rxCounters struct {
	_                     cpu.CacheLinePad
	frames, bytes, copies atomic.Uint64
	maxFrame              atomic.Int64
	drops                 [vnet.NumDrops]atomic.Uint64
	tunnels               [vnet.NumTunnels]atomic.Uint64
	_                     cpu.CacheLinePad
}

// publish adds t to c and clears it.
func (c *rxCounters) publish(t *rxTally) {
	c.frames.Add(t.frames)
	c.bytes.Add(t.bytes)
	c.copies.Add(t.copies)
	raise(&c.maxFrame, t.maxFrame)
	publishDrops(c.drops[:], t.drops[:])
	publishDrops(c.tunnels[:], t.tunnels[:])
	*t = rxTally{}
}

// txTally is what one transmit half counted since it last published. A count of offered may be
// taken back within a batch, if the kernel finds a frame malformed that the switch had not parsed.
type txTally struct {
	offered                                     int64
	frames, bytes                               uint64
	maxFrame                                    int
	resegmented, chunks                         uint64
	segmented, segments, retried, csumCompleted uint64
	drops                                       [vnet.NumDrops]uint64
}

// txCounters are the published counters of one transmit half. Only the worker
// that owns the half writes them.
type txCounters struct {
	_                                           cpu.CacheLinePad
	offered                                     atomic.Int64
	frames, bytes                               atomic.Uint64
	maxFrame                                    atomic.Int64
	resegmented, chunks                         atomic.Uint64
	segmented, segments, retried, csumCompleted atomic.Uint64
	drops                                       [vnet.NumDrops]atomic.Uint64
	_                                           cpu.CacheLinePad
}

func (c *txCounters) publish(t *txTally) {
	c.offered.Add(t.offered)
	c.frames.Add(t.frames)
	c.bytes.Add(t.bytes)
	raise(&c.maxFrame, t.maxFrame)
	c.resegmented.Add(t.resegmented)
	c.chunks.Add(t.chunks)
	c.segmented.Add(t.segmented)
	c.segments.Add(t.segments)
	c.retried.Add(t.retried)
	c.csumCompleted.Add(t.csumCompleted)
	publishDrops(c.drops[:], t.drops[:])
	*t = txTally{}
}

func publishDrops(c []atomic.Uint64, t []uint64) {
	for d, n := range t {
		if n != 0 {
			c[d].Add(n)
		}
	}
}

// raise stores n if it is greater. There is one writer.
func raise(c *atomic.Int64, n int) {
	if int64(n) > c.Load() {
		c.Store(int64(n))
	}
}

// Stats are a port's counters, summed over its queues and over the workers that write to it. They
// are consistent with each other only when no batch is in flight.
type Stats struct {
	RxFrames, RxBytes, RxCopies uint64
	RxMaxFrame                  int

	TxOffered, TxFrames, TxBytes uint64
	TxMaxFrame                   int
	Resegmented, Chunks          uint64 // super-packets cut into chunks, and the chunks
	Segmented, Segments          uint64 // super-packets cut into segments, and the segments
	Retried                      uint64 // writes tried again in smaller pieces, when memory or room was short
	CsumCompleted                uint64
	IngressDrops, EgressDrops    [vnet.NumDrops]uint64
	// Tunnels counts the super-packets of IngressDrops[vnet.DropUnsupportedGSO] by tunnel. Those
	// that the queue could not read are not included.
	Tunnels [vnet.NumTunnels]uint64
}

func (s *Stats) addRx(c *rxCounters) {
	s.RxFrames += c.frames.Load()
	s.RxBytes += c.bytes.Load()
	s.RxCopies += c.copies.Load()
	s.RxMaxFrame = max(s.RxMaxFrame, int(c.maxFrame.Load()))
	for d := range c.drops {
		s.IngressDrops[d] += c.drops[d].Load()
	}
	for k := range c.tunnels {
		s.Tunnels[k] += c.tunnels[k].Load()
	}
}

func (s *Stats) addTx(c *txCounters) {
	s.TxOffered += uint64(c.offered.Load())
	s.TxFrames += c.frames.Load()
	s.TxBytes += c.bytes.Load()
	s.TxMaxFrame = max(s.TxMaxFrame, int(c.maxFrame.Load()))
	s.Resegmented += c.resegmented.Load()
	s.Chunks += c.chunks.Load()
	s.Segmented += c.segmented.Load()
	s.Segments += c.segments.Load()
	s.Retried += c.retried.Load()
	s.CsumCompleted += c.csumCompleted.Load()
	for d := range c.drops {
		s.EgressDrops[d] += c.drops[d].Load()
	}
}
