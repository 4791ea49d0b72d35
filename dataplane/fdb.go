package dataplane

import (
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"sluice/vnet"
)

// PortID is a port's index in its switch. IDs are used again after a port was
// removed.
type PortID uint16

// Tick is a coarse clock: seconds since the switch began.
type Tick uint32

const (
	// ageing is how long an address is remembered without being heard of: the
	// recommended value of IEEE 802.1Q, table 8-6, and a Linux bridge's default.
	ageing Tick = 300
	// refresh is how old an entry gets before learning writes it again. It keeps
	// the steady state free of writes to shared memory.
	refresh Tick = 10

	// An address flaps that goes from port to port flapMoves times within flapTime. A
	// host that was moved, or whose bond failed over, does so once or twice.
	flapMoves      = 5
	flapTime  Tick = 60
	// flapMost is how many addresses' moves are counted at once.
	flapMost = 64

	bucketWays = 8
	fdbBuckets = 1024 // 8192 addresses in all
)

// FDB is the forwarding database: which port an address was last heard on, by
// VLAN. It is a set-associative table of fixed size. Lookups and the learning of
// what is known take no lock. A bucket that is full of fresh entries learns no
// more: a sender of random addresses floods its own frames and moves nobody else's.
type FDB struct {
	seed    uint64
	buckets [fdbBuckets]bucket
	mu      sync.Mutex // serialises writers
	flaps   flaps      // guarded by mu
	loops   loops
}

// bucket is two cache lines. A key is changed only through 0, so that a reader who
// finds the same key before and after its value has the value of that key.
type bucket struct {
	keys [bucketWays]atomic.Uint64
	vals [bucketWays]atomic.Uint64 // tick<<16 | port
}

// flaps is how often addresses moved within the current flapTime.
type flaps struct {
	ends  Tick           // exclusive
	moves map[uint64]int // by key
	told  bool
}

func newFDB() *FDB {
	return &FDB{
		seed:  rand.Uint64() | 1,
		flaps: flaps{moves: make(map[uint64]int, flapMost)},
		loops: loops{seed: maphash.MakeSeed()},
	}
}

// age is how long before now the entry with value val was written. It is 0 for an
// entry that another worker, whose batch began later, has written since now.
func age(val uint64, now Tick) Tick {
	then := Tick(val >> 16)
	if then > now {
		return 0
	}
	return now - then
}

// fdbKey is never 0.
func fdbKey(vid uint16, mac vnet.MAC) uint64 { return 1<<63 | uint64(vid)<<48 | uint64(mac) }

func (t *FDB) bucket(key uint64) *bucket {
	const shift = 64 - 10
	return &t.buckets[key*t.seed>>shift%fdbBuckets]
}

// Lookup finds the port behind which mac is, if it was heard within the ageing
// time.
func (t *FDB) Lookup(vid uint16, mac vnet.MAC, now Tick) (PortID, bool) {
	key := fdbKey(vid, mac)
	b := t.bucket(key)
	for i := range b.keys {
		if b.keys[i].Load() == key {
			v := b.vals[i].Load()
			if b.keys[i].Load() != key || age(v, now) > ageing {
				return 0, false
			}
			return PortID(v), true
		}
	}
	return 0, false
}

// Learn notes that mac was heard on p. In the steady state it only reads. It reports
// whether the address flaps, and from which port it came: two hosts have the address, or
// there is a loop. At most one address is reported in flapTime.
func (t *FDB) Learn(vid uint16, mac vnet.MAC, p PortID, now Tick) (from PortID, flaps bool) {
	key := fdbKey(vid, mac)
	b := t.bucket(key)
	for i := range b.keys {
		if b.keys[i].Load() == key {
			v := b.vals[i].Load()
			if PortID(v) == p && age(v, now) < refresh {
				return 0, false
			}
			break
		}
	}
	return t.learnSlow(b, key, p, now)
}

// learnSlow takes in a new, a moved or an old entry.
func (t *FDB) learnSlow(
	b *bucket, key uint64, p PortID, now Tick,
) (from PortID, flaps bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	val := uint64(now)<<16 | uint64(p)
	free := -1
	for i := range b.keys {
		switch k := b.keys[i].Load(); {
		case k == key:
			was := b.vals[i].Swap(val)
			from = PortID(was)
			if from == p || age(was, now) > ageing {
				return from, false
			}
			if t.loops.moved(now) {
				t.forget(func(PortID) bool { return true }) // a loop has moved many to where they are not
			}
			return from, t.flaps.moved(key, now)
		case free < 0 && (k == 0 || age(b.vals[i].Load(), now) > ageing):
			free = i
		}
	}
	if free >= 0 {
		b.keys[free].Store(0)
		b.vals[free].Store(val)
		b.keys[free].Store(key)
	}
	return 0, false
}

// moved counts a move, and reports whether it is the one to tell of.
func (f *flaps) moved(key uint64, now Tick) bool {
	if now >= f.ends {
		clear(f.moves)
		f.ends, f.told = now+flapTime, false
	}
	if _, known := f.moves[key]; !known && len(f.moves) == flapMost {
		return false
	}
	f.moves[key]++
	if f.told || f.moves[key] < flapMoves {
		return false
	}
	f.told = true
	return true
}

// Forget removes every address behind p.
func (t *FDB) Forget(p PortID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(func(of PortID) bool { return of == p })
}

// forget removes the addresses behind some ports. The caller holds mu.
func (t *FDB) forget(behind func(PortID) bool) {
	for i := range t.buckets {
		b := &t.buckets[i]
		for j := range b.keys {
			if b.keys[j].Load() != 0 && behind(PortID(b.vals[j].Load())) {
				b.keys[j].Store(0)
			}
		}
	}
}
