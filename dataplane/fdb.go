package dataplane

import (
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"sluice/vnet"
)

// PortID is a port's index in its switch. The ID of a removed port is reused.
type PortID uint16

// Tick is a coarse clock: seconds since the switch began.
type Tick uint32

// Sizes of the forwarding database, in addresses.
const (
	DefaultFDBSize = 16384
	MaxFDBSize     = 1 << 20 // Open vSwitch's, rounded up (mac_learning_set_max_entries)
)

const (
	// Ageing times as IEEE 802.1Q, table 8-6, recommends and allows them. The default is a
	// Linux bridge's and Open vSwitch's, too.
	defaultAgeing Tick = 300
	minAgeing     Tick = 10
	maxAgeing     Tick = 1000000
	// mostRefresh is the greatest age of an entry before learning writes it again. It keeps the
	// steady state free of writes to shared memory.
	mostRefresh Tick = 10

	// An address flaps if it moves between ports flapMoves times within flapTime. A host that was
	// moved, or whose bond failed over, moves once or twice.
	flapMoves      = 5
	flapTime  Tick = 60
	// flapMost is how many addresses' moves are counted at a time.
	flapMost = 64

	// movesTold is how many moves are reported in one Tick.
	movesTold = 8
	// fullTold is how long a port does not report again that there is no room.
	fullTold Tick = 60

	bucketWays = 8
)

// FDB is the forwarding database: which port an address was last heard on, by VLAN.
// Lookups and the learning of what is known take no lock.
//
// Theory of operation. It is a set-associative table of fixed size. An address has two buckets,
// which depend on a seed of this process, and is in one of them. The table has two places for each
// address that it may hold, so both buckets are almost never full. If they are, the address
// replaces one of theirs.
//
// When the database is full, the port with the most addresses loses its oldest one, as in Open
// vSwitch (evict_mac_entry_fairly). So each port has its share: a port that sends from random
// addresses loses its own, and a host that comes up later, behind any port, is still learnt. For
// this the addresses of each port are in a list, in the order in which they were last written.
//
// A static entry is not aged, moved or evicted. A frame from its address at another port is
// forwarded and changes nothing, as in Open vSwitch (is_mac_learning_update_needed).
type FDB struct {
	seed    [2]uint64
	mask    uint64 // len(buckets)-1, which is of all ones
	size    int    // the greatest number of addresses that it can be configured for
	ageing  atomic.Uint32
	refresh atomic.Uint32
	seconds atomic.Int32 // entries that lie in their address's second bucket
	buckets []bucket

	mu      sync.Mutex // serialises writers
	most    int        // guarded by mu; addresses
	len     int        // guarded by mu; addresses
	links   []link     // guarded by mu; by place
	holders []holder   // guarded by mu; by PortID
	flaps   flaps      // guarded by mu
	loops   loops
	moves   moves // guarded by mu
}

// bucket is two cache lines.
type bucket [bucketWays]entry

// entry is an address and where it is. The key is changed only through 0, so a reader that finds
// the same key before and after the value has the value of that key.
type entry struct {
	key atomic.Uint64
	val atomic.Uint64 // static | tick<<16 | port
}

// static marks the value of an entry that was not learnt.
const static = 1 << 63

// place is the index of an entry in the table.
type place int32

// nowhere is no place.
const nowhere place = -1

// link is where the neighbours of a learnt entry are in its port's list.
type link struct{ older, newer place }

// holder is what the database knows about a port.
type holder struct {
	len            int // learnt addresses
	most           int // 0: any number
	oldest, newest place
	full, limit    Tick // until when, exclusive, a lack of room is not reported again
}

// flaps is how often addresses moved within the current flapTime.
type flaps struct {
	ends  Tick           // exclusive
	moves map[uint64]int // by key
	told  bool
}

// moves is how many moves were reported in a Tick.
type moves struct {
	at   Tick
	told int
}

// news is what happened while an address was learnt.
type news uint8

const (
	newsMoved news = 1 << iota // it was heard on another port before
	newsFlaps                  // and moves back and forth
	newsFull                   // the database has room only if it forgets an address
	newsLimit                  // the port's limit leaves no room
)

// learnt is what Learn reports. It is bounded: see movesTold, fullTold, flapTime.
type learnt struct {
	news  news
	from  PortID // newsMoved, newsFlaps
	limit int    // newsFull, newsLimit: the limit that was reached
}

// newFDB makes a database for size addresses, or DefaultFDBSize.
func newFDB(size int) *FDB {
	if size <= 0 {
		size = DefaultFDBSize
	}
	size = min(size, MaxFDBSize)
	const placesEach = 2
	buckets := 1 << bits.Len(uint(placesEach*size-1)/bucketWays)
	t := &FDB{
		seed:    [2]uint64{rand.Uint64(), rand.Uint64() | 1},
		loops:   loops{seed: maphash.MakeSeed()},
		mask:    uint64(buckets - 1),
		size:    size,
		buckets: make([]bucket, buckets),
		links:   make([]link, buckets*bucketWays),
		flaps:   flaps{moves: make(map[uint64]int, flapMost)},
	}
	t.Configure(defaultAgeing, size)
	return t
}

// Configure sets the ageing time and the greatest number of addresses. Static ones stay even if
// they are more; then nothing is learnt.
func (t *FDB) Configure(ageing Tick, most int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ageing.Store(uint32(ageing))
	t.refresh.Store(uint32(min(mostRefresh, ageing/4)))
	t.most = most
	for t.len > t.most && t.evict(t.greatest(0)) {
	}
}

// SetLimit sets the greatest number of addresses that are learnt behind p; 0 means any number.
func (t *FDB) SetLimit(p PortID, most int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.holder(p)
	h.most = most
	for most > 0 && h.len > most {
		t.evict(p)
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

// old reports whether the entry with value val has expired.
func (t *FDB) old(val uint64, now Tick) bool {
	return val&static == 0 && age(val, now) > Tick(t.ageing.Load())
}

// fdbKey is never 0.
func fdbKey(vid uint16, mac vnet.MAC) uint64 { return 1<<63 | uint64(vid)<<48 | uint64(mac) }

func keyVID(key uint64) uint16   { return uint16(key >> 48 & maxVID) }
func keyMAC(key uint64) vnet.MAC { return vnet.MAC(key & (1<<48 - 1)) }

// hash mixes a key with the seed: its low and its high half are the two buckets.
func (t *FDB) hash(key uint64) uint64 {
	hi, lo := bits.Mul64(key^t.seed[0], t.seed[1])
	return hi ^ lo
}

// find is the entry of a key, or nil.
func (t *FDB) find(key uint64) *entry {
	h := t.hash(key)
	b := &t.buckets[h&t.mask]
	for i := range b {
		if b[i].key.Load() == key {
			return &b[i]
		}
	}
	if t.seconds.Load() == 0 {
		return nil
	}
	b = &t.buckets[h>>32&t.mask]
	for i := range b {
		if b[i].key.Load() == key {
			return &b[i]
		}
	}
	return nil
}

// last is the entry that a worker found last, since frames come in trains.
type last struct {
	key   uint64
	entry *entry
}

// is reports whether it is still the entry of a key.
func (l *last) is(key uint64) bool { return l.key == key && l.entry.key.Load() == key }

// Lookup finds the port of an address, if it was heard within the ageing time.
func (t *FDB) Lookup(key uint64, now Tick, l *last) (PortID, bool) {
	if !l.is(key) {
		e := t.find(key)
		if e == nil {
			return 0, false
		}
		*l = last{key, e}
	}
	v := l.entry.val.Load()
	if l.entry.key.Load() != key || t.old(v, now) {
		return 0, false
	}
	return PortID(v), true
}

// Learn notes that an address was heard on p. In the steady state it only reads.
func (t *FDB) Learn(key uint64, p PortID, now Tick, l *last) learnt {
	if !l.is(key) {
		e := t.find(key)
		if e == nil {
			return t.learnSlow(key, p, now)
		}
		*l = last{key, e}
	}
	v := l.entry.val.Load()
	if v&static != 0 || PortID(v) == p && age(v, now) < Tick(t.refresh.Load()) {
		return learnt{}
	}
	return t.learnSlow(key, p, now)
}

// learnSlow takes in a new, a moved or an old entry.
func (t *FDB) learnSlow(key uint64, p PortID, now Tick) (l learnt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.at(key)
	if at == nowhere {
		t.insert(key, p, now, &l)
		return l
	}
	e := t.entry(at)
	was := e.val.Load()
	if was&static != 0 {
		return l
	}
	from := PortID(was)
	if from != p {
		if !t.heed(p, now, &l) {
			return l
		}
		l.from = from
		if !t.old(was, now) {
			if t.moves.tell(now) {
				l.news |= newsMoved
			}
			if t.flaps.moved(key, now) {
				l.news |= newsFlaps
			}
		}
	}
	t.unlink(at)
	e.val.Store(uint64(now)<<16 | uint64(p))
	t.link(at)
	if from != p && !t.old(was, now) && t.loops.moved(now) {
		t.removeAll(func(_, val uint64) bool { return val&static == 0 }) // a loop has moved many of them to wrong ports
	}
	return l
}

// insert makes room for a new entry of p, and adds it. It reports in l what that cost.
func (t *FDB) insert(key uint64, p PortID, now Tick, l *learnt) {
	if !t.heed(p, now, l) {
		return
	}
	at := t.free(key, now)
	full := at == nowhere
	if full {
		at = t.victim(key, p)
		if at != nowhere && t.mayTake(at, p) {
			t.remove(at)
		} else {
			at = nowhere
		}
	}
	if at != nowhere && t.len >= t.most {
		full = true
		if !t.evict(t.greatest(p)) {
			at = nowhere
		}
	}
	if h := t.holder(p); full && l.news == 0 && now >= h.full {
		h.full = now + fullTold
		l.news |= newsFull
		l.limit = t.most
	}
	if at == nowhere {
		return
	}
	t.put(at, key, uint64(now)<<16|uint64(p))
	t.link(at)
}

// mayTake reports whether a new address of p may replace another: one of p's own, or of a port with
// more.
func (t *FDB) mayTake(at place, p PortID) bool {
	q := PortID(t.entry(at).val.Load())
	return q == p || t.holder(q).len > t.holder(p).len
}

// heed applies p's limit: it makes room for one more address behind p.
func (t *FDB) heed(p PortID, now Tick, l *learnt) bool {
	h := t.holder(p)
	if h.most == 0 || h.len < h.most {
		return true
	}
	if now >= h.limit {
		h.limit = now + fullTold
		l.news |= newsLimit
		l.limit = h.most
	}
	return t.evict(p)
}

// The following functions are called with mu held.

// places are those that a key may have.
func (t *FDB) places(key uint64) (at [2 * bucketWays]place) {
	h := t.hash(key)
	for i := range at {
		if i == bucketWays {
			h = bits.RotateLeft64(h, 32)
		}
		at[i] = place(h&t.mask*bucketWays) + place(i%bucketWays)
	}
	return at
}

func (t *FDB) entry(at place) *entry { return &t.buckets[at/bucketWays][at%bucketWays] }

// holder is what is known about p, which is nothing at first.
func (t *FDB) holder(p PortID) *holder {
	for len(t.holders) <= int(p) {
		t.holders = append(t.holders, holder{oldest: nowhere, newest: nowhere})
	}
	return &t.holders[p]
}

// at is the place of a key, or nowhere.
func (t *FDB) at(key uint64) place {
	for _, at := range t.places(key) {
		if t.entry(at).key.Load() == key {
			return at
		}
	}
	return nowhere
}

// free finds a place for a key: an empty one, or one whose address is too old. It is in the first
// bucket as long as that is no more than half full, so that most addresses are found there, and
// then in the emptier one, so that none is full before almost all are.
func (t *FDB) free(key uint64, now Tick) place {
	places := t.places(key)
	first, room := [2]place{nowhere, nowhere}, [2]int{}
	for i, at := range places {
		e := t.entry(at)
		if e.key.Load() != 0 && t.old(e.val.Load(), now) {
			t.remove(at)
		}
		if e.key.Load() == 0 {
			b := i / bucketWays
			if first[b] == nowhere {
				first[b] = at
			}
			room[b]++
		}
	}
	if room[0] < bucketWays/2 && room[1] > room[0] {
		return first[1]
	}
	return first[0]
}

// victim is the entry among a key's places, all taken, that p replaces first: the oldest of the
// port with the most addresses in all, or of p if it has as many. It is nowhere if all are static.
func (t *FDB) victim(key uint64, p PortID) place {
	best, of := nowhere, p
	for _, at := range t.places(key) {
		val := t.entry(at).val.Load()
		if val&static != 0 {
			continue
		}
		q := PortID(val)
		n, most := t.holder(q).len, t.holder(of).len
		if best == nowhere || n > most || n == most && q == p && of != p ||
			q == of && uint32(val>>16) < uint32(t.entry(best).val.Load()>>16) {
			best, of = at, q
		}
	}
	return best
}

// greatest is the port with the most learnt addresses, p if it is one of several.
func (t *FDB) greatest(p PortID) PortID {
	best := p
	for q := range t.holders {
		if t.holders[q].len > t.holder(best).len {
			best = PortID(q)
		}
	}
	return best
}

// evict forgets the oldest address behind p, and reports whether there was one.
func (t *FDB) evict(p PortID) bool {
	at := t.holder(p).oldest
	if at == nowhere {
		return false
	}
	t.remove(at)
	return true
}

// put writes a new entry.
func (t *FDB) put(at place, key, val uint64) {
	if t.second(at, key) {
		t.seconds.Add(1)
	}
	e := t.entry(at)
	e.val.Store(val)
	e.key.Store(key)
	t.len++
}

// second reports whether a place of a key is not in its first bucket.
func (t *FDB) second(at place, key uint64) bool {
	return uint64(at/bucketWays) != t.hash(key)&t.mask
}

// remove forgets an entry.
func (t *FDB) remove(at place) {
	e := t.entry(at)
	if e.val.Load()&static == 0 {
		t.unlink(at)
	}
	second := t.second(at, e.key.Load())
	e.key.Store(0)
	if second {
		t.seconds.Add(-1)
	}
	t.len--
}

// removeAll forgets the entries of which gone is true.
func (t *FDB) removeAll(gone func(key, val uint64) bool) (n int) {
	for at := range place(len(t.links)) {
		e := t.entry(at)
		if key := e.key.Load(); key != 0 && gone(key, e.val.Load()) {
			t.remove(at)
			n++
		}
	}
	return n
}

// link makes a learnt entry its port's newest.
func (t *FDB) link(at place) {
	h := t.holder(PortID(t.entry(at).val.Load()))
	t.links[at] = link{older: h.newest, newer: nowhere}
	if h.newest == nowhere {
		h.oldest = at
	} else {
		t.links[h.newest].newer = at
	}
	h.newest = at
	h.len++
}

// unlink takes a learnt entry out of its port's list.
func (t *FDB) unlink(at place) {
	h := t.holder(PortID(t.entry(at).val.Load()))
	l := t.links[at]
	if l.older == nowhere {
		h.oldest = l.newer
	} else {
		t.links[l.older].newer = l.newer
	}
	if l.newer == nowhere {
		h.newest = l.older
	} else {
		t.links[l.newer].older = l.older
	}
	h.len--
}

// moved counts a move, and reports whether it is the one to report: the first in a flapTime that
// makes an address flap.
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

// tell reports whether a move may be reported.
func (m *moves) tell(now Tick) bool {
	if now != m.at {
		*m = moves{at: now}
	}
	m.told++
	return m.told <= movesTold
}

// The following functions take mu.

// Expire forgets what is too old.
func (t *FDB) Expire(now Tick) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p := range t.holders {
		h := &t.holders[p]
		for h.oldest != nowhere && t.old(t.entry(h.oldest).val.Load(), now) {
			t.remove(h.oldest)
		}
	}
}

// removeIf forgets the entries of which gone is true.
func (t *FDB) removeIf(gone func(key, val uint64) bool) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.removeAll(gone)
}

// Forget removes everything that was learnt behind p.
func (t *FDB) Forget(p PortID) {
	t.removeIf(func(_, val uint64) bool { return val&static == 0 && PortID(val) == p })
}

// Keep removes the addresses behind p in VLANs that p does not carry.
func (t *FDB) Keep(p PortID, carries func(vid uint16) bool) {
	t.removeIf(func(key, val uint64) bool { return PortID(val) == p && !carries(keyVID(key)) })
}

// Remove forgets p, its static entries and its limit.
func (t *FDB) Remove(p PortID) {
	t.removeIf(func(_, val uint64) bool { return PortID(val) == p })
	t.mu.Lock()
	defer t.mu.Unlock()
	*t.holder(p) = holder{oldest: nowhere, newest: nowhere}
}

// Add makes mac a static entry of p, or reports that there is no room for it. What was learnt about
// mac is forgotten.
func (t *FDB) Add(vid uint16, mac vnet.MAC, p PortID, now Tick) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := fdbKey(vid, mac)
	if at := t.at(key); at != nowhere {
		t.remove(at)
	}
	at := t.free(key, now)
	if at == nowhere {
		if at = t.victim(key, p); at == nowhere {
			return false
		}
		t.remove(at)
	}
	if t.len >= t.most && !t.evict(t.greatest(p)) {
		return false
	}
	t.put(at, key, static|uint64(p))
	return true
}

// each calls f for every entry that is not too old.
func (t *FDB) each(now Tick, f func(key, val uint64)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for at := range place(len(t.links)) {
		e := t.entry(at)
		if key, val := e.key.Load(), e.val.Load(); key != 0 && !t.old(val, now) {
			f(key, val)
		}
	}
}
