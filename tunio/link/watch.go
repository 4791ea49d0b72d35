package link

import (
	"errors"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Event says that something about a netdev changed. Get reads its new state.
type Event struct {
	Index int
	Name  string // as of the event
	Gone  bool   // it was deleted or moved to another namespace
	// Lost: events were lost. No other field is valid then. Read everything again.
	Lost bool
}

// Watcher follows the netdevs of a namespace. An event comes when a netdev is created or deleted,
// arrives from or leaves for another namespace, goes up or down, or changes its name, MTU, features
// or master. Changed sizes make no event.
type Watcher struct {
	events chan Event
	socket *nl.NetlinkSocket
	done   chan struct{}
	once   sync.Once
	ended  chan struct{}
}

// Watch begins to follow the netdevs of n. Earlier changes are not reported. Its socket keeps the
// namespace alive until the watcher's Close.
func (n *Namespace) Watch() (*Watcher, error) {
	w := &Watcher{events: make(chan Event), done: make(chan struct{}), ended: make(chan struct{})}
	err := n.Do(func() (err error) {
		w.socket, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK)
		return err
	})
	if err != nil {
		return nil, n.fail("watch", "netdevs", err)
	}
	go w.run()
	return w, nil
}

// Events delivers events until Close, or until the socket fails. Then the channel is closed. A
// reader that is too slow gets a Lost event.
func (w *Watcher) Events() <-chan Event { return w.events }

// Close stops the watcher and closes Events.
func (w *Watcher) Close() error {
	w.once.Do(func() {
		close(w.done)
		w.socket.Close()
	})
	<-w.ended
	return nil
}

func (w *Watcher) run() {
	defer close(w.ended)
	defer close(w.events)
	for {
		messages, from, err := w.socket.Receive()
		switch {
		case errors.Is(err, unix.ENOBUFS): // netlink_overrun in net/netlink/af_netlink.c
			if !w.send(Event{Lost: true}) {
				return
			}
			continue
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil: // os.ErrClosed by Close
			return
		case from.Pid != nl.PidKernel: // any process may send to a port
			continue
		}
		for _, m := range messages {
			if e, ok := eventOf(m); ok && !w.send(e) {
				return
			}
		}
	}
}

func (w *Watcher) send(e Event) bool {
	select {
	case w.events <- e:
		return true
	case <-w.done:
		return false
	}
}

// eventOf reads a message of RTNLGRP_LINK. A bridge also sends messages there, of family AF_BRIDGE.
// Its RTM_DELLINK means that a port left the bridge, not that a netdev is gone (br_ifinfo_notify in
// net/bridge/br_netlink.c).
func eventOf(m syscall.NetlinkMessage) (Event, bool) {
	gone := m.Header.Type == unix.RTM_DELLINK
	if !gone && m.Header.Type != unix.RTM_NEWLINK || len(m.Data) < unix.SizeofIfInfomsg {
		return Event{}, false
	}
	info := nl.DeserializeIfInfomsg(m.Data)
	if info.Family != unix.AF_UNSPEC {
		return Event{}, false
	}
	a, err := parseAttrs(m.Data[unix.SizeofIfInfomsg:])
	if err != nil {
		return Event{Lost: true}, true
	}
	name := nl.BytesToString(a.get(unix.IFLA_IFNAME))
	return Event{Index: int(info.Index), Name: name, Gone: gone}, true
}
