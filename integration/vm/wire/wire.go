package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// PortName is the virtio-serial port's name. The guest finds the port by it
// (/sys/class/virtio-ports/*/name).
const PortName = "sluice.test"

// Chunk is the most that a sender puts into one body, in bytes: as much as the
// guest's driver takes in one write (port_fops_write in virtio_console.c).
const Chunk = 32 << 10

const (
	maxHead = 1 << 20 // room for a command line
	maxBody = 1 << 20
)

// Preamble begins the guest's side of the conversation at every boot. No UTF-8
// text contains its first byte.
var Preamble = []byte("\xffsluice guest\r\n\x00")

// Kind is a message's kind.
type Kind string

// Kinds of messages.
const (
	Hello Kind = "hello" // guest: it is up
	Out   Kind = "out"   // guest: what a command wrote
	Data  Kind = "data"  // both: a piece of a file
	Exit  Kind = "exit"  // guest: how the conversation of this id ended
	Bye   Kind = "bye"   // guest: it halts now
	Run   Kind = "run"   // host: start a command
	Kill  Kind = "kill"  // host: send a signal to a command's process group
	Put   Kind = "put"   // host: write a file
	Get   Kind = "get"   // host: read a file
	Halt  Kind = "halt"  // host: end
)

// Ways to halt a guest.
const (
	Reboot   = "reboot"
	PowerOff = "poweroff"
	Hang     = "hang" // never answer again, as a broken guest
)

// Message is one message of either side. Its kind decides which fields are set.
type Message struct {
	Kind Kind   `json:"kind"`
	ID   uint64 `json:"id,omitempty"`

	Release string `json:"release,omitempty"` // hello: uname -r

	Args []string `json:"args,omitempty"` // run: the program and its arguments
	Env  []string `json:"env,omitempty"`  // run: in addition to the guest's own
	Dir  string   `json:"dir,omitempty"`  // run

	Path string `json:"path,omitempty"` // put, get
	Mode uint32 `json:"mode,omitempty"` // put: permission bits

	Stderr bool `json:"stderr,omitempty"` // out: not standard output
	EOF    bool `json:"eof,omitempty"`    // data: the last piece

	Signal int    `json:"signal,omitempty"` // kill: which; exit: what ended the command
	Code   int    `json:"code,omitempty"`   // exit: the command's exit status
	Error  string `json:"error,omitempty"`  // exit: why it could not be done

	How string `json:"how,omitempty"` // halt

	Body []byte `json:"-"` // out, data
}

// Conn frames messages on a stream. One goroutine reads; any may write.
type Conn struct {
	r *bufio.Reader

	mu sync.Mutex
	w  io.Writer // guarded by mu
}

// NewConn makes a connection over rw.
func NewConn(rw io.ReadWriter) *Conn {
	return &Conn{r: bufio.NewReaderSize(rw, 2*Chunk), w: rw}
}

// Announce writes Preamble and first in one write.
func (c *Conn) Announce(first *Message) error { return c.write(Preamble, first) }

// Sync reads up to the end of the next Preamble.
func (c *Conn) Sync() error {
	last := make([]byte, 0, 2*len(Preamble))
	for {
		b, err := c.r.ReadByte()
		if err != nil {
			return err
		}
		if last = append(last, b); bytes.HasSuffix(last, Preamble) {
			return nil
		}
		if len(last) == cap(last) {
			last = last[:copy(last, last[len(Preamble):])]
		}
	}
}

// Write sends m.
func (c *Conn) Write(m *Message) error { return c.write(nil, m) }

func (c *Conn) write(prefix []byte, m *Message) error {
	head, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("wire: %w", err)
	}
	if len(head) > maxHead || len(m.Body) > maxBody {
		return fmt.Errorf("wire: %s of %d + %d bytes is too long", m.Kind, len(head), len(m.Body))
	}
	frame := binary.LittleEndian.AppendUint32(prefix[:len(prefix):len(prefix)], uint32(len(head)))
	frame = binary.LittleEndian.AppendUint32(frame, uint32(len(m.Body)))
	frame = append(append(frame, head...), m.Body...)
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err = c.w.Write(frame)
	return err
}

// Read receives the next message. Its body is the caller's.
func (c *Conn) Read() (*Message, error) {
	var lens [8]byte
	if _, err := io.ReadFull(c.r, lens[:]); err != nil {
		return nil, err
	}
	head, body := binary.LittleEndian.Uint32(lens[:4]), binary.LittleEndian.Uint32(lens[4:])
	if head > maxHead || body > maxBody {
		return nil, fmt.Errorf("wire: a frame of %d + %d bytes: out of step", head, body)
	}
	b := make([]byte, head+body)
	if _, err := io.ReadFull(c.r, b); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	m := &Message{}
	if err := json.Unmarshal(b[:head], m); err != nil {
		return nil, fmt.Errorf("wire: head: %w", err)
	}
	if body > 0 {
		m.Body = b[head:]
	}
	return m, nil
}
