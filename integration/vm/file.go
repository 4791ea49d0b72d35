package vm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"sluice/integration/vm/wire"
)

// transfer is a file in transit.
type transfer struct {
	to   io.Writer     // of a received file
	err  error         // the reader's until done is closed
	done chan struct{} // closed at the end
}

func (t *transfer) hear(m *wire.Message) {
	switch {
	case m.Kind == wire.Exit && m.Error != "":
		t.err = errors.Join(t.err, errors.New(m.Error))
	case m.Kind == wire.Data && t.err == nil:
		_, t.err = t.to.Write(m.Body)
	}
}

func (t *transfer) end(err error) {
	t.err = errors.Join(t.err, err)
	close(t.done)
}

// transfer begins a conversation about a file with first, continues with rest, and waits for its
// end. A guest that takes longer than a command may is hung.
func (g *Guest) transfer(
	first *wire.Message, to io.Writer, rest func(send func(*wire.Message) error) error,
) error {
	m, a, b, err := g.up()
	if err != nil {
		return err
	}
	t := &transfer{to: to, done: make(chan struct{})}
	id, err := b.begin(t)
	if err == nil {
		defer time.AfterFunc(commandLimit, m.killHung).Stop()
		send := func(m *wire.Message) error {
			m.ID = id
			return a.wire.Write(m)
		}
		if err = send(first); err == nil {
			err = rest(send)
		}
	}
	if err == nil {
		<-t.done
		err = t.err
	}
	if err != nil {
		return g.errorf("%s %s: %w", first.Kind, first.Path, errors.Join(m.why(), err))
	}
	return nil
}

// send writes a file in the guest.
func (g *Guest) send(path string, from io.Reader, mode fs.FileMode) error {
	put := &wire.Message{Kind: wire.Put, Path: path, Mode: uint32(mode.Perm())}
	return g.transfer(put, nil, func(send func(*wire.Message) error) error {
		buffer := make([]byte, wire.Chunk)
		for {
			n, err := io.ReadFull(from, buffer)
			last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
			if err != nil && !last {
				return err
			}
			err = send(&wire.Message{Kind: wire.Data, Body: buffer[:n], EOF: last})
			if err != nil || last {
				return err
			}
		}
	})
}

// receive reads a file of the guest.
func (g *Guest) receive(path string, to io.Writer) error {
	get := &wire.Message{Kind: wire.Get, Path: path}
	return g.transfer(get, to, func(func(*wire.Message) error) error { return nil })
}

// Put copies a file of the host into the guest, with its permissions. Directories
// are made.
func (g *Guest) Put(file, path string) {
	g.lab.t.Helper()
	g.must(func() error {
		f, err := os.Open(file)
		if err != nil {
			return fmt.Errorf("vm: %w", err)
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return fmt.Errorf("vm: %w", err)
		}
		return g.send(path, f, info.Mode())
	}())
}

// Get copies a file of the guest to the host.
func (g *Guest) Get(path, file string) {
	g.lab.t.Helper()
	g.must(func() error {
		f, err := os.Create(file)
		if err != nil {
			return fmt.Errorf("vm: %w", err)
		}
		return errors.Join(g.receive(path, f), f.Close())
	}())
}

// WriteFile makes a file in the guest.
func (g *Guest) WriteFile(path string, text []byte, mode fs.FileMode) {
	g.lab.t.Helper()
	g.must(g.send(path, bytes.NewReader(text), mode))
}

// ReadFile returns the content of a file in the guest.
func (g *Guest) ReadFile(path string) []byte {
	g.lab.t.Helper()
	var text bytes.Buffer
	g.must(g.receive(path, &text))
	return text.Bytes()
}
