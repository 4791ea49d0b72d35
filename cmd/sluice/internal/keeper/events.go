package keeper

import (
	"context"
	"sync"
	"time"
)

// Kind is what an Event tells of.
type Kind string

// Kinds of events.
const (
	ConfigApplied Kind = "config_applied" // the desired state changed
	PortAdded     Kind = "port_added"
	PortRemoved   Kind = "port_removed"
	PortUp        Kind = "port_up"
	PortDown      Kind = "port_down"
	LimitChanged  Kind = "limit_changed" // what the port takes
	GSOLatched    Kind = "gso_latched"   // the kernel refuses a GSO type for a while
	MACMoved      Kind = "mac_moved"     // an address is heard on another port than before
	MACFlaps      Kind = "mac_flaps"     // an address is heard on two ports in turn
	FDBFull       Kind = "fdb_full"      // an address found no place, or took another's
	DropSeen      Kind = "drop_seen"     // a reason to drop counts for the first time at this port
	Lost          Kind = "lost"          // the reader was too slow, and Count events are gone
)

// Event is something that happened to the switch, as `sluice events` prints it.
type Event struct {
	Seq   uint64    `json:"seq"` // from 1 on, without gaps
	Time  time.Time `json:"time"`
	Kind  Kind      `json:"event"`
	Port  string    `json:"port,omitempty"`
	Other string    `json:"other,omitempty"` // the port that an address came from
	MAC   string    `json:"mac,omitempty"`
	VLAN  *uint16   `json:"vlan,omitempty"` // of the address
	// Reason is a drop's.
	Reason string `json:"reason,omitempty"`
	Count  uint64 `json:"count,omitempty"`
	Text   string `json:"text"` // the same for a person, in one line
}

// remembered is how many events a late reader can still get.
const remembered = 1024

// events are the switch's last events. Who adds one waits for no reader: a reader comes and
// looks, and finds out by the numbers what it missed.
type events struct {
	mu   sync.Mutex
	ring [remembered]Event // guarded by mu; by Seq modulo its length
	last uint64            // guarded by mu: the Seq of the newest
	more chan struct{}     // guarded by mu; closed when there is one more
}

func newEvents() *events { return &events{more: make(chan struct{})} }

// add numbers and dates e and keeps it.
func (l *events) add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	e.Seq, e.Time = l.last, time.Now()
	l.ring[e.Seq%remembered] = e
	close(l.more)
	l.more = make(chan struct{})
}

// since are the events behind Seq seq, oldest first, and what is closed when there is one
// more. A Lost event stands for those that are forgotten.
func (l *events) since(seq uint64) ([]Event, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []Event
	if l.last > remembered && seq < l.last-remembered {
		lost := l.last - remembered - seq
		seq = l.last - remembered
		list = append(list, Event{
			Seq: seq, Time: time.Now(), Kind: Lost, Count: lost, Text: "events were lost: they were not read in time",
		})
	}
	for ; seq < l.last; seq++ {
		list = append(list, l.ring[(seq+1)%remembered])
	}
	return list, l.more
}

// Events are the events behind Seq seq, oldest first. With wait it returns not before there
// is one, or ctx is done.
func (k *Keeper) Events(ctx context.Context, seq uint64, wait bool) []Event {
	for {
		list, more := k.events.since(seq)
		if len(list) > 0 || !wait {
			return list
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil
		}
	}
}

// LastEvent is the Seq of the newest event, 0 before the first.
func (k *Keeper) LastEvent() uint64 {
	k.events.mu.Lock()
	defer k.events.mu.Unlock()
	return k.events.last
}
