package keeper

import (
	"context"
	"testing"
)

func kinds(list []Event) (all []Kind) {
	for _, e := range list {
		all = append(all, e.Kind)
	}
	return all
}

func TestEventsAreNumberedAndReadFromAnyPoint(t *testing.T) {
	l := newEvents()
	for _, k := range []Kind{PortAdded, PortUp, PortDown} {
		l.add(Event{Kind: k})
	}
	list, _ := l.since(1)
	if got := kinds(list); len(got) != 2 || got[0] != PortUp || got[1] != PortDown || list[1].Seq != 3 {
		t.Errorf("behind 1: %v", list)
	}
	if list, _ := l.since(3); len(list) != 0 {
		t.Errorf("behind the last: %v", list)
	}
	if list, _ := l.since(100); len(list) != 0 {
		t.Errorf("behind one that is to come: %v", list)
	}
}

// A reader that was away too long learns how many events it missed, and gets the rest.
func TestEventsThatAreForgottenAreCounted(t *testing.T) {
	l := newEvents()
	for range remembered + 10 {
		l.add(Event{Kind: PortUp})
	}
	list, _ := l.since(4)
	if len(list) != remembered+1 || list[0].Kind != Lost || list[0].Count != 6 || list[1].Seq != 11 ||
		list[remembered].Seq != remembered+10 {
		t.Errorf("%d events, first %+v", len(list), list[0])
	}
	if list, _ := l.since(10); len(list) != remembered || list[0].Kind == Lost {
		t.Errorf("nothing is lost: %d events, first %+v", len(list), list[0])
	}
}

func TestEventsWakeWhoWaits(t *testing.T) {
	k := &Keeper{events: newEvents()}
	k.tell(Event{Kind: PortAdded})
	last := k.LastEvent()
	got := make(chan []Event)
	go func() { got <- k.Events(context.Background(), last, true) }()
	go k.tell(Event{Kind: PortUp}) // before or after it is asked for
	if list := <-got; len(list) != 1 || list[0].Seq != 2 {
		t.Errorf("%v", list)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if list := k.Events(ctx, k.LastEvent(), true); list != nil {
		t.Errorf("after the end: %v", list)
	}
}
