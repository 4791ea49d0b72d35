package vm

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"sluice/integration/vm/wire"
)

// ErrGone says why a command has no result: its guest ended, or booted again.
var ErrGone = errors.New("the guest has gone")

// agent is the host's end of the conversation with a guest's init, over one
// connection to QEMU.
type agent struct {
	conn net.Conn
	wire *wire.Conn

	mu   sync.Mutex
	boot *boot // guarded by mu: the current one, up or booting
}

// boot is the conversation from one hello to the end of that run of the guest.
type boot struct {
	up      chan struct{} // closed at hello
	release string        // the kernel's; valid once up is closed
	down    chan struct{} // closed when the conversation is over

	mu    sync.Mutex
	talks map[uint64]talk // guarded by mu; nil once down is closed
}

// ids are unique in the process, so that a late message to one boot's command never reaches
// another's.
var ids atomic.Uint64

// talk is the host's side of one conversation.
type talk interface {
	// hear takes one message of the guest. Only the agent's reader calls it.
	hear(m *wire.Message)
	// end says that nothing follows. err is nil after exit, otherwise ErrGone.
	end(err error)
}

func newBoot() *boot {
	return &boot{up: make(chan struct{}), down: make(chan struct{}), talks: map[uint64]talk{}}
}

// newAgent listens on a connection until it is closed.
func newAgent(conn net.Conn) *agent {
	a := &agent{conn: conn, wire: wire.NewConn(conn), boot: newBoot()}
	go func() {
		for {
			b := a.current()
			again, err := a.listen(b)
			if again {
				a.mu.Lock()
				a.boot = newBoot()
				a.mu.Unlock()
			}
			b.over(err)
			if !again {
				return
			}
		}
	}()
	return a
}

// current is the current boot.
func (a *agent) current() *boot {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.boot
}

// listen follows one boot to its end, and reports whether another may follow.
func (a *agent) listen(b *boot) (again bool, err error) {
	if err := a.wire.Sync(); err != nil {
		return false, fmt.Errorf("%w: %w", ErrGone, err)
	}
	for {
		m, err := a.wire.Read()
		if err != nil {
			return false, fmt.Errorf("%w: %w", ErrGone, err)
		}
		switch m.Kind {
		case wire.Hello:
			b.release = m.Release
			close(b.up)
		case wire.Bye:
			return true, fmt.Errorf("%w: it was told to halt", ErrGone)
		default:
			b.hear(m)
		}
	}
}

// hear passes a message to its conversation.
func (b *boot) hear(m *wire.Message) {
	b.mu.Lock()
	t := b.talks[m.ID]
	if m.Kind == wire.Exit {
		delete(b.talks, m.ID)
	}
	b.mu.Unlock()
	if t == nil {
		return
	}
	t.hear(m)
	if m.Kind == wire.Exit {
		t.end(nil)
	}
}

// begin registers a conversation and returns its id.
func (b *boot) begin(t talk) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.talks == nil {
		return 0, ErrGone
	}
	id := ids.Add(1)
	b.talks[id] = t
	return id, nil
}

// over ends all conversations.
func (b *boot) over(err error) {
	b.mu.Lock()
	talks := b.talks
	b.talks = nil
	b.mu.Unlock()
	for _, t := range talks {
		t.end(err)
	}
	close(b.down)
}
