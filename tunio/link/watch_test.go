package link

import (
	"testing"
	"time"
)

// await reads events until one satisfies ok.
func await(t *testing.T, w *Watcher, what string, ok func(Event) bool) {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		select {
		case e, open := <-w.Events():
			if !open {
				t.Fatalf("%s: watch ended", what)
			}
			if ok(e) {
				return
			}
		case <-late:
			t.Fatalf("%s: no event", what)
		}
	}
}

func TestWatchTellsChanges(t *testing.T) {
	n, other := newNamespace(t), newNamespace(t)
	n.ip(t, "link add br0 type bridge")
	n.ip(t, "link add v0 type veth peer name v1")
	index := n.get(t, "v0").Index
	w, err := n.Watch()
	must(t, err)
	defer w.Close()
	// settle reads what earlier changes made: events come in order.
	settle := func() {
		t.Helper()
		must(t, n.SetMTU("lo", n.get(t, "lo").MTU-1))
		await(t, w, "marker", func(e Event) bool {
			if e.Gone || e.Lost {
				t.Errorf("event %+v although nothing went", e) // a bridge's own RTM_DELLINK, for one
			}
			return e.Name == "lo"
		})
	}
	for _, c := range []struct {
		change string
		holds  func(f *Facts) bool
	}{
		{"link set v0 up", func(f *Facts) bool { return f.Up && !f.Carrier }},
		{"link set v1 up", func(f *Facts) bool { return f.Carrier }},
		{"link set v0 mtu 1400", func(f *Facts) bool { return f.MTU == 1400 }},
		{"link set v0 down", func(f *Facts) bool { return !f.Up }},
		{"link set v0 master br0", func(f *Facts) bool { return f.Master != 0 }},
		{"link set v0 nomaster", func(f *Facts) bool { return f.Master == 0 }},
		{"link set v0 name e0", func(f *Facts) bool { return f.Name == "e0" }},
	} {
		settle()
		n.ip(t, c.change)
		await(t, w, c.change, func(e Event) bool {
			if e.Index != index {
				return false
			}
			if e.Gone {
				t.Errorf("%s: event %+v", c.change, e)
			}
			f, err := n.GetIndex(index)
			must(t, err)
			return c.holds(f)
		})
	}
	settle()
	run(t, "ip netns exec "+n.name+" ethtool -K e0 tso off")
	await(t, w, "features", func(e Event) bool {
		return e == Event{Index: index, Name: "e0"} && !n.get(t, "e0").TSO4
	})

	settle()
	must(t, n.Move("e0", other, "e9"))
	await(t, w, "move away", func(e Event) bool {
		return e == Event{Index: index, Name: "e0", Gone: true}
	})
	must(t, other.Move("e9", n, "e1"))
	await(t, w, "move back", func(e Event) bool { return e.Name == "e1" && !e.Gone })
	index = n.get(t, "e1").Index
	must(t, n.Delete("e1"))
	await(t, w, "delete", func(e Event) bool {
		return e == Event{Index: index, Name: "e1", Gone: true}
	})
	n.ip(t, "link add e1 type veth peer name v1")
	await(t, w, "make again", func(e Event) bool {
		return e.Name == "e1" && e.Index != index && !e.Gone
	})
}

func TestWatchTellsThatItLostEvents(t *testing.T) {
	n := newNamespace(t)
	n.ip(t, "link add v0 type veth peer name v1")
	w, err := n.Watch()
	must(t, err)
	defer w.Close()
	// More messages of more than 1000 bytes than the socket's buffer (212992 bytes,
	// net.core.rmem_default) can hold.
	for i := range 500 {
		must(t, n.SetMTU("v0", 1000+i%2))
	}
	await(t, w, "overrun", func(e Event) bool { return e.Lost })
	must(t, n.SetMTU("v0", 2000))
	await(t, w, "after the overrun", func(e Event) bool {
		return e.Name == "v0" && n.get(t, "v0").MTU == 2000
	})
}

func TestWatcherCloseEndsEvents(t *testing.T) {
	n := newNamespace(t)
	w, err := n.Watch()
	must(t, err)
	n.ip(t, "link add v0 type veth peer name v1") // an event that nobody reads
	must(t, w.Close())
	must(t, w.Close())
	for range w.Events() {
	}
}
