package wire

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"
)

// What a boot left half-written, and what looks like a preamble, is skipped.
func TestSyncFindsTheNextBoot(t *testing.T) {
	var stream bytes.Buffer
	guest := NewConn(&stream)
	if err := guest.Write(&Message{Kind: Out, ID: 7, Body: bytes.Repeat([]byte{0xff}, 100)}); err != nil {
		t.Fatal(err)
	}
	stream.Truncate(stream.Len() - 3) // the guest was reset while it wrote
	stream.Write(Preamble[:5])
	hello := &Message{Kind: Hello, Release: "6.12"}
	data := &Message{Kind: Data, ID: 1, EOF: true, Body: append([]byte{0}, Preamble...)}
	if err := errors.Join(guest.Announce(hello), guest.Write(data)); err != nil {
		t.Fatal(err)
	}

	host := NewConn(&stream)
	if err := host.Sync(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []*Message{hello, data} {
		got, err := host.Read()
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if _, err := host.Read(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

func TestReadRefusesWhatIsOutOfStep(t *testing.T) {
	for name, stream := range map[string]string{
		"a huge head":   "\xff\xff\xff\xff\x00\x00\x00\x00",
		"a huge body":   "\x02\x00\x00\x00\xff\xff\xff\xff{}",
		"no JSON":       "\x02\x00\x00\x00\x00\x00\x00\x00<>",
		"half a length": "\x02\x00\x00",
		"half a head":   "\x02\x00\x00\x00\x00\x00\x00\x00{",
	} {
		if m, err := NewConn(bytes.NewBufferString(stream)).Read(); err == nil {
			t.Errorf("%s: read as %+v", name, m)
		} else if errors.Is(err, io.EOF) {
			t.Errorf("%s: taken for the end", name)
		}
	}
}

func TestWriteRefusesWhatNobodyReads(t *testing.T) {
	c := NewConn(&bytes.Buffer{})
	if err := c.Write(&Message{Kind: Data, Body: make([]byte, maxBody+1)}); err == nil {
		t.Error("a body that is too long was sent")
	}
}
