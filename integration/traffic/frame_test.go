package traffic

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
	"sluice/tunio"
	"sluice/tunio/release"
	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// tapped is a netdev of a host under the eyes and hands of a test: it sends frames
// out of it as they are, virtio-net header included, and sees what it receives.
type tapped struct {
	t    testing.TB
	q    *tunio.Queue
	tx   *tunio.Transmitter
	rx   *vnet.Batch
	seen []vnet.Frame // of testers, since the last forget
}

func tapInto(t testing.TB, ns *netns.Namespace, device string) *tapped {
	t.Helper()
	var queues []*tunio.Queue
	err := ns.Do(func() (err error) {
		queues, err = tunio.OpenPacket(device, 1)
		return err
	})
	netnstest.Need(t, err)
	q := queues[0]
	t.Cleanup(func() { q.Close() })
	return &tapped{t: t, q: q, tx: q.Transmitter(), rx: vnet.NewBatch(tunio.MaxBatch, 0, 0)}
}

// openTap opens a TAP that exists, as a virtual machine would, until the test ends.
func openTap(t testing.TB, ns *netns.Namespace, name string) *tunio.Queue {
	t.Helper()
	var queues []*tunio.Queue
	err := ns.Do(func() (err error) {
		queues, err = tunio.OpenTap(tunio.TapConfig{Name: name, Queues: 1})
		return err
	})
	netnstest.Need(t, err)
	t.Cleanup(func() { queues[0].Close() })
	return queues[0]
}

// since reports whether the kernel is of this release or later.
func since(major, minor int) bool { return release.Since(release.Current(), major, minor) }

// taken is n, or as much of it as this kernel takes of a test's frame.
func taken(n int) int {
	if !since(6, 6) {
		return min(n, 60_000)
	}
	return n
}

// send sends a frame. A test whose frame must be longer than the kernel takes ends
// there.
func (d *tapped) send(f vnet.Frame) {
	d.t.Helper()
	if f.Len() > vnet.LegacyGSOMaxSize && !since(6, 6) {
		d.t.Skip("a packet socket takes frames of more than 17 pages since Linux 6.6")
	}
	if _, r, err := d.tx.WriteBatch([]vnet.Frame{f}); err != nil {
		d.t.Fatalf("send %d bytes: %v, %v", f.Len(), r, err)
	}
}

// look receives what is there, waiting a little for something to be.
func (d *tapped) look() {
	d.t.Helper()
	if err := d.q.ReadBatch(d.rx, 20*time.Millisecond); err != nil && err != vnet.ErrDown {
		d.t.Fatal(err)
	}
	for i := range d.rx.Frames {
		if f := &d.rx.Frames[i]; fromTester(f) {
			d.seen = append(d.seen, f.Clone())
		}
	}
}

// forget forgets what was seen, and what is there to be seen.
func (d *tapped) forget() {
	for {
		if d.look(); len(d.rx.Frames) == 0 {
			break
		}
	}
	d.seen = nil
}

// until looks until cond is true of what was seen.
func (d *tapped) until(what string, cond func() bool) {
	d.t.Helper()
	for end := time.Now().Add(patience); !cond(); d.look() {
		if time.Now().After(end) {
			d.t.Fatalf("%s: not after %v; seen: %v", what, patience, lengths(d.seen))
		}
	}
}

// lengths are the frames' lengths.
func lengths(frames []vnet.Frame) (n []int) {
	for i := range frames {
		n = append(n, frames[i].Len())
	}
	return n
}

// longest is the greatest of the frames' lengths.
func longest(frames []vnet.Frame) (n int) {
	for i := range frames {
		n = max(n, frames[i].Len())
	}
	return n
}

// testerMAC is the source of all frames that tests make: that of vnettest.
var testerMAC = vnettest.Super(vnettest.Spec{}).Head[6:12]

func fromTester(f *vnet.Frame) bool {
	return len(f.Head) >= vnet.EthLen && bytes.Equal(f.Head[6:12], testerMAC)
}

// super is a TCP super-packet with n bytes of payload, in the form that this
// kernel's senders use.
func super(v6 bool, n, gsoSize int, tags ...uint16) vnettest.Spec {
	return vnettest.Spec{
		V6: v6, Payload: vnettest.Pattern(n), GSOSize: gsoSize, Tags: tags, Form: vnet.FormHBH,
		ID: 7, Seq: 1, TCPFlags: vnettest.ACK | vnettest.PSH, Window: 500,
		TCPOptions: vnettest.Timestamps,
	}
}

// cross sends the frame of s out of one netdev and returns what comes of it at the
// other, once all of its payload is there, and in order.
func cross(from, to *tapped, s vnettest.Spec) []vnet.Frame {
	to.t.Helper()
	to.forget()
	from.send(vnettest.Super(s))
	return to.whole(s)
}

// whole looks until all of the payload of the frame of s is there, and returns what
// it came in.
func (d *tapped) whole(s vnettest.Spec) []vnet.Frame {
	d.t.Helper()
	d.until("the payload to arrive", func() bool {
		return payload(d.t, d.seen, s) >= len(s.Payload)
	})
	return d.seen
}

// tryCross is cross where the outcome is not known to be good: false if a small
// frame sent behind it arrives alone.
func tryCross(from, to *tapped, s vnettest.Spec) ([]vnet.Frame, bool) {
	to.t.Helper()
	to.forget()
	from.send(vnettest.Super(s))
	from.send(vnet.Frame{Head: marker()})
	to.until("the marker to arrive", func() bool {
		n := len(to.seen)
		return n > 0 && bytes.Equal(to.seen[n-1].Head, marker())
	})
	frames := to.seen[:len(to.seen)-1]
	return frames, len(frames) > 0
}

// marker is a small frame for everybody, of an EtherType for experiments (IEEE
// 802, 9.2.3).
func marker() []byte {
	b := bytes.Repeat([]byte{0xff}, 6)
	b = append(b, testerMAC...)
	b = binary.BigEndian.AppendUint16(b, 0x88b5)
	return append(b, "marker"...)
}

// payload checks the frames that came of the frame of s, each for itself, and
// returns how much of its payload they hold: all bytes must be right, where the
// sequence number says that they belong, and every checksum that is there too.
func payload(t testing.TB, frames []vnet.Frame, s vnettest.Spec) (total int) {
	t.Helper()
	for i := range frames {
		f := &frames[i]
		var l2 vnet.L2
		var p vnet.Packet
		d := f.Check(&l2)
		if d == vnet.Keep {
			d = vnet.ParseNetwork(f, &l2, &p)
		}
		if d != vnet.Keep {
			t.Fatalf("frame %d of %v: %v", i, lengths(frames), d)
		}
		tcp := f.Head[p.L4:]
		data := tcp[int(tcp[12]>>4)*4:]
		at := int(binary.BigEndian.Uint32(tcp[4:]) - s.Seq)
		if at+len(data) > len(s.Payload) || !bytes.Equal(data, s.Payload[at:at+len(data)]) {
			t.Fatalf("frame %d of %v: the payload at %d differs", i, lengths(frames), at)
		}
		if f.Hdr.Flags&vnet.NeedsCsum == 0 {
			if sum := vnettest.Sum(append(pseudo(f.Head, &p), tcp...)); sum != 0xffff {
				t.Fatalf("frame %d of %v: the checksum is wrong: sum %#x", i, lengths(frames), sum)
			}
		}
		total += len(data)
	}
	return total
}

// pseudo is the pseudo-header of a packet (RFC 9293, 3.1; RFC 8200, 8.1).
func pseudo(b []byte, p *vnet.Packet) []byte {
	addresses := b[p.L3+12 : p.L3+20]
	if p.V6 {
		addresses = b[p.L3+8 : p.L3+40]
	}
	h := append([]byte{}, addresses...)
	h = binary.BigEndian.AppendUint32(h, uint32(len(b)-p.L4))
	return append(h, 0, 0, 0, p.Proto)
}
