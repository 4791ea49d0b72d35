package dataplane

import (
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
	got, ok := fdb.Lookup(vid, mac, now)
	if !ok || got != p {
		t.Errorf("lookup of %v in VLAN %d at %d: port %d, %v; want port %d",
			mac, vid, now, got, ok, p)
	}
}

func wantUnknown(t *testing.T, fdb *FDB, vid uint16, mac vnet.MAC, now Tick) {
	t.Helper()
	if got, ok := fdb.Lookup(vid, mac, now); ok {
		t.Errorf("lookup of %v in VLAN %d at %d: port %d; want unknown",
			mac, vid, now, got)
	}
}

// Len counts the addresses that are remembered, aged ones included until their
// place is taken.
func (t *FDB) Len() int {
	n := 0
	for i := range t.buckets {
		for j := range t.buckets[i].keys {
			if t.buckets[i].keys[j].Load() != 0 {
				n++
			}
		}
	}
	return n
}

func TestFDBLearnsAndMoves(t *testing.T) {
	fdb := newFDB()
	wantUnknown(t, fdb, 0, macA, 0)
	fdb.Learn(0, macA, 3, 0)
	fdb.Learn(0, macB, 65535, 0)
	wantPort(t, fdb, 0, macA, 0, 3)
	wantPort(t, fdb, 0, macB, 0, 65535)
	fdb.Learn(0, macA, 0, 1) // at once, not when it is old
	wantPort(t, fdb, 0, macA, 1, 0)
	if n := fdb.Len(); n != 2 {
		t.Errorf("%d addresses, want 2", n)
	}
}

func TestFDBKeepsVLANsApart(t *testing.T) {
	fdb := newFDB()
	fdb.Learn(10, macA, 1, 0)
	fdb.Learn(4095, macA, 2, 0)
	wantPort(t, fdb, 10, macA, 0, 1)
	wantPort(t, fdb, 4095, macA, 0, 2)
	wantUnknown(t, fdb, 0, macA, 0)
}

func TestFDBForgetsAfter300Seconds(t *testing.T) {
	fdb := newFDB()
	fdb.Learn(0, macA, 1, 7)
	wantPort(t, fdb, 0, macA, 307, 1)
	wantUnknown(t, fdb, 0, macA, 308)
	fdb.Learn(0, macA, 1, 308)
	wantPort(t, fdb, 0, macA, 308, 1)
	if n := fdb.Len(); n != 1 {
		t.Errorf("%d addresses, want the old entry's place to be used again", n)
	}
}

// A worker's time is that of its batch's beginning: another worker may have
// written an entry since.
func TestFDBTakesAnEntryFromTheFutureAsFresh(t *testing.T) {
	fdb := newFDB()
	fdb.Learn(0, macA, 1, 10)
	wantPort(t, fdb, 0, macA, 9, 1)

	macs := sameBucket(fdb, bucketWays+1)
	for _, m := range macs[:bucketWays] {
		fdb.Learn(0, m, 1, 10)
	}
	fdb.Learn(0, macs[bucketWays], 2, 9)
	wantUnknown(t, fdb, 0, macs[bucketWays], 10)
}

// value is the word behind a known address.
func value(t *testing.T, fdb *FDB, mac vnet.MAC) uint64 {
	t.Helper()
	key := fdbKey(0, mac)
	b := fdb.bucket(key)
	for i := range b.keys {
		if b.keys[i].Load() == key {
			return b.vals[i].Load()
		}
	}
	t.Fatalf("%v is unknown", mac)
	return 0
}

func TestFDBOnlyReadsWhatIsFresh(t *testing.T) {
	fdb := newFDB()
	fdb.Learn(0, macA, 1, 100)
	was := value(t, fdb, macA)

	fdb.mu.Lock() // nobody may need it
	learnt := make(chan struct{})
	go func() {
		fdb.Learn(0, macA, 1, 100+refresh-1)
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
		t.Errorf("entry written at age %d: %x, was %x", refresh-1, v, was)
	}
	fdb.Learn(0, macA, 1, 100+refresh)
	if v := value(t, fdb, macA); Tick(v>>16) != 100+refresh {
		t.Errorf("entry not written at age %d: %x", refresh, v)
	}
}

// sameBucket finds n addresses that share a bucket in VLAN 0.
func sameBucket(fdb *FDB, n int) []vnet.MAC {
	want := fdb.bucket(fdbKey(0, macA))
	macs := []vnet.MAC{macA}
	for m := macA + 1; len(macs) < n; m++ {
		if fdb.bucket(fdbKey(0, m)) == want {
			macs = append(macs, m)
		}
	}
	return macs
}

func TestFDBBucketFullOfFreshEntriesLearnsNoMore(t *testing.T) {
	fdb := newFDB()
	macs := sameBucket(fdb, bucketWays+1)
	late := macs[bucketWays]
	for _, m := range macs[:bucketWays] {
		fdb.Learn(0, m, 1, 0)
	}
	fdb.Learn(0, late, 2, ageing)
	wantUnknown(t, fdb, 0, late, ageing)
	for _, m := range macs[:bucketWays] {
		wantPort(t, fdb, 0, m, ageing, 1)
	}
	fdb.Learn(0, macs[3], 1, ageing) // refreshed: all others are old now
	fdb.Learn(0, late, 2, ageing+1)
	wantPort(t, fdb, 0, late, ageing+1, 2)
	wantPort(t, fdb, 0, macs[3], ageing+1, 1)
}

func TestFDBIsBounded(t *testing.T) {
	fdb := newFDB()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20 * fdbBuckets * bucketWays {
		fdb.Learn(uint16(rng.IntN(4096)), vnet.MAC(rng.Uint64N(1<<48)), 1, 0)
	}
	if n, most := fdb.Len(), fdbBuckets*bucketWays; n > most || n < most*9/10 {
		t.Errorf("%d addresses after a flood of random ones, want nearly all of %d", n, most)
	}
}

func TestFDBForgetsOnePort(t *testing.T) {
	fdb := newFDB()
	fdb.Learn(0, macA, 1, 0)
	fdb.Learn(5, macA, 1, 0)
	fdb.Learn(0, macB, 2, 0)
	fdb.Forget(1)
	wantUnknown(t, fdb, 0, macA, 0)
	wantUnknown(t, fdb, 5, macA, 0)
	wantPort(t, fdb, 0, macB, 0, 2)
}

// bounce lets mac be heard on each of the ports in turn, and returns the places in ports
// at which it was told to flap.
func bounce(fdb *FDB, mac vnet.MAC, now Tick, ports ...PortID) (told []int) {
	for i, p := range ports {
		from, flaps := fdb.Learn(0, mac, p, now)
		if flaps && from == ports[i-1] {
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
				told = append(told, bounce(fdb, macA, i*(ageing+1), PortID(i%2))...)
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
		if got := c.told(newFDB()); !slices.Equal(got, c.want) {
			t.Errorf("%s: told at %v, want %v", c.name, got, c.want)
		}
	}
}

// Port p learns only addresses that are p modulo ports, so that whatever is found
// of an address tells whether it is that address's own value. Addresses share few
// buckets: entries are taken and given up all the time.
func TestFDBReadersNeverSeeAnotherAddressesPort(t *testing.T) {
	const ports, addresses, rounds = 4, 64, 20000
	fdb := newFDB()
	macs := sameBucket(fdb, addresses)
	var wg sync.WaitGroup
	for p := range PortID(ports) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(p), 1))
			now := Tick(0)
			for i := range rounds {
				if i%100 == 0 {
					now += ageing / 3
				}
				fdb.Learn(0, macs[rng.IntN(addresses/ports)*ports+int(p)], p, now)
				at := rng.IntN(addresses)
				if got, ok := fdb.Lookup(0, macs[at], now); ok && got != PortID(at%ports) {
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
}
