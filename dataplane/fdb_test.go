package dataplane

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"sluice/vnet"
)

const (
	macA vnet.MAC = 0x02005e100001
	macB vnet.MAC = 0x02005e100002
)

// wantPort fails t unless mac is known to be behind p.
func wantPort(t *testing.T, fdb *FDB, vid uint16, mac vnet.MAC, now Tick, p PortID) {
	t.Helper()
	got, ok := fdb.lookup(vid, mac, now)
	if !ok || got != p {
		t.Errorf("lookup of %v in VLAN %d at %d: port %d, %v; want port %d",
			mac, vid, now, got, ok, p)
	}
}

func wantUnknown(t *testing.T, fdb *FDB, vid uint16, mac vnet.MAC, now Tick) {
	t.Helper()
	if got, ok := fdb.lookup(vid, mac, now); ok {
		t.Errorf("lookup of %v in VLAN %d at %d: port %d; want unknown",
			mac, vid, now, got)
	}
}

func (t *FDB) learn(vid uint16, mac vnet.MAC, p PortID, now Tick) learnt {
	return t.Learn(fdbKey(vid, mac), p, now, new(last))
}

func (t *FDB) lookup(vid uint16, mac vnet.MAC, now Tick) (PortID, bool) {
	return t.Lookup(fdbKey(vid, mac), now, new(last))
}

// Len counts the addresses that are remembered, and checks the books on the way: every
// entry is where it can be found, once, and every learnt one in its port's list.
func (t *FDB) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, seconds, learnt := 0, 0, map[PortID]int{}
	for at := range place(len(t.links)) {
		e := t.entry(at)
		key, val := e.key.Load(), e.val.Load()
		if key == 0 {
			continue
		}
		n++
		if t.places(key)[0]/bucketWays != at/bucketWays {
			seconds++
		}
		if t.at(key) != at || t.find(key) != e {
			panic("an entry is not where it is looked for")
		}
		if val&static == 0 {
			learnt[PortID(val)]++
		}
	}
	if int(t.seconds.Load()) != seconds {
		panic(fmt.Sprintf("%d in second buckets, %d counted", seconds, t.seconds.Load()))
	}
	statics := n
	for _, m := range learnt {
		statics -= m
	}
	if n != t.len || n > max(t.most, statics) {
		panic(fmt.Sprintf("%d addresses, %d counted, of %d", n, t.len, t.most))
	}
	for p := range t.holders {
		h := &t.holders[p]
		listed, newer := 0, nowhere
		for at := h.newest; at != nowhere; at = t.links[at].older {
			if t.links[at].newer != newer || PortID(t.entry(at).val.Load()) != PortID(p) {
				panic("a port's list is broken")
			}
			newer = at
			listed++
		}
		if h.oldest != newer || listed != h.len || listed != learnt[PortID(p)] ||
			h.most > 0 && h.len > h.most {
			panic(fmt.Sprintf("port %d: %d listed, %d counted, %d learnt, of %d",
				p, listed, h.len, learnt[PortID(p)], h.most))
		}
	}
	return n
}

func TestFDBLearnsAndMoves(t *testing.T) {
	fdb := newFDB(0)
	wantUnknown(t, fdb, 0, macA, 0)
	fdb.learn(0, macA, 3, 0)
	fdb.learn(0, macB, 65535, 0)
	wantPort(t, fdb, 0, macA, 0, 3)
	wantPort(t, fdb, 0, macB, 0, 65535)
	fdb.learn(0, macA, 0, 1) // at once, not when it is old
	wantPort(t, fdb, 0, macA, 1, 0)
	if n := fdb.Len(); n != 2 {
		t.Errorf("%d addresses, want 2", n)
	}
}

func TestFDBKeepsVLANsApart(t *testing.T) {
	fdb := newFDB(0)
	fdb.learn(10, macA, 1, 0)
	fdb.learn(4095, macA, 2, 0)
	wantPort(t, fdb, 10, macA, 0, 1)
	wantPort(t, fdb, 4095, macA, 0, 2)
	wantUnknown(t, fdb, 0, macA, 0)
}

func TestFDBForgetsAfter300Seconds(t *testing.T) {
	fdb := newFDB(0)
	fdb.learn(0, macA, 1, 7)
	wantPort(t, fdb, 0, macA, 307, 1)
	wantUnknown(t, fdb, 0, macA, 308)
	fdb.learn(0, macA, 1, 308)
	wantPort(t, fdb, 0, macA, 308, 1)
	if n := fdb.Len(); n != 1 {
		t.Errorf("%d addresses, want the old entry's place to be used again", n)
	}
}

// A worker's time is that of its batch's beginning: another worker may have
// written an entry since.
func TestFDBTakesAnEntryFromTheFutureAsFresh(t *testing.T) {
	fdb := newFDB(0)
	fdb.learn(0, macA, 1, 10)
	wantPort(t, fdb, 0, macA, 9, 1)

	fdb = oneBucket()
	for i := range vnet.MAC(bucketWays) {
		fdb.learn(0, macA+i, 1, 10)
	}
	fdb.learn(0, macB+bucketWays, 1, 9)
	if n := fdb.Len(); n != bucketWays {
		t.Errorf("%d addresses, want %d", n, bucketWays)
	}
	wantUnknown(t, fdb, 0, macA, 10) // evicted: were it free, this would be no less so
}

// value is the word behind a known address.
func value(t *testing.T, fdb *FDB, mac vnet.MAC) uint64 {
	t.Helper()
	e := fdb.find(fdbKey(0, mac))
	if e == nil {
		t.Fatalf("%v is unknown", mac)
	}
	return e.val.Load()
}

func TestFDBOnlyReadsWhatIsFresh(t *testing.T) {
	fdb := newFDB(0)
	fdb.learn(0, macA, 1, 100)
	was := value(t, fdb, macA)

	fdb.mu.Lock() // nobody may need it
	learnt := make(chan struct{})
	go func() {
		fdb.learn(0, macA, 1, 100+mostRefresh-1)
		close(learnt)
	}()
	select {
	case <-learnt:
	case <-time.After(30 * time.Second):
		t.Error("learning a fresh address takes the lock")
	}
	fdb.mu.Unlock()
	<-learnt
	if v := value(t, fdb, macA); v != was {
		t.Errorf("entry written at age %d: %x, was %x", mostRefresh-1, v, was)
	}
	fdb.learn(0, macA, 1, 100+mostRefresh)
	if v := value(t, fdb, macA); Tick(v>>16) != 100+mostRefresh {
		t.Errorf("entry not written at age %d: %x", mostRefresh, v)
	}
}

// oneBucket is a database of a single bucket, which may be full before the database is.
func oneBucket() *FDB {
	fdb := newFDB(bucketWays / 2)
	if len(fdb.buckets) != 1 {
		panic("more than one bucket")
	}
	fdb.most = 2 * bucketWays
	return fdb
}

func TestFDBForgetsOnePort(t *testing.T) {
	fdb := newFDB(0)
	fdb.learn(0, macA, 1, 0)
	fdb.learn(5, macA, 1, 0)
	fdb.learn(0, macB, 2, 0)
	fdb.Forget(1)
	wantUnknown(t, fdb, 0, macA, 0)
	wantUnknown(t, fdb, 5, macA, 0)
	wantPort(t, fdb, 0, macB, 0, 2)
}

// What was found last may be gone, or somewhere else, and its place another's.
func TestFDBWhatWasFoundLast(t *testing.T) {
	fdb := newFDB(1)
	var src, dst last
	learn := func(mac vnet.MAC, p PortID, now Tick) { fdb.Learn(fdbKey(0, mac), p, now, &src) }
	want := func(mac vnet.MAC, now Tick, p PortID, known bool) {
		t.Helper()
		if got, ok := fdb.Lookup(fdbKey(0, mac), now, &dst); ok != known || ok && got != p {
			t.Errorf("port %d, %v, want %d, %v", got, ok, p, known)
		}
	}
	want(0, 0, 0, false)
	learn(macA, 1, 0)
	learn(macA, 1, 0)
	want(macA, 0, 1, true)
	learn(macA, 2, 0) // moves
	want(macA, 0, 2, true)
	learn(macB, 3, 0) // evicts it, and has its place
	want(macA, 0, 0, false)
	want(macB, 0, 3, true)
	want(macB, defaultAgeing+1, 0, false)
	learn(macB, 3, defaultAgeing+1)
	want(macB, defaultAgeing+1, 3, true)
	fdb.Forget(3)
	want(macB, defaultAgeing+1, 0, false)
	learn(macB, 3, defaultAgeing+1)
	want(macB, defaultAgeing+1, 3, true)
}

// bounce lets mac be heard on each of the ports in turn, and returns the places in ports
// at which it was told to flap.
func bounce(fdb *FDB, mac vnet.MAC, now Tick, ports ...PortID) (told []int) {
	for i, p := range ports {
		if l := fdb.learn(0, mac, p, now); l.news&newsFlaps != 0 && l.from == ports[i-1] {
			told = append(told, i)
		}
	}
	return told
}

func TestFDBTellsWhatFlaps(t *testing.T) {
	twice := []PortID{1, 2, 1} // a bond that fails over and back
	five := []PortID{1, 2, 1, 2, 1, 2}
	for _, c := range []struct {
		name string
		told func(*FDB) []int
		want []int
	}{
		{"two moves", func(fdb *FDB) []int { return bounce(fdb, macA, 0, twice...) }, nil},
		{"five moves", func(fdb *FDB) []int { return bounce(fdb, macA, 0, five...) }, []int{5}},
		{"no moves", func(fdb *FDB) []int {
			return bounce(fdb, macA, 0, 1, 1, 1, 1, 1, 1, 1)
		}, nil},
		{"no more within the time", func(fdb *FDB) []int {
			bounce(fdb, macA, 0, five...)
			return append(bounce(fdb, macA, flapTime-1, five...), bounce(fdb, macB, flapTime-1, five...)...)
		}, nil},
		{"again after it", func(fdb *FDB) []int {
			bounce(fdb, macA, 0, five...)
			return bounce(fdb, macA, flapTime, five...) // the first is a move, too
		}, []int{4}},
		{"few in each time", func(fdb *FDB) (told []int) {
			for now := range 4 * flapTime {
				if now%(flapTime/2) == 0 {
					told = append(told, bounce(fdb, macA, now, twice...)...)
				}
			}
			return told
		}, nil},
		{"an aged entry does not move", func(fdb *FDB) (told []int) {
			for i := range Tick(20) {
				told = append(told, bounce(fdb, macA, i*(defaultAgeing+1), PortID(i%2))...)
			}
			return told
		}, nil},
		{"a port that was forgotten", func(fdb *FDB) (told []int) {
			for i := range PortID(20) {
				told = append(told, bounce(fdb, macA, 0, i%2)...)
				fdb.Forget(i % 2)
			}
			return told
		}, nil},
		{"beside as many as are counted", func(fdb *FDB) []int {
			for i := range vnet.MAC(flapMost) {
				bounce(fdb, macB+i, 0, twice...)
			}
			return append(bounce(fdb, macA, 0, five...), bounce(fdb, macB, 0, five...)...)
		}, []int{3}},
	} {
		if got := c.told(newFDB(0)); !slices.Equal(got, c.want) {
			t.Errorf("%s: told at %v, want %v", c.name, got, c.want)
		}
	}
}

// Port p learns only addresses that are p modulo ports, so that whatever is found
// of an address tells whether it is that address's own value. Addresses share few
// buckets: entries are taken and given up all the time.
func TestFDBReadersNeverSeeAnotherAddressesPort(t *testing.T) {
	const ports, addresses, rounds = 4, 64, 20000
	fdb := newFDB(addresses / 8)
	var wg sync.WaitGroup
	for p := range PortID(ports) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(p), 1))
			now := Tick(0)
			for i := range rounds {
				if i%100 == 0 {
					now += defaultAgeing / 3
				}
				fdb.learn(0, macA+vnet.MAC(rng.IntN(addresses/ports)*ports+int(p)), p, now)
				at := rng.IntN(addresses)
				if got, ok := fdb.lookup(0, macA+vnet.MAC(at), now); ok && got != PortID(at%ports) {
					t.Errorf("address %d found behind port %d, want %d", at, got, at%ports)
					return
				}
				if i%1000 == 0 {
					fdb.Forget(p)
				}
			}
		})
	}
	wg.Wait()
	fdb.Len()
}

func TestFDBSizes(t *testing.T) {
	for _, c := range []struct{ asked, size, places int }{
		{0, 16384, 32768}, {1, 1, 8}, {4, 4, 8}, {5, 5, 16}, {1000, 1000, 2048}, {MaxFDBSize + 1, MaxFDBSize, 2 * MaxFDBSize},
	} {
		fdb := newFDB(c.asked)
		if fdb.size != c.size || fdb.most != c.size || len(fdb.links) != c.places {
			t.Errorf("%d: room for %d, %d places; want %d, %d", c.asked, fdb.size, len(fdb.links), c.size, c.places)
		}
	}
}

// TestFDBHoldsAsManyAsItSays: nothing is evicted because its buckets are full.
func TestFDBHoldsAsManyAsItSays(t *testing.T) {
	fdb := newFDB(0)
	for i := range vnet.MAC(DefaultFDBSize) {
		if l := fdb.learn(uint16(i%4096), macA+i, PortID(i%7), 0); l != (learnt{}) {
			t.Fatalf("address %d: %+v", i, l)
		}
	}
	if n := fdb.Len(); n != DefaultFDBSize {
		t.Errorf("%d addresses", n)
	}
}

// wantKnown fails t unless exactly those of macA+0... are known whose index is in want.
func wantKnown(t *testing.T, fdb *FDB, now Tick, want ...int) {
	t.Helper()
	var got []int
	for i := range 64 {
		if _, ok := fdb.lookup(0, macA+vnet.MAC(i), now); ok {
			got = append(got, i)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("known are %v, want %v", got, want)
	}
	fdb.Len()
}

// learn lets macA+from to macA+to-1 be heard on p.
func learn(fdb *FDB, p PortID, now Tick, from, to int) (l learnt) {
	for i := from; i < to; i++ {
		l = fdb.learn(0, macA+vnet.MAC(i), p, now)
	}
	return l
}

func TestFDBFullEvictsFromThePortWithTheMost(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*FDB)
		want []int
	}{
		{"its oldest", func(fdb *FDB) {
			learn(fdb, 1, 0, 0, 5)
			learn(fdb, 2, 1, 5, 8)
			learn(fdb, 3, 2, 8, 9)
		}, []int{1, 2, 3, 4, 5, 6, 7, 8}},
		{"a refreshed one is not the oldest", func(fdb *FDB) {
			learn(fdb, 1, 0, 0, 5)
			learn(fdb, 2, 1, 5, 8)
			learn(fdb, 1, mostRefresh, 0, 1)
			learn(fdb, 3, mostRefresh, 8, 9)
		}, []int{0, 2, 3, 4, 5, 6, 7, 8}},
		{"the one who floods, not those with less", func(fdb *FDB) {
			learn(fdb, 2, 0, 0, 3)
			learn(fdb, 1, 1, 3, 60)
		}, []int{0, 1, 2, 55, 56, 57, 58, 59}},
		{"itself, when another has as many", func(fdb *FDB) {
			learn(fdb, 1, 0, 0, 4)
			learn(fdb, 2, 1, 4, 8)
			learn(fdb, 2, 2, 8, 20)
		}, []int{0, 1, 2, 3, 16, 17, 18, 19}},
		{"itself, be it the first of them", func(fdb *FDB) {
			learn(fdb, 2, 0, 0, 4)
			learn(fdb, 1, 1, 4, 20)
		}, []int{0, 1, 2, 3, 16, 17, 18, 19}},
		{"down to the fair share", func(fdb *FDB) {
			learn(fdb, 1, 0, 0, 8)
			learn(fdb, 2, 1, 8, 60)
		}, []int{4, 5, 6, 7, 56, 57, 58, 59}},
		{"after a move, whose it is now", func(fdb *FDB) {
			learn(fdb, 1, 0, 0, 5)
			learn(fdb, 2, 0, 5, 8)
			learn(fdb, 2, 1, 0, 2)
			learn(fdb, 3, 1, 8, 9)
		}, []int{0, 1, 2, 3, 4, 6, 7, 8}},
		{"an aged one goes first", func(fdb *FDB) {
			learn(fdb, 2, 0, 0, 1)
			learn(fdb, 1, defaultAgeing, 1, 8)
			fdb.Expire(defaultAgeing + 1)
			learn(fdb, 1, defaultAgeing+1, 8, 9)
		}, []int{1, 2, 3, 4, 5, 6, 7, 8}},
		{"never a static one", func(fdb *FDB) {
			for i := range 7 {
				fdb.Add(0, macA+vnet.MAC(i), 1, 0)
			}
			learn(fdb, 1, 0, 7, 20)
		}, []int{0, 1, 2, 3, 4, 5, 6, 19}},
		{"a static one takes a place", func(fdb *FDB) {
			learn(fdb, 1, 0, 0, 8)
			fdb.Add(0, macA+8, 2, 0)
		}, []int{1, 2, 3, 4, 5, 6, 7, 8}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fdb := newFDB(8)
			c.do(fdb)
			wantKnown(t, fdb, defaultAgeing, c.want...)
		})
	}
}

// Both buckets of an address may be full while the database is not.
func TestFDBFullBucket(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*FDB)
		now  Tick // when macA+8 is heard on port 9
		want []int
		news news
	}{
		{"the oldest of the port with the most", func(fdb *FDB) {
			learn(fdb, 2, 0, 4, 7)
			learn(fdb, 3, 0, 7, 8)
			learn(fdb, 1, 1, 0, 4)
			learn(fdb, 1, 1+mostRefresh, 0, 1)
		}, 20, []int{0, 2, 3, 4, 5, 6, 7, 8}, newsFull},
		{"an aged one first", func(fdb *FDB) {
			learn(fdb, 1, 20, 0, 7)
			learn(fdb, 3, 0, 7, 8)
		}, defaultAgeing + 1, []int{0, 1, 2, 3, 4, 5, 6, 8}, 0},
		{"its own, and no one's with less", func(fdb *FDB) {
			learn(fdb, 1, 0, 5, 8)
			learn(fdb, 9, 10, 0, 5)
		}, 20, []int{1, 2, 3, 4, 5, 6, 7, 8}, newsFull},
		{"its own, when another has as many", func(fdb *FDB) {
			learn(fdb, 1, 0, 4, 8)
			learn(fdb, 9, 10, 0, 4)
		}, 20, []int{1, 2, 3, 4, 5, 6, 7, 8}, newsFull},
		{"the oldest that is not static", func(fdb *FDB) {
			for i := range 4 {
				fdb.Add(0, macA+vnet.MAC(i), 1, 0)
			}
			learn(fdb, 1, 5, 4, 8)
		}, 20, []int{0, 1, 2, 3, 5, 6, 7, 8}, newsFull},
		{"nothing that is static", func(fdb *FDB) {
			for i := range 8 {
				fdb.Add(0, macA+vnet.MAC(i), 1, 0)
			}
		}, 20, []int{0, 1, 2, 3, 4, 5, 6, 7}, newsFull},
	} {
		t.Run(c.name, func(t *testing.T) {
			fdb := oneBucket()
			c.do(fdb)
			l := learn(fdb, 9, c.now, 8, 9)
			if l.news != c.news || c.news != 0 && l.limit != fdb.most {
				t.Errorf("it tells %+v", l)
			}
			wantKnown(t, fdb, 20, c.want...)
		})
	}
}

// TestFDBFullBucketOfPortsWithAsFew: a port takes nothing from one with as few addresses.
func TestFDBFullBucketOfPortsWithAsFew(t *testing.T) {
	fdb := oneBucket()
	for p := range 4 {
		learn(fdb, PortID(p), 0, 2*p, 2*p+2)
	}
	elsewhere := &fdb.holder(9).len // in other buckets, if there were any
	*elsewhere = 2
	if l := learn(fdb, 9, 0, 8, 9); l.news != newsFull {
		t.Errorf("it tells %+v", l)
	}
	*elsewhere = 1
	learn(fdb, 9, 0, 9, 10)
	*elsewhere -= 1
	wantKnown(t, fdb, 0, 1, 2, 3, 4, 5, 6, 7, 9)
}

func TestFDBPortLimit(t *testing.T) {
	fdb := newFDB(0)
	fdb.SetLimit(1, 3)
	if l := learn(fdb, 1, 0, 0, 3); l != (learnt{}) {
		t.Errorf("%+v", l)
	}
	if l := learn(fdb, 1, 1, 3, 4); l != (learnt{news: newsLimit, limit: 3}) {
		t.Errorf("%+v", l)
	}
	learn(fdb, 2, 1, 10, 14)
	wantKnown(t, fdb, 1, 1, 2, 3, 10, 11, 12, 13)

	fdb.learn(0, macA+13, 1, 1) // moves there
	wantKnown(t, fdb, 1, 2, 3, 10, 11, 12, 13)
	fdb.Add(0, macA+20, 1, 1) // a static one does not count
	wantKnown(t, fdb, 1, 2, 3, 10, 11, 12, 13, 20)

	fdb.SetLimit(1, 1)
	wantKnown(t, fdb, 1, 10, 11, 12, 13, 20)
	fdb.SetLimit(1, 0)
	learn(fdb, 1, 2, 30, 35)
	wantKnown(t, fdb, 2, 10, 11, 12, 13, 20, 30, 31, 32, 33, 34)

	fdb.Remove(1) // and what was told of it: another may have its ID
	fdb.SetLimit(1, 1)
	if l := learn(fdb, 1, 2, 40, 42); l != (learnt{news: newsLimit, limit: 1}) {
		t.Errorf("%+v", l)
	}
	fdb.Remove(1)
	learn(fdb, 1, 2, 50, 52)
	wantKnown(t, fdb, 2, 10, 11, 12, 50, 51)
}

func TestFDBIsToldToHoldFewer(t *testing.T) {
	fdb := newFDB(8)
	learn(fdb, 1, 0, 0, 5)
	learn(fdb, 2, 0, 5, 8)
	fdb.Configure(defaultAgeing, 4)
	wantKnown(t, fdb, 0, 3, 4, 6, 7)
	learn(fdb, 3, 0, 8, 9)
	if n := fdb.Len(); n != 4 {
		t.Errorf("%d addresses", n)
	}
	fdb.Configure(defaultAgeing, 8)
	learn(fdb, 3, 0, 9, 13)
	if n := fdb.Len(); n != 8 {
		t.Errorf("%d addresses", n)
	}
}

func TestFDBAgeingTime(t *testing.T) {
	fdb := newFDB(0)
	fdb.Configure(20, 100)
	learn(fdb, 1, 100, 0, 1)
	fdb.learn(0, macA, 1, 104) // within a quarter of the ageing time
	wantKnown(t, fdb, 120, 0)
	wantKnown(t, fdb, 121)
	fdb.learn(0, macA, 1, 105)
	wantKnown(t, fdb, 125, 0)
	fdb.Expire(125)
	wantKnown(t, fdb, 125, 0)
	fdb.Expire(126)
	if n := fdb.Len(); n != 0 {
		t.Errorf("%d addresses that are too old", n)
	}
	learn(fdb, 1, 200, 0, 1)
	fdb.Configure(1000000, 100)
	wantKnown(t, fdb, 1000200, 0)
	wantKnown(t, fdb, 1000201)
}

func TestFDBStaticEntries(t *testing.T) {
	fdb := newFDB(8)
	learn(fdb, 1, 0, 0, 1)
	fdb.Add(0, macA, 2, 0)
	wantPort(t, fdb, 0, macA, 0, 2)
	if l := learn(fdb, 1, 400, 0, 1); l != (learnt{}) {
		t.Errorf("%+v", l)
	}
	wantPort(t, fdb, 0, macA, 1<<31, 2)
	fdb.Expire(1 << 31)
	fdb.Forget(2)
	wantPort(t, fdb, 0, macA, 1<<31, 2)
	fdb.Add(0, macA, 3, 0)
	wantPort(t, fdb, 0, macA, 0, 3)
	fdb.Remove(2)
	wantPort(t, fdb, 0, macA, 0, 3)
	fdb.Remove(3)
	wantUnknown(t, fdb, 0, macA, 0)

	for i := range vnet.MAC(8) {
		if !fdb.Add(0, macA+i, 1, 0) {
			t.Errorf("no room for entry %d", i)
		}
	}
	if fdb.Add(0, macA+8, 1, 0) {
		t.Error("room for one too many")
	}
	if l := learn(fdb, 1, 0, 9, 10); l.news != newsFull {
		t.Errorf("%+v", l)
	}
	wantKnown(t, fdb, 0, 0, 1, 2, 3, 4, 5, 6, 7)
}

// A learner whose look at the table was earlier than the entry's becoming static.
func TestFDBSlowLearningLeavesStaticEntriesAlone(t *testing.T) {
	fdb := newFDB(8)
	fdb.Add(0, macA, 2, 0)
	if l := fdb.learnSlow(fdbKey(0, macA), 1, 0); l != (learnt{}) {
		t.Errorf("%+v", l)
	}
	wantPort(t, fdb, 0, macA, 0, 2)
	fdb.Len()
}

// TestFDBTellsALittle: whoever sends what he likes cannot have it told at his rate.
func TestFDBTellsALittle(t *testing.T) {
	count := func(fdb *FDB, ticks Tick, what news, do func(i int, now Tick) learnt) (n int) {
		for now := range ticks {
			for i := range 100 {
				if do(i, now).news&what != 0 {
					n++
				}
			}
		}
		return n
	}
	fdb := newFDB(0)
	if n := count(fdb, 10, newsMoved, func(i int, now Tick) learnt {
		return fdb.learn(0, macA+vnet.MAC(i), PortID(now), now)
	}); n != 9*movesTold {
		t.Errorf("%d moves are told in 9 seconds", n)
	}
	fdb = newFDB(8)
	if n := count(fdb, 2*fullTold, newsFull, func(i int, now Tick) learnt {
		return fdb.learn(0, macA+vnet.MAC(i)+vnet.MAC(now)*100, 1, now)
	}); n != 2 {
		t.Errorf("told %d times in two minutes that there is no room", n)
	}
	fdb = newFDB(0)
	fdb.SetLimit(1, 8)
	if n := count(fdb, 2*fullTold, newsLimit, func(i int, now Tick) learnt {
		return fdb.learn(0, macA+vnet.MAC(i)+vnet.MAC(now)*100, 1, now)
	}); n != 2 {
		t.Errorf("told %d times in two minutes that the port has its limit", n)
	}
}

// TestFDBKeepsItsBooks under everything that may happen to it.
func TestFDBKeepsItsBooks(t *testing.T) {
	fdb := newFDB(40)
	rng := rand.New(rand.NewPCG(7, 9))
	now := Tick(0)
	for range 200000 {
		vid, mac, p := uint16(rng.IntN(3)), macA+vnet.MAC(rng.IntN(60)), PortID(rng.IntN(6))
		switch n := rng.IntN(1000); {
		case n < 900:
			fdb.learn(vid, mac, p, now-Tick(rng.IntN(2))*min(now, 1))
		case n < 950:
			now += Tick(rng.IntN(20))
			fdb.Expire(now)
		case n < 970:
			fdb.Add(vid, mac, p, now)
		case n < 980:
			fdb.removeIf(func(key, _ uint64) bool { return key == fdbKey(vid, mac) })
		case n < 985:
			fdb.Forget(p)
		case n < 988:
			fdb.Remove(p)
		case n < 992:
			fdb.Keep(p, func(vid uint16) bool { return vid != 1 })
		case n < 996:
			fdb.SetLimit(p, rng.IntN(10))
		default:
			fdb.Configure(minAgeing+Tick(rng.IntN(300)), 1+rng.IntN(40))
		}
		if rng.IntN(50) == 0 {
			fdb.Len()
		}
	}
}
