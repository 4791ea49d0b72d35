package tunio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/tunio/release"
	"sluice/vnet"
)

// patience bounds a wait for what must happen.
const patience = 20 * time.Second

// superTCP4 is an IPv4 TCP super-packet of n bytes after an Ethernet header with the given tags,
// each a TPID and a TCI.
func superTCP4(n int, tags ...uint16) vnet.Frame {
	b := ethernet4(tags...)
	l3 := len(b) - 2
	b = append(b, 0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, vnet.ProtoTCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
	l4 := len(b)
	b = append(b, 0x30, 0x39, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0)
	headers := len(b)
	if length := n - l3 - 2; length < 1<<16 {
		binary.BigEndian.PutUint16(b[l3+4:], uint16(length))
	}
	for len(b) < n {
		b = append(b, byte(len(b)^len(b)>>8^len(b)>>16))
	}
	return vnet.Frame{Head: b, Hdr: vnet.Header{Flags: vnet.NeedsCsum, GSO: vnet.GSOTCPv4,
		HdrLen: uint16(headers), GSOSize: 1448, CsumStart: uint16(l4), CsumOffset: vnet.TCPCsumOffset}}
}

// ethernet4 is an Ethernet header with tags, for IPv4, between two unicast addresses.
func ethernet4(tags ...uint16) []byte {
	b := []byte{2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8}
	for _, v := range append(tags, vnet.EtherTypeIPv4) {
		b = binary.BigEndian.AppendUint16(b, v)
	}
	return b
}

// small is a frame of 60 bytes that contains its number.
func small(id byte) vnet.Frame {
	b := append(ethernet4()[:12], 0x88, 0xb5, id) // local experimental EtherType 1
	return vnet.Frame{Head: append(b, make([]byte, 60-len(b))...)}
}

// one is the only queue of an Open function's result, closed with the test.
func one(t testing.TB, queues []*Queue, err error) *Queue {
	t.Helper()
	need(t, err)
	t.Cleanup(func() { closeAll(queues) })
	if len(queues) != 1 {
		t.Fatalf("%d queues", len(queues))
	}
	return queues[0]
}

// veth makes a pair a, b of devices that carry the greatest frames, up.
func veth(t testing.TB) {
	t.Helper()
	ip(t, "link add name a type veth peer name b")
	for _, d := range []string{"a", "b"} {
		setGSOMaxSize(t, d)
	}
	up(t, "a", "b")
}

// write writes one frame, which must be taken.
func write(t testing.TB, q *Queue, f vnet.Frame) {
	t.Helper()
	// Split into pieces, so that the kernel must gather them.
	k := min(len(f.Head), 200)
	parts := vnet.Frame{Hdr: f.Hdr, Head: f.Head[:k]}
	for rest := f.Head[k:]; len(rest) > 0; rest = rest[min(len(rest), 64000):] {
		parts.Body = append(parts.Body, rest[:min(len(rest), 64000)])
	}
	if n, r, err := q.Transmitter().WriteBatch([]vnet.Frame{parts}); n != 1 {
		t.Fatalf("write: %v, %v", r, err)
	}
}

// read returns the next n frames, and any that came with them.
func read(t testing.TB, q *Queue, n int) (frames []vnet.Frame) {
	t.Helper()
	b := vnet.NewBatch(MaxBatch, 0, 0)
	for deadline := time.Now().Add(patience); len(frames) < n; {
		err := q.ReadBatch(b, time.Until(deadline))
		if err != nil || len(b.Frames) == 0 {
			t.Fatalf("%d of %d frames: %v, discarded %v", len(frames), n, err, b.Discarded)
		}
		for i := range b.Frames {
			frames = append(frames, b.Frames[i].Clone())
		}
	}
	return frames
}

// expect reads as many frames as are wanted and compares all of each but hdr_len,
// which the kernel fills as it likes.
func expect(t testing.TB, q *Queue, want ...vnet.Frame) {
	t.Helper()
	got := read(t, q, len(want))
	if len(got) != len(want) {
		t.Fatalf("%d frames, want %d", len(got), len(want))
	}
	for i := range want {
		g, w := &got[i], &want[i]
		hint := w.Hdr
		hint.HdrLen = g.Hdr.HdrLen
		if g.Hdr != hint {
			t.Errorf("frame %d: header %+v, want %+v", i, g.Hdr, w.Hdr)
		}
		if !bytes.Equal(g.Head, w.Head) {
			t.Errorf("frame %d: %d bytes, begin % x; want %d, % x", i,
				len(g.Head), g.Head[:min(60, len(g.Head))], len(w.Head), w.Head[:60])
		}
	}
}

// openTap makes and opens the tap "t".
func openTap(t testing.TB) *Queue {
	t.Helper()
	queues, err := OpenTap(TapConfig{Name: "t", Queues: 1, Create: true})
	return one(t, queues, err)
}

func openPacketOn(t testing.TB, name string) *Queue {
	t.Helper()
	queues, err := OpenPacket(name, 1)
	return one(t, queues, err)
}

// openMacvtapOver makes and opens the macvtap "m" over a.
func openMacvtapOver(t testing.TB) *Queue {
	t.Helper()
	ip(t, "link add link a name m type macvtap mode passthru")
	setGSOMaxSize(t, "m")
	up(t, "m")
	queues, err := OpenMacvtap("m", 1)
	return one(t, queues, err)
}

// sizes are lengths of frames that one write takes: before Linux 6.6 no more than 17
// pages (alloc_skb_with_frags).
func sizes() []int {
	if !since(6, 6) {
		return []int{1 << 12, 65535}
	}
	return []int{1 << 12, 65535, 65536, 200000, vnet.MaxFrame}
}

// greatest is the last of them.
func greatest() int { return sizes()[len(sizes())-1] }

// since reports whether the kernel is of this release or later.
func since(major, minor int) bool { return release.Since(release.Current(), major, minor) }

func TestPacketCarriesTheGreatestFrame(t *testing.T) {
	newNamespace(t)
	veth(t)
	a, b := openPacketOn(t, "a"), openPacketOn(t, "b")
	for _, n := range sizes() {
		f := superTCP4(n)
		write(t, a, f)
		expect(t, b, f)
		write(t, b, f)
		expect(t, a, f)
	}
}

// hdr_len may not size an allocation of the whole frame, and the kernel takes the frame whatever
// hdr_len it came with.
func TestHdrLenIsOnlyAHint(t *testing.T) {
	newNamespace(t)
	veth(t)
	a, b := openPacketOn(t, "a"), openPacketOn(t, "b")
	tap := openTap(t)
	up(t, "t")
	onTap := openPacketOn(t, "t")
	for _, hdrLen := range []uint16{0, 1, 34, 54, 14546, 65535} {
		f := superTCP4(greatest())
		f.Hdr.HdrLen = hdrLen
		write(t, a, f)
		got := read(t, b, 1)[0]
		if !bytes.Equal(got.Head, f.Head) || got.Hdr.HdrLen > 34+maxTCPLen {
			t.Errorf("hdr_len %d: %d bytes with %d in one piece", hdrLen, len(got.Head), got.Hdr.HdrLen)
		}
		write(t, tap, f)
		expect(t, onTap, f)
	}
}

func TestTapCarriesTheGreatestFrame(t *testing.T) {
	newNamespace(t)
	tap := openTap(t)
	if all := (Offloads{true, true, true, true, since(6, 2)}); tap.Offloads() != all {
		t.Errorf("granted %+v", tap.Offloads())
	}
	up(t, "t")
	device := openPacketOn(t, "t")
	for _, n := range sizes() {
		f := superTCP4(n)
		write(t, tap, f)
		expect(t, device, f)
		if n < vnet.LegacyGSOMaxSize { // the most that a tap hands out
			write(t, device, f)
			expect(t, tap, f)
		}
	}
}

// A GSO type that the header cannot express costs that frame, not the queue.
func TestUntellableFrameIsCounted(t *testing.T) {
	newNamespace(t)
	tap := openTap(t)
	up(t, "t")
	device := openPacketOn(t, "t")
	ufo := superTCP4(4000)
	ufo.Head[23] = vnet.ProtoUDP
	ufo.Hdr.GSO, ufo.Hdr.CsumOffset = vnet.GSOUDP, vnet.UDPCsumOffset
	write(t, tap, ufo)
	write(t, tap, small(1))
	var discarded, frames int
	b := vnet.NewBatch(MaxBatch, 0, 0)
	for deadline := time.Now().Add(patience); frames == 0 && time.Now().Before(deadline); {
		if err := device.ReadBatch(b, patience); err != nil {
			t.Fatal(err)
		}
		discarded += b.Discarded[vnet.DropUnsupportedGSO]
		frames += len(b.Frames)
	}
	if discarded != 1 || frames != 1 {
		t.Errorf("%d discarded, %d frames", discarded, frames)
	}
}

// The frames of a batch before the refused one are sent and counted, those after it are not sent,
// and the errno is that of the refused one.
func TestPartialSendTellsTheRefusedFrame(t *testing.T) {
	newNamespace(t)
	veth(t)
	a, b := openPacketOn(t, "a"), openPacketOn(t, "b")
	overMTU := superTCP4(2000)
	overMTU.Hdr = vnet.Header{}
	badGSO := superTCP4(4000)
	badGSO.Hdr.CsumOffset = 14
	tr := a.Transmitter()
	for _, c := range []struct {
		bad  vnet.Frame
		want vnet.Refusal
		err  error
	}{{overMTU, vnet.TooBig, unix.EMSGSIZE}, {badGSO, vnet.BadGSO, unix.EINVAL}} {
		for at := range 3 {
			frames := []vnet.Frame{small(0), small(1), small(2)}
			frames[at] = c.bad
			sent, r, err := tr.WriteBatch(frames)
			if sent != at || r != c.want || err != c.err {
				t.Errorf("refused at %d: sent %d, %v, %v; want %v, %v", at, sent, r, err, c.want, c.err)
			}
			if sent, r, err := tr.WriteBatch(frames[at+1:]); sent != 2-at {
				t.Errorf("behind it: sent %d, %v, %v", sent, r, err)
			}
			expect(t, b, slices.Delete(frames, at, at+1)...)
		}
	}
}

// More frames than one call takes, and more pieces than it has iovecs.
func TestLongBatchIsSplitAndKeepsItsOrder(t *testing.T) {
	newNamespace(t)
	veth(t)
	a, b := openPacketOn(t, "a"), openPacketOn(t, "b")
	for _, c := range []struct{ frames, pieces int }{{200, 1}, {200, 20}, {5, maxPieces - 2}} {
		frames := make([]vnet.Frame, c.frames)
		for i := range frames {
			f := superTCP4(60 + c.pieces)
			f.Hdr = vnet.Header{}
			binary.BigEndian.PutUint16(f.Head[50:], uint16(i)) // checksum field: not checked
			frames[i].Head = f.Head[:60]
			for k := 60; k < len(f.Head); k++ {
				frames[i].Body = append(frames[i].Body, f.Head[k:k+1])
			}
		}
		if sent, r, err := a.Transmitter().WriteBatch(frames); sent != len(frames) || r != vnet.Accepted {
			t.Fatalf("%+v: sent %d, %v, %v", c, sent, r, err)
		}
		for i, f := range read(t, b, len(frames)) {
			if want := frames[i].AppendTo(nil); !bytes.Equal(f.Head, want) {
				t.Fatalf("%+v: frame %d: % x, want % x", c, i, f.Head[:60], want[:60])
			}
		}
	}
}

func TestMacvtapCarriesTheGreatestFrame(t *testing.T) {
	newNamespace(t)
	veth(t)
	m, b := openMacvtapOver(t), openPacketOn(t, "b")
	if all := (Offloads{true, true, true, true, since(6, 2)}); m.Offloads() != all {
		t.Errorf("granted %+v", m.Offloads())
	}
	for _, n := range sizes() {
		f := superTCP4(n)
		write(t, m, f)
		expect(t, b, f)
		write(t, b, f)
		expect(t, m, f)
	}
}

func TestOuterTagComesBackInBand(t *testing.T) {
	newNamespace(t)
	veth(t)
	a, b := openPacketOn(t, "a"), openPacketOn(t, "b")
	for _, tags := range [][]uint16{
		{vnet.EtherTypeVLAN, 5},
		{vnet.EtherTypeVLAN, 0},
		{vnet.EtherTypeVLAN, 0xefff},
		{vnet.EtherTypeQinQ, 7},
		{vnet.EtherTypeQinQ, 7, vnet.EtherTypeVLAN, 5},
	} {
		for _, n := range []int{4000, min(200000, greatest())} {
			f := superTCP4(n, tags...)
			write(t, a, f)
			got := read(t, b, 1)[0]
			if !bytes.Equal(got.Head, f.Head) {
				t.Errorf("tags %#x: begin % x, want % x", tags, got.Head[:24], f.Head[:24])
			}
			// csum_start counts the tag, hdr_len too.
			if got.Hdr.CsumStart != f.Hdr.CsumStart || got.Hdr.GSO != f.Hdr.GSO ||
				got.Hdr.HdrLen < f.Hdr.HdrLen || got.Hdr.Flags != vnet.NeedsCsum {
				t.Errorf("tags %#x: %+v, want %+v", tags, got.Hdr, f.Hdr)
			}
		}
	}
	plain := small(1) // no tag is left over from the message before
	write(t, a, plain)
	expect(t, b, plain)
}

func TestPacketDoesNotSeeWhatLeaves(t *testing.T) {
	newNamespace(t)
	veth(t)
	for _, queues := range []int{1, 2} {
		seen, err := OpenPacket("a", queues)
		need(t, err)
		a, b := openPacketOn(t, "a"), openPacketOn(t, "b")
		write(t, a, small(1)) // leaves through a: only b sees it
		expect(t, b, small(1))
		batch := vnet.NewBatch(MaxBatch, 0, 0)
		for _, q := range seen {
			if err := q.ReadBatch(batch, 0); err != nil || len(batch.Frames) != 0 {
				t.Errorf("%d queues: saw %d frames, %v", queues, len(batch.Frames), err)
			}
		}
		closeAll(seen)
	}
}

// Two queues share a device by flow: no frame comes twice, no flow to both.
func TestPacketQueuesShareByFlow(t *testing.T) {
	newNamespace(t)
	veth(t)
	b := openPacketOn(t, "b")
	queues, err := OpenPacket("a", 2)
	need(t, err)
	t.Cleanup(func() { closeAll(queues) })
	const flows, each = 32, 3
	for range each {
		for id := range byte(flows) {
			f := superTCP4(60)
			f.Hdr = vnet.Header{}
			binary.BigEndian.PutUint16(f.Head[34:], 1000+uint16(id))
			write(t, b, f)
		}
	}
	home := map[uint16]int{}
	total := 0
	batch := vnet.NewBatch(MaxBatch, 0, 0)
	counts := make([]int, len(queues))
	for deadline := time.Now().Add(patience); total < flows*each && time.Now().Before(deadline); {
		for i, q := range queues {
			if err := q.ReadBatch(batch, time.Millisecond); err != nil {
				t.Fatal(err)
			}
			for j := range batch.Frames {
				port := binary.BigEndian.Uint16(batch.Frames[j].Head[34:])
				if h, ok := home[port]; ok && h != i {
					t.Errorf("flow %d came to both queues", port)
				}
				home[port] = i
				counts[i]++
				total++
			}
		}
	}
	if total != flows*each || counts[0] == 0 || counts[1] == 0 {
		t.Errorf("%v frames, want %d over both", counts, flows*each)
	}
}

func TestTapAndMacvtapTakeSeveralQueues(t *testing.T) {
	newNamespace(t)
	veth(t)
	taps, err := OpenTap(TapConfig{Name: "t", Queues: 3, Create: true})
	need(t, err)
	t.Cleanup(func() { closeAll(taps) })
	up(t, "t")
	device := openPacketOn(t, "t")
	ip(t, "link add link a name m type macvtap mode passthru")
	up(t, "m")
	macvtaps, err := OpenMacvtap("m", 3)
	need(t, err)
	t.Cleanup(func() { closeAll(macvtaps) })
	b := openPacketOn(t, "b")
	for i := range byte(3) {
		write(t, taps[i], small(i))
		expect(t, device, small(i))
		write(t, macvtaps[i], small(i))
		expect(t, b, small(i))
	}
}

func TestKernelDropsAccumulate(t *testing.T) {
	newNamespace(t)
	veth(t)
	a, b := openPacketOn(t, "a"), openPacketOn(t, "b")
	if err := unix.SetsockoptInt(b.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0); err != nil {
		t.Fatal(err)
	}
	const sent = 500
	var last uint64
	for round := 1; round <= 2; round++ {
		for i := range sent {
			write(t, a, small(byte(i)))
		}
		// Received plus dropped is everything, once the kernel's backlog is empty.
		got := uint64(0)
		batch := vnet.NewBatch(MaxBatch, 0, 0)
		deadline := time.Now().Add(patience)
		for got+b.KernelDrops()-last < sent && time.Now().Before(deadline) {
			if err := b.ReadBatch(batch, time.Millisecond); err != nil {
				t.Fatal(err)
			}
			got += uint64(len(batch.Frames))
		}
		drops := b.KernelDrops() - last
		if drops == 0 || got+drops != sent {
			t.Errorf("round %d: %d received, %d dropped of %d", round, got, drops, sent)
		}
		last = b.KernelDrops()
	}
	if n := openTap(t).KernelDrops(); n != 0 {
		t.Errorf("a tap: %d", n)
	}
}

// eventually calls ReadBatch until it answers want.
func eventually(t testing.TB, q *Queue, want error) {
	t.Helper()
	b := vnet.NewBatch(MaxBatch, 0, 0)
	var got error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if got = q.ReadBatch(b, time.Millisecond); got == want {
			return
		}
	}
	t.Fatalf("got %v, want %v", got, want)
}

// gone compares what the queue says about its device being deleted.
func gone(t testing.TB, q *Queue, want bool) {
	t.Helper()
	if got := q.Gone(); got != want {
		t.Errorf("gone: %v, want %v", got, want)
	}
}

// at fails if a tap's device is not the one called name in the test's namespace.
func at(t testing.TB, q *Queue, name string) {
	t.Helper()
	got, ns, err := q.Device()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	there, err := ns.Stat()
	here, err2 := own.Stat()
	if err != nil || err2 != nil || got != name || !os.SameFile(there, here) {
		t.Errorf("the device is %s in %v, want %s in %v (%v, %v)", got, there, name, here, err, err2)
	}
}

// waits fails if ReadBatch, asked for n short waits, answers in less than their
// sum, with anything but want.
func waits(t testing.TB, q *Queue, want error) {
	t.Helper()
	b := vnet.NewBatch(MaxBatch, 0, 0)
	const n, wait = 5, 2 * time.Millisecond
	start := time.Now()
	for range n {
		if err := q.ReadBatch(b, wait); err != want || len(b.Frames) != 0 {
			t.Errorf("%d frames, %v; want %v", len(b.Frames), err, want)
		}
	}
	if d := time.Since(start); d < n*wait {
		t.Errorf("%d calls took %v: a busy loop", n, d)
	}
}

// refused writes a frame that must be refused.
func refused(t testing.TB, q *Queue, want vnet.Refusal) {
	t.Helper()
	n, r, err := q.Transmitter().WriteBatch([]vnet.Frame{small(1), small(2)})
	if n != 0 || r != want {
		t.Errorf("write: %d sent, %v, %v; want %v", n, r, err, want)
	}
}

func TestPacketDeviceDownUpDeleted(t *testing.T) {
	newNamespace(t)
	veth(t)
	a, b := openPacketOn(t, "a"), openPacketOn(t, "b")
	ip(t, "link set dev a down")
	eventually(t, a, vnet.ErrDown)
	waits(t, a, vnet.ErrDown)
	refused(t, a, vnet.Down)
	gone(t, a, false)
	up(t, "a")
	waits(t, a, nil)
	write(t, a, small(1))
	expect(t, b, small(1))
	write(t, b, small(2))
	expect(t, a, small(2))
	ip(t, "link del dev a")
	eventually(t, a, vnet.ErrGone)
	refused(t, a, vnet.Gone)
	gone(t, a, true)
	eventually(t, b, vnet.ErrGone)
}

// The one ENETDOWN may end a drain that had frames. The next ReadBatch reports it, even without a
// bound on the wait, and the remaining frames come after it.
func TestPacketDownIsRememberedAndLosesNoFrame(t *testing.T) {
	newNamespace(t)
	veth(t)
	a, b := openPacketOn(t, "a"), openPacketOn(t, "b")
	write(t, b, small(1))
	// The frame is in the socket once poll says so.
	p := []unix.PollFd{{Fd: int32(a.fd), Events: unix.POLLIN}}
	if err := ppoll(p, &unix.Timespec{Sec: 20}); err != nil || p[0].Revents != unix.POLLIN {
		t.Fatal(p, err)
	}
	ip(t, "link set dev a down")
	batch := vnet.NewBatch(MaxBatch, 0, 0)
	if reads, err := a.drain(batch); reads != 0 || err != nil { // fetches the ENETDOWN
		t.Fatal(reads, err)
	}
	if err := a.ReadBatch(batch, -1); err != vnet.ErrDown {
		t.Errorf("got %v", err)
	}
	expect(t, a, small(1))
	waits(t, a, vnet.ErrDown)
}

// A device that is up again leaves an old ENETDOWN with the socket: neither half may take it for a
// new one.
func TestPacketStaleDownIsNoDown(t *testing.T) {
	newNamespace(t)
	veth(t)
	a, b := openPacketOn(t, "a"), openPacketOn(t, "b")
	ip(t, "link set dev a down")
	up(t, "a")
	waits(t, a, nil)
	ip(t, "link set dev a down")
	up(t, "a")
	write(t, a, small(1))
	expect(t, b, small(1))
}

func TestPacketOpensWhileDown(t *testing.T) {
	newNamespace(t)
	veth(t)
	ip(t, "link set dev a down")
	b := openPacketOn(t, "b")
	for _, queues := range []int{1, 2} {
		as, err := OpenPacket("a", queues)
		if queues > 1 && !since(6, 13) {
			if failed := (*OpError)(nil); !errors.As(err, &failed) || failed.Err != unix.EINVAL ||
				failed.Hint != "ip link set dev a up" {
				t.Errorf("%d queues: %v", queues, err)
			}
			continue
		}
		need(t, err)
		eventually(t, as[0], vnet.ErrDown)
		up(t, "a")
		write(t, as[0], small(1))
		expect(t, b, small(1))
		ip(t, "link set dev a down")
		closeAll(as)
	}
}

func TestPacketDeviceMovedIsGone(t *testing.T) {
	newNamespace(t)
	veth(t)
	a := openPacketOn(t, "a")
	ip(t, "link set dev a netns %s", otherNamespace(t))
	eventually(t, a, vnet.ErrGone)
	refused(t, a, vnet.Gone)
}

func TestTapDownUpMovedDeleted(t *testing.T) {
	newNamespace(t)
	tap := openTap(t)
	refused(t, tap, vnet.Down)
	waits(t, tap, nil)
	up(t, "t")
	device := openPacketOn(t, "t")
	write(t, tap, small(1))
	expect(t, device, small(1))
	ip(t, "link set dev t down")
	refused(t, tap, vnet.Down)
	waits(t, tap, nil) // a tap's reader is not told

	other := otherNamespace(t)
	ip(t, "link set dev t name u netns %s", other)
	enter(t, other)
	gone(t, tap, false)
	at(t, tap, "u")
	ip(t, "link set dev u name t")
	waits(t, tap, nil)
	up(t, "t")
	device = openPacketOn(t, "t")
	write(t, tap, small(2))
	expect(t, device, small(2))
	write(t, device, small(3))
	expect(t, tap, small(3))

	ip(t, "link del dev t")
	eventually(t, tap, vnet.ErrGone)
	refused(t, tap, vnet.Gone)
	gone(t, tap, true)
	if _, _, err := tap.Device(); err != vnet.ErrGone {
		t.Errorf("where it is: %v, want %v", err, vnet.ErrGone)
	}
}

func TestMacvtapDownUpMovedDeleted(t *testing.T) {
	newNamespace(t)
	veth(t)
	m, b := openMacvtapOver(t), openPacketOn(t, "b")
	ip(t, "link set dev m down")
	waits(t, m, nil)
	up(t, "m")
	write(t, b, small(1))
	expect(t, m, small(1))

	here := fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
	f, err := os.Open(here) // keeps this namespace, and its veth pair
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	other := otherNamespace(t)
	ip(t, "link set dev m netns %s", other)
	enter(t, other)
	gone(t, m, false)
	waits(t, m, nil)
	up(t, "m")
	write(t, m, small(2))
	expect(t, b, small(2))

	ip(t, "link del dev m")
	eventually(t, m, vnet.ErrGone)
	waits(t, m, vnet.ErrGone)
	gone(t, m, true)
}

// Without a bound on the wait, Wake makes the queue check whether the device is still there.
func TestWakeTellsThatAMacvtapIsGone(t *testing.T) {
	newNamespace(t)
	veth(t)
	m := openMacvtapOver(t)
	done := make(chan error, 1)
	go func() { done <- m.ReadBatch(vnet.NewBatch(MaxBatch, 0, 0), -1) }()
	ip(t, "link del dev m")
	m.Wake()
	if err := <-done; err != vnet.ErrGone {
		t.Errorf("got %v", err)
	}
}

// Two namespaces have a macvtap of the same index, so both nodes have the same name: each is opened
// for its own namespace, through a private node if necessary.
func TestMacvtapsOfOneIndexAreToldApart(t *testing.T) {
	newNamespace(t)
	other := otherNamespace(t)
	veth(t)
	m, b := openMacvtapOver(t), openPacketOn(t, "b")
	enter(t, other)
	veth(t)
	m2, b2 := openMacvtapOver(t), openPacketOn(t, "b")
	write(t, m, small(1))
	expect(t, b, small(1))
	write(t, m2, small(2))
	expect(t, b2, small(2))
	if left, err := filepath.Glob("/dev/.sluice-*"); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Each error names the object and the cause, has a class, and names a command that fixes it.
func TestOpenErrors(t *testing.T) {
	newNamespace(t)
	veth(t)
	ip(t, "link add link a name m type macvtap mode passthru")
	ip(t, "tuntap add dev tun0 mode tun")
	ip(t, "tuntap add dev plain mode tap")
	ip(t, "tuntap add dev multi mode tap multi_queue vnet_hdr")
	tap := func(name string, queues int) func() ([]*Queue, error) {
		return func() ([]*Queue, error) { return OpenTap(TapConfig{Name: name, Queues: queues}) }
	}
	packet := func(name string, queues int) func() ([]*Queue, error) {
		return func() ([]*Queue, error) { return OpenPacket(name, queues) }
	}
	macvtap := func(name string, queues int) func() ([]*Queue, error) {
		return func() ([]*Queue, error) { return OpenMacvtap(name, queues) }
	}
	hold := func(open func() ([]*Queue, error)) {
		t.Helper()
		queues, err := open()
		need(t, err)
		t.Cleanup(func() { closeAll(queues) })
	}
	ip(t, "tuntap add dev held mode tap")
	ip(t, "tuntap add dev heldmulti mode tap multi_queue")
	hold(tap("held", 1))
	hold(tap("heldmulti", 2))
	hold(macvtap("m", 2))
	for _, c := range []struct {
		name  string
		open  func() ([]*Queue, error)
		class error
		text  string
		hint  string
	}{
		{"missing tap", tap("gone", 1), os.ErrNotExist, "open tap gone: no such device",
			"ip tuntap add dev gone mode tap vnet_hdr"},
		{"missing multi-queue tap", tap("gone", 2), os.ErrNotExist, "open tap gone: no such device",
			"ip tuntap add dev gone mode tap vnet_hdr multi_queue"},
		{"missing netdev", packet("gone", 1), os.ErrNotExist,
			"open packet socket on gone: no such device", "ip -brief link  (lists the devices)"},
		{"missing macvtap", macvtap("gone", 1), os.ErrNotExist, "open macvtap gone: no such device",
			"ip link add link LOWER name gone type macvtap mode passthru"},
		{"TUN as tap", tap("tun0", 1), fs.ErrInvalid, "wrong mode: the device is a TUN, not a TAP",
			"ip link del dev tun0 && ip tuntap add dev tun0 mode tap vnet_hdr"},
		{"TUN as packet", packet("tun0", 1), fs.ErrInvalid, "not an Ethernet device but a tun",
			"a device with link/ether in the output of ip link"},
		{"veth as tap", tap("a", 1), fs.ErrInvalid, "not a tap but a veth",
			"packet:a as the port's device, or another name"},
		{"veth as macvtap", macvtap("a", 1), fs.ErrInvalid, "not a macvtap but a veth",
			"packet:a as the port's device, or another name and " +
				"ip link add link LOWER name a type macvtap mode passthru"},
		{"plain, several queues", tap("plain", 2), fs.ErrInvalid, "lacks the multi_queue flag",
			"queues=1, or ip link del dev plain && " +
				"ip tuntap add dev plain mode tap vnet_hdr multi_queue"},
		{"multi_queue, one queue", tap("multi", 1), fs.ErrInvalid, "has the multi_queue flag",
			"queues=2, or ip link del dev multi && ip tuntap add dev multi mode tap vnet_hdr"},
		{"busy tap", tap("held", 1), unix.EBUSY, "open tap held: the device is busy",
			`grep -ls "iff:.held$" /proc/[0-9]*/fdinfo/*  (names the process)`},
		{"busy multi-queue tap", tap("heldmulti", 2), unix.EBUSY, "the device is busy",
			`grep -ls "iff:.heldmulti$" /proc/[0-9]*/fdinfo/*  (names the process)`},
		{"busy macvtap", macvtap("m", 1), unix.EBUSY, "open macvtap m: the device is busy", ""},
		{"long name", tap("sixteen-bytes-xx", 1), unix.ENAMETOOLONG,
			"the name has 16 bytes, a device's at most 15", "a shorter name"},
		{"no queue", packet("a", 0), fs.ErrInvalid, "0 queues are not within 1 to 256", ""},
		{"many queues", tap("plain", 257), fs.ErrInvalid, "257 queues are not within 1 to 256", ""},
	} {
		// No subtests: they would run on threads in other namespaces.
		queues, err := c.open()
		if err == nil {
			closeAll(queues)
			t.Errorf("%s: no error", c.name)
			continue
		}
		var op *OpError
		if !errors.As(err, &op) || !errors.Is(err, c.class) ||
			!strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: got %q, want %q and class %v", c.name, err, c.text, c.class)
			continue
		}
		if c.hint != "" && op.Hint != c.hint {
			t.Errorf("%s: hint %q, want %q", c.name, op.Hint, c.hint)
		}
	}
}

// The commands of the hints are right: what they make can be opened.
func TestHintsMend(t *testing.T) {
	newNamespace(t)
	ip(t, "tuntap add dev t mode tap multi_queue")
	for _, c := range []TapConfig{
		{Name: "t", Queues: 1}, {Name: "t", Queues: 2}, {Name: "u", Queues: 1},
	} {
		_, err := OpenTap(c)
		var op *OpError
		if !errors.As(err, &op) {
			t.Fatalf("%+v: %v", c, err)
		}
		_, commands, ok := strings.Cut(op.Hint, "or ")
		if !ok {
			commands = op.Hint
		}
		for _, command := range strings.Split(commands, " && ") {
			ip(t, "%s", strings.TrimPrefix(command, "ip "))
		}
		queues, err := OpenTap(c)
		if err != nil {
			t.Fatalf("%+v: after %s: %v", c, commands, err)
		}
		closeAll(queues)
	}
}

func TestMissingCapabilityIsNamed(t *testing.T) {
	newNamespace(t)
	// The capabilities are the thread's, which ends with the test.
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	need(t, unix.Capget(&hdr, &data[0]))
	data[0].Effective &^= 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_NET_RAW
	need(t, unix.Capset(&hdr, &data[0]))
	_, err := OpenTap(TapConfig{Name: "t", Queues: 1, Create: true})
	if !errors.Is(err, os.ErrPermission) || !strings.Contains(fmt.Sprint(err), "CAP_NET_ADMIN is") {
		t.Errorf("tap: %v", err)
	}
	_, err = OpenPacket("lo", 1)
	if !errors.Is(err, os.ErrPermission) || !strings.Contains(fmt.Sprint(err), "CAP_NET_RAW is") {
		t.Errorf("packet: %v", err)
	}
}

// A tap that an Open function made is gone with its last queue.
func TestClosedTapIsGone(t *testing.T) {
	newNamespace(t)
	tap := openTap(t)
	if _, found, err := lookup(opTap, "t"); err != nil || !found {
		t.Fatal(found, err)
	}
	if err := tap.Close(); err != nil {
		t.Fatal(err)
	}
	if _, found, err := lookup(opTap, "t"); err != nil || found {
		t.Fatal(found, err)
	}
}
