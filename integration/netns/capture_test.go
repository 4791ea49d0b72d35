package netns

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCaptureKeepsWhatHadCome has no time to wait for a pause, and a thousand frames
// that wait for it. What comes once it is shut cannot hold it up.
func TestCaptureKeepsWhatHadCome(t *testing.T) {
	lab := New("test")
	defer lab.Close()
	a := lab.Namespace("a")
	a.Silent()
	lab.Veth(a, "eth0", a, "eth1", Link{})
	if err := lab.Err(); os.Geteuid() != 0 && os.Getenv("SLUICE_REQUIRE") != "1" {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	dev, err := a.Link("eth0")
	if err != nil {
		t.Fatal(err)
	}
	send := func(first, count int) error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		frame := make([]byte, 60)
		to := &unix.SockaddrLinklayer{Ifindex: dev.Index}
		for n := range count { // when Sendto returns, the sender's own captures have it
			binary.BigEndian.PutUint32(frame[14:], uint32(first+n))
			if err := unix.Sendto(fd, frame, 0, to); err != nil {
				return err
			}
		}
		return nil
	}
	const frames = 1000
	c := newCapture(true)
	c.drain = 0
	err = a.Do(func() error {
		return errors.Join(c.open(dev.Index), send(0, frames), c.shut(), send(frames, 1))
	})
	if err != nil {
		t.Fatal(err)
	}
	close(c.stop)
	c.run()
	if c.err != nil {
		t.Error(c.err)
	}
	if got := len(c.Frames()); got != frames {
		t.Fatalf("%d frames, want %d", got, frames)
	}
	for n, f := range c.Frames() {
		if got := binary.BigEndian.Uint32(f.Data[14:]); got != uint32(n) {
			t.Fatalf("frame %d is number %d", n, got)
		}
	}
}
