package tunio_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/tunio"
	"sluice/tunio/tuntest"
	"sluice/vnet"
)

// patience bounds a ReadBatch that is expected to find something.
const patience = 20 * time.Second

// pattern is n bytes that depend on their position.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return b
}

// pieces cuts b into pieces of n bytes.
func pieces(b []byte, n int) (p [][]byte) {
	for len(b) > 0 {
		k := min(n, len(b))
		p = append(p, b[:k])
		b = b[k:]
	}
	return p
}

func batch() *vnet.Batch { return vnet.NewBatch(tunio.MaxBatch, 0, 0) }

func TestReadBatchReturnsFramesInOrderAndBounded(t *testing.T) {
	q, peer := tuntest.New(t)
	const sent = tunio.MaxBatch + 6
	for i := range sent {
		f := vnet.Frame{Hdr: vnet.Header{GSOSize: uint16(i)}, Head: pattern(60 + i)}
		if err := peer.Write(&f); err != nil {
			t.Fatal(err)
		}
	}
	b := batch()
	n := 0
	for _, want := range []int{tunio.MaxBatch, 6} {
		if err := q.ReadBatch(b, 0); err != nil {
			t.Fatal(err)
		}
		if len(b.Frames) != want {
			t.Fatalf("got %d frames, want %d", len(b.Frames), want)
		}
		for i := range b.Frames {
			f := &b.Frames[i]
			if f.Hdr != (vnet.Header{GSOSize: uint16(n)}) || !bytes.Equal(f.Head, pattern(60+n)) ||
				f.Body != nil || cap(f.Head) != len(f.Head) {
				t.Fatalf("frame %d: %+v, %d bytes", n, f.Hdr, len(f.Head))
			}
			n++
		}
	}
	if err := q.ReadBatch(b, 0); err != nil || len(b.Frames) != 0 {
		t.Fatalf("nothing left, got %d frames, %v", len(b.Frames), err)
	}
}

func TestReadBatchStopsWhereTheGreatestFrameMayNotFit(t *testing.T) {
	q, peer := tuntest.New(t)
	big := vnet.Frame{Hdr: vnet.Header{Flags: vnet.NeedsCsum, GSO: vnet.GSOTCPv4, GSOSize: 1448},
		Head: pattern(vnet.MaxFrame)}
	const sent = 5
	done := make(chan error, 1)
	go func() {
		var err error
		for range sent {
			err = errors.Join(err, peer.Write(&big))
		}
		done <- err
	}()
	b := batch()
	for got := 0; got < sent; {
		if err := q.ReadBatch(b, patience); err != nil || len(b.Frames) == 0 {
			t.Fatalf("after %d frames: %d more, %v", got, len(b.Frames), err)
		}
		if len(b.Frames) > 3 {
			t.Errorf("%d frames of %d bytes do not fit in 2 MiB", len(b.Frames), vnet.MaxFrame)
		}
		for i := range b.Frames {
			if b.Frames[i].Hdr != big.Hdr || !bytes.Equal(b.Frames[i].Head, big.Head) {
				t.Fatalf("frame %d differs", got)
			}
			got++
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestReadBatchRespectsTheBatchsOwnBound(t *testing.T) {
	q, peer := tuntest.New(t)
	f := vnet.Frame{Head: pattern(60)}
	for range 5 {
		if err := peer.Write(&f); err != nil {
			t.Fatal(err)
		}
	}
	b := vnet.NewBatch(3, 0, 0)
	for _, want := range []int{3, 2} {
		if err := q.ReadBatch(b, 0); err != nil || len(b.Frames) != want {
			t.Fatalf("got %d frames, %v; want %d", len(b.Frames), err, want)
		}
	}
}

// P17: less than a header is counted, a header with less than an Ethernet header
// is a frame, which Check drops as a runt. The queue goes on.
func TestHostileLengths(t *testing.T) {
	q, peer := tuntest.New(t)
	b := batch()
	for n := range vnet.HeaderLen {
		if err := peer.WriteRaw(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		if err := q.ReadBatch(b, patience); err != nil {
			t.Fatal(err)
		}
		want := [vnet.NumDrops]int{vnet.DropBadHeader: 1}
		if len(b.Frames) != 0 || b.Discarded != want {
			t.Errorf("%d bytes: %d frames, discarded %v", n, len(b.Frames), b.Discarded)
		}
	}
	for n := range vnet.EthLen {
		if err := peer.WriteRaw(make([]byte, vnet.HeaderLen+n)); err != nil {
			t.Fatal(err)
		}
		if err := q.ReadBatch(b, patience); err != nil || len(b.Frames) != 1 {
			t.Fatalf("%d bytes: %d frames, %v", n, len(b.Frames), err)
		}
		var l2 vnet.L2
		if d := b.Frames[0].Check(&l2); d != vnet.DropRunt || len(b.Frames[0].Head) != n {
			t.Errorf("%d bytes: %v of %d bytes", n, d, len(b.Frames[0].Head))
		}
	}
}

// The longest frame is taken. A slightly longer one is delivered for Check to drop; one that fills
// the buffer is counted.
func TestTooLongIsNotCutShort(t *testing.T) {
	q, peer := tuntest.New(t)
	b := batch()
	for _, c := range []struct {
		n    int
		want vnet.Drop
	}{
		{vnet.MaxFrame, vnet.Keep},
		{vnet.MaxFrame + 1, vnet.DropTooLong},
		{vnet.MaxFrame + 200, vnet.DropTruncated},
		{60, vnet.Keep},
	} {
		if err := peer.WriteRaw(make([]byte, vnet.HeaderLen+c.n)); err != nil {
			t.Fatal(err)
		}
		if err := q.ReadBatch(b, patience); err != nil {
			t.Fatal(err)
		}
		var l2 vnet.L2
		got := vnet.DropTruncated
		if len(b.Frames) == 1 {
			got = b.Frames[0].Check(&l2)
		} else if b.Discarded != [vnet.NumDrops]int{vnet.DropTruncated: 1} {
			t.Errorf("%d bytes: discarded %v", c.n, b.Discarded)
		}
		if got != c.want {
			t.Errorf("%d bytes: got %v, want %v", c.n, got, c.want)
		}
	}
}

func TestDiscardsAreOfOneBatch(t *testing.T) {
	q, peer := tuntest.New(t)
	b := batch()
	f := vnet.Frame{Head: pattern(60)}
	if err := errors.Join(peer.WriteRaw([]byte{1}), peer.Write(&f), peer.WriteRaw([]byte{1, 2}),
		peer.Write(&f)); err != nil {
		t.Fatal(err)
	}
	if err := q.ReadBatch(b, 0); err != nil {
		t.Fatal(err)
	}
	if len(b.Frames) != 2 || b.Discarded != [vnet.NumDrops]int{vnet.DropBadHeader: 2} {
		t.Errorf("%d frames, discarded %v", len(b.Frames), b.Discarded)
	}
	for i := range b.Frames {
		if !bytes.Equal(b.Frames[i].Head, f.Head) {
			t.Errorf("frame %d: %x", i, b.Frames[i].Head)
		}
	}
	if err := q.ReadBatch(b, 0); err != nil || b.Discarded != [vnet.NumDrops]int{} {
		t.Errorf("discarded %v, %v", b.Discarded, err)
	}
}

// Bytes of an earlier header must not appear in the next one.
func TestHeadersDoNotLeakIntoTheNextFrame(t *testing.T) {
	q, peer := tuntest.New(t)
	tr := q.Transmitter()
	frames := []vnet.Frame{
		{Hdr: vnet.Header{Flags: 0xff, GSO: vnet.GSOTCPv4 | vnet.GSOECN, HdrLen: 66, GSOSize: 1448,
			CsumStart: 34, CsumOffset: 16}, Head: pattern(3000)},
		{Head: pattern(60)},
	}
	want := [][]byte{
		{3, 0x81, 66, 0, 0xa8, 5, 34, 0, 16, 0, 1, 0},
		{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0},
	}
	for i := range frames {
		if n, r, err := tr.WriteBatch(frames[i : i+1]); n != 1 || r != vnet.Accepted || err != nil {
			t.Fatal(n, r, err)
		}
		msg, err := peer.ReadRaw()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(msg[:vnet.HeaderLen], want[i]) || !bytes.Equal(msg[12:], frames[i].Head) {
			t.Errorf("frame %d: header % x, want % x", i, msg[:vnet.HeaderLen], want[i])
		}
	}
	// The same for the reading side: a batch's slots are used again.
	b := batch()
	for _, h := range []vnet.Header{frames[0].Hdr, {}} {
		if err := peer.Write(&vnet.Frame{Hdr: h, Head: pattern(60)}); err != nil {
			t.Fatal(err)
		}
		if err := q.ReadBatch(b, 0); err != nil || len(b.Frames) != 1 || b.Frames[0].Hdr != h {
			t.Fatalf("got %+v, %v; want %+v", b.Frames, err, h)
		}
	}
}

func TestWriteGathersPieces(t *testing.T) {
	q, peer := tuntest.New(t)
	tr := q.Transmitter()
	whole := pattern(40000)
	for _, c := range []struct {
		name string
		f    vnet.Frame
	}{
		{"head only", vnet.Frame{Head: whole}},
		{"64 pieces", vnet.Frame{Head: whole[:66], Body: pieces(whole[66:], 624)}},
		{"empty pieces", vnet.Frame{Head: whole[:66],
			Body: [][]byte{nil, whole[66:67], {}, whole[67:], nil}}},
		{"1022 pieces", vnet.Frame{Head: whole[:142], Body: pieces(whole[142:], 39)}},
	} {
		if n, r, err := tr.WriteBatch([]vnet.Frame{c.f}); n != 1 || r != vnet.Accepted || err != nil {
			t.Fatalf("%s: %d, %v, %v", c.name, n, r, err)
		}
		if f, err := peer.Read(); err != nil || !bytes.Equal(f.Head, whole) {
			t.Errorf("%s: %d bytes, %v", c.name, len(f.Head), err)
		}
	}
	f := vnet.Frame{Head: whole[:66], Body: pieces(whole[66:66+1023], 1)}
	n, r, err := tr.WriteBatch([]vnet.Frame{{Head: whole[:60]}, f})
	if n != 1 || r != vnet.TooBig || err != unix.EMSGSIZE {
		t.Errorf("1023 pieces: %d, %v, %v", n, r, err)
	}
	if f, err := peer.Read(); err != nil || !bytes.Equal(f.Head, whole[:60]) || !peer.Empty() {
		t.Errorf("the frame before it: %d bytes, %v", len(f.Head), err)
	}
}

func TestWriteBatchStopsAtTheFrameWithoutRoom(t *testing.T) {
	q, peer := tuntest.New(t)
	tr := q.Transmitter()
	frames := make([]vnet.Frame, 64)
	for i := range frames {
		frames[i].Head = pattern(200000 + i)
	}
	sent, r, err := tr.WriteBatch(frames)
	if r != vnet.Full || err != unix.EAGAIN || sent == 0 || sent == len(frames) {
		t.Fatalf("got %d, %v, %v", sent, r, err)
	}
	tr.WaitRoom(0)
	for i := range sent {
		if f, err := peer.Read(); err != nil || len(f.Head) != 200000+i {
			t.Fatalf("frame %d: %d bytes, %v", i, len(f.Head), err)
		}
	}
	if !peer.Empty() {
		t.Error("more frames came than were counted as sent")
	}
	tr.WaitRoom(patience) // there is room: it must not wait
	if n, r, err := tr.WriteBatch(frames[sent : sent+1]); n != 1 || r != vnet.Accepted || err != nil {
		t.Errorf("after reading: %d, %v, %v", n, r, err)
	}
}

func TestReadBatchEnds(t *testing.T) {
	q, peer := tuntest.New(t)
	b := batch()

	start := time.Now()
	const wait = 5 * time.Millisecond
	if err := q.ReadBatch(b, wait); err != nil || time.Since(start) < wait {
		t.Errorf("deadline: %v after %v", err, time.Since(start))
	}

	q.Wake() // before
	if err := q.ReadBatch(b, -1); err != nil || len(b.Frames) != 0 {
		t.Errorf("wake before: %v", err)
	}

	done := make(chan error, 1)
	go func() { done <- q.ReadBatch(b, -1) }()
	q.Wake() // before or during: both end it
	if err := <-done; err != nil {
		t.Errorf("wake: %v", err)
	}

	go func() { done <- q.ReadBatch(b, patience) }()
	if err := peer.Write(&vnet.Frame{Head: pattern(60)}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || len(b.Frames) != 1 {
		t.Errorf("data: %d frames, %v", len(b.Frames), err)
	}

	go func() { done <- q.ReadBatch(b, -1) }()
	peer.Close()
	if err := <-done; err != vnet.ErrGone {
		t.Errorf("hang-up: %v", err)
	}
}

func TestWakeAndCloseMayMeet(t *testing.T) {
	q, _ := tuntest.New(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 1000 {
			q.Wake()
			q.KernelDrops()
		}
	}()
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	if err := q.Close(); err != nil {
		t.Errorf("second: %v", err)
	}
	<-done
}

// pair is two queues that read what the other writes.
func pair(t *testing.T, headerLen int) (ends [2]*tunio.Queue) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, fd := range fds {
		if ends[i], err = tunio.Adopt(fd, "pair", headerLen); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ends[i].Close() })
	}
	return ends
}

// The legacy header, which packet sockets have before Linux 6.4.
func TestTenByteHeaders(t *testing.T) {
	ends := pair(t, vnet.MinHeaderLen)
	f := vnet.Frame{Head: pattern(3000), Hdr: vnet.Header{Flags: vnet.NeedsCsum,
		GSO: vnet.GSOTCPv6, HdrLen: 86, GSOSize: 1428, CsumStart: 54, CsumOffset: 16}}
	if n, _, err := ends[0].Transmitter().WriteBatch([]vnet.Frame{f, f}); n != 2 {
		t.Fatal(n, err)
	}
	b := batch()
	if err := ends[1].ReadBatch(b, patience); err != nil || len(b.Frames) != 2 {
		t.Fatalf("%d frames, %v", len(b.Frames), err)
	}
	for i := range b.Frames {
		if b.Frames[i].Hdr != f.Hdr || !bytes.Equal(b.Frames[i].Head, f.Head) {
			t.Errorf("frame %d: %+v, %d bytes", i, b.Frames[i].Hdr, len(b.Frames[i].Head))
		}
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	ends := pair(t, vnet.HeaderLen)
	whole := pattern(9000)
	frames := make([]vnet.Frame, 8)
	for i := range frames {
		frames[i] = vnet.Frame{Head: whole[:66], Body: pieces(whole[66:], 1448)}
	}
	tr, b := ends[0].Transmitter(), batch()
	got := 0
	n := testing.AllocsPerRun(100, func() {
		if n, _, err := tr.WriteBatch(frames); n != len(frames) {
			t.Fatal(n, err)
		}
		if err := ends[1].ReadBatch(b, patience); err != nil {
			t.Fatal(err)
		}
		got += len(b.Frames)
		tr.WaitRoom(0)
	})
	if n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
	if want := 101 * len(frames); got != want {
		t.Errorf("%d frames, want %d", got, want)
	}
}
