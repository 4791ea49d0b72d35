package dataplane

import (
	"hash/maphash"
	"math/rand/v2"
	"sync/atomic"

	"sluice/vnet"
)

const (
	// loopMoves is how many moves of addresses in one second mean a loop, or two hosts with one
	// address.
	loopMoves = 32
	// loopHold is how long flooded frames are watched after the last sign of a loop.
	loopHold Tick = 60
	// loopRepeats is how often a frame may come in again at the port that it came in at first, as
	// long as it is remembered: protocols send hellos several times a second. Half of what a host
	// in a loop floods into it comes back that way.
	loopRepeats = 8
	// loopMemory is how long a flooded frame is remembered, its own second included.
	loopMemory Tick = 2

	// loopBuckets times loopWays is how many flooded frames are remembered at a time: several times
	// as many as a storm has in flight in a loop with a round trip of microseconds.
	loopBuckets = 1024
	loopWays    = 8
	// loopHashed is how many bytes of a frame are hashed: all, except in super-packets.
	loopHashed = 2048
)

// loops breaks layer-2 loops through the switch: it recognises a flooded frame that comes in again.
// Watching begins when addresses move as often as only in a loop. So a switch without one does not
// pay for it, and a host that moves loses no frame.
type loops struct {
	until   atomic.Uint32 // a Tick, exclusive: frames are watched until then; 0 if there was no loop
	settled atomic.Uint32 // a Tick: from then on, frames that circulated at first are gone
	seed    maphash.Seed
	buckets [loopBuckets][loopWays]atomic.Uint64 // sightings

	// The following fields are guarded by FDB.mu.

	tick  Tick
	moves int // within tick
}

// watching reports whether flooded frames are looked at.
func (l *loops) watching(now Tick) bool { return now < Tick(l.until.Load()) }

// settling reports whether a group frame may have circulated since before the watching began.
// Nothing is learnt from it, because it is first seen where it came back.
func (l *loops) settling(now Tick) bool { return now < Tick(l.settled.Load()) }

// watch begins or prolongs the watching.
func (l *loops) watch(now Tick) {
	if until := uint32(now + loopHold); l.until.Load() != until {
		l.until.Store(until)
	}
}

// moved counts a move of an address. It reports whether watching begins with it.
func (l *loops) moved(now Tick) bool {
	if now != l.tick {
		l.tick, l.moves = now, 0
	}
	if l.moves++; l.moves < loopMoves {
		return false
	}
	if l.watching(now) {
		l.watch(now)
		return false
	}
	l.settled.Store(uint32(now + loopMemory))
	l.watch(now)
	return true
}

// sighting is a flooded frame: 32 bits of its hash, the Tick and the port that it was
// first seen at, and how often it came in there again. The hash's other bits are its bucket.
type sighting uint64

const (
	sightingTicks = 1<<12 - 1
	sightingCount = 1<<4 - 1
)

func newSighting(hash uint64, p PortID, now Tick) sighting {
	return sighting(hash>>32<<32 | uint64(now)&sightingTicks<<20 | uint64(p))
}

func (s sighting) port() PortID    { return PortID(s) }
func (s sighting) count() int      { return int(s >> 16 & sightingCount) }
func (s sighting) again() sighting { return s + 1<<16 }

// fresh reports whether s is remembered when o is seen, perhaps by a worker whose batch
// began a tick earlier.
func (s sighting) fresh(o sighting) bool {
	return uint64(o>>20-s>>20+1)&sightingTicks <= uint64(loopMemory)
}

// worth is how much s deserves its place when o is seen: nothing if it has expired, little if its
// frame was stopped, and otherwise more the longer its frame circulates. So if too many frames come
// in at a time for the places, they are stopped a few at a time.
func (s sighting) worth(o sighting) int {
	switch {
	case !s.fresh(o):
		return 0
	case s.count() > loopRepeats:
		return 1
	}
	return 2 + s.count()
}

// returned records that f, which will be flooded, came in at p. It reports whether f came back
// through a loop: it was just flooded from another port, or too often from this one.
func (l *loops) returned(f *vnet.Frame, p PortID, now Tick) bool {
	hash := l.hash(f)
	bucket := &l.buckets[hash%loopBuckets]
	seen := newSighting(hash, p, now)
	first := rand.IntN(loopWays) // of equal worth, any is replaced
	for {
		var slot *atomic.Uint64
		var was sighting
		next, least := seen, 3+loopRepeats
		for i := range loopWays {
			at := &bucket[(first+i)%loopWays]
			s := sighting(at.Load())
			if s>>32 == seen>>32 && s.fresh(seen) {
				slot, was, next = at, s, s
				if s.port() == p && s.count() <= loopRepeats {
					next = s.again()
				}
				break
			}
			if n := s.worth(seen); n < least {
				slot, was, least = at, s, n
			}
		}
		if slot.CompareAndSwap(uint64(was), uint64(next)) {
			stop := next.port() != p || next.count() > loopRepeats
			if stop {
				l.watch(now)
			}
			return stop
		}
	}
}

// hash covers the frame's length and bytes, whatever pieces they are in.
func (l *loops) hash(f *vnet.Frame) uint64 {
	var h maphash.Hash
	h.SetSeed(l.seed)
	left := loopHashed
	add := func(b []byte) {
		n := min(len(b), left)
		h.Write(b[:n])
		left -= n
	}
	add(f.Head)
	for _, b := range f.Body {
		add(b)
	}
	return h.Sum64() ^ uint64(f.Len())<<32
}
