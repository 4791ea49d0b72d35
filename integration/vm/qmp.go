package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// qmp talks to QEMU itself (docs/interop/qmp-spec.rst).
type qmp struct {
	conn net.Conn
	turn sync.Mutex // one command at a time

	replies chan qmpMessage

	mu      sync.Mutex
	events  map[string]int // guarded by mu: how many of each have arrived
	changed chan struct{}  // guarded by mu: closed at the next event
}

// qmpMessage is a reply or an event; the greeting is neither.
type qmpMessage struct {
	Event  string          `json:"event"`
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Desc string `json:"desc"`
	} `json:"error"`
}

// qmpLimit is how long QEMU may take to answer. It handles a request at once, between two turns of
// its main loop.
const qmpLimit = 30 * time.Second

// newQMP begins the conversation on a connection that QEMU has accepted.
func newQMP(conn net.Conn) (*qmp, error) {
	q := &qmp{
		conn:    conn,
		replies: make(chan qmpMessage),
		events:  map[string]int{},
		changed: make(chan struct{}),
	}
	go q.read()
	return q, q.do("qmp_capabilities", nil)
}

// read dispatches QEMU's messages until it ends.
func (q *qmp) read() {
	defer close(q.replies)
	for d := json.NewDecoder(q.conn); ; {
		var m qmpMessage
		if err := d.Decode(&m); err != nil {
			return
		}
		switch {
		case m.Event != "":
			q.mu.Lock()
			q.events[m.Event]++
			close(q.changed)
			q.changed = make(chan struct{})
			q.mu.Unlock()
		case m.Return != nil || m.Error != nil:
			q.replies <- m
		}
	}
}

// do carries out one command.
func (q *qmp) do(command string, arguments any) error {
	q.turn.Lock()
	defer q.turn.Unlock()
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	text, err := json.Marshal(request)
	if err == nil {
		_, err = q.conn.Write(text)
	}
	if err != nil {
		return fmt.Errorf("vm: qemu %s: %w", command, err)
	}
	timer := time.NewTimer(qmpLimit)
	defer timer.Stop()
	select {
	case m, ok := <-q.replies:
		switch {
		case !ok:
			return fmt.Errorf("vm: qemu %s: %w", command, io.ErrUnexpectedEOF)
		case m.Error != nil:
			return fmt.Errorf("vm: qemu %s: %w", command, errors.New(m.Error.Desc))
		}
		return nil
	case <-timer.C:
		q.conn.Close() // a late answer would be mistaken for that of the next command
		return fmt.Errorf("vm: qemu %s: no answer after %v", command, qmpLimit)
	}
}

// count is how many events of a name have arrived.
func (q *qmp) count(event string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.events[event]
}

// wait waits until n events of a name have arrived.
func (q *qmp) wait(event string, n int) error {
	timer := time.NewTimer(qmpLimit)
	defer timer.Stop()
	for {
		q.mu.Lock()
		there, changed := q.events[event] >= n, q.changed
		q.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return fmt.Errorf("vm: qemu: no event %s after %v", event, qmpLimit)
		}
	}
}
