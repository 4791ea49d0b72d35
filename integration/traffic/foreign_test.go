package traffic

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// foreignMax is the gso_max_size of the ports that cut.
const foreignMax = 20000

// A way out of the switch in TestForeignFrames, and the device at its end.
type wayOut struct {
	device string
	how    treatment
	*tapped
}

// treatment is what a way out has the switch do with a long super-packet.
type treatment string

const (
	whole      treatment = "whole"
	chunks     treatment = "chunks"
	segments   treatment = "segments"
	noOffloads treatment = "no offloads"
)

// keys are those of a port with that treatment.
func keys(how treatment) string {
	switch how {
	case chunks:
		return fmt.Sprintf(",gso_max_size=%d", foreignMax)
	case segments:
		return fmt.Sprintf(",gso_max_size=%d,oversize=segment", foreignMax)
	case noOffloads:
		return ",offload=none"
	}
	return fmt.Sprintf(",gso_max_size=%d,gso_ipv4_max_size=%[1]d", big)
}

// foreign is a frame as some sender makes it.
type foreign struct {
	name string
	// spec is what the sender means.
	spec vnettest.Spec
	edit func(*vnet.Frame) // what it does
	// drop is why the switch drops it.
	drop vnet.Drop
	// refused: the kernel does not take it from a virtual machine, and so the switch
	// never sees it.
	refused bool
	// lost: a host's kernel may lose it, and so the switch never sees it.
	lost bool
	// sum is what the frame, without GSO type, is when its checksum is finished, where
	// that is not what spec says.
	sum func(vnet.Frame) vnet.Frame
	// summed: the switch finishes the checksum in every case.
	summed bool
}

// TestForeignFrames: frames as other senders make them arrive right, or are dropped by
// name, and are never sent on wrong. They come in through a packet port and a TAP from a
// host, and from a virtual machine, which may do more than a host's kernel lets through.
// They leave through packet ports and TAPs, whole, in chunks, in segments and without
// offloads.
func TestForeignFrames(t *testing.T) {
	b := newBed(t)
	x := b.cabled("a", netns.Link{GSO: big})
	far := b.Namespace("far")
	far.Silent()
	b.built()
	must(t, b.sw, "ip", "tuntap", "add", "dev", "tapV", "mode", "tap", "vnet_hdr")
	fromHost, fromMachine := rawSocket(t, x.Namespace, "eth0"), rawTap(t, b.sw, "tapV")
	b.sw.SetLink("tapV", netns.Link{})
	ports := []string{"a=packet:vA", "h=tap:tapH,netns=" + x.Name, "v=packet:tapV"}
	var out []*wayOut
	for _, how := range []treatment{whole, chunks, segments, noOffloads} {
		n := len(out)
		packet, tap := fmt.Sprintf("p%d", n), fmt.Sprintf("t%d", n)
		b.Veth(far, packet, b.sw, "v"+packet, netns.Link{GSO: big})
		ports = append(ports,
			fmt.Sprintf("%s=packet:v%[1]s%s", packet, keys(how)),
			fmt.Sprintf("%s=tap:%[1]s,netns=%s%s", tap, far.Name, keys(how)))
		out = append(out, &wayOut{device: packet, how: how}, &wayOut{device: tap, how: how})
	}
	b.built()
	s := run(t, b.sw, ports...)
	for _, w := range out {
		w.tapped = tapInto(t, far, w.device)
	}
	fromTap := rawSocket(t, x.Namespace, "tapH")
	drops := map[string]uint64{} // at the virtual machine's port
	try := func(t *testing.T, c *foreign, send rawSender, machine bool) {
		sent := vnettest.Super(c.spec)
		c.edit(&sent)
		err := send(&sent)
		switch {
		case !machine: // a host's kernel loses what it does not like, in one way or another
		case (err != nil) != c.refused:
			t.Errorf("the kernel says %v, want refused %v", err, c.refused)
		case c.drop != vnet.Keep: // of each copy, as it is flooded
			drops[c.drop.String()] += uint64(len(ports) - 1)
		}
		end := vnet.Frame{Head: marker()}
		if err := send(&end); err != nil {
			t.Fatal(err)
		}
		for _, w := range out {
			w.t = t
			w.until("the marker to arrive at "+w.device, func() bool {
				n := len(w.seen)
				return n > 0 && bytes.Equal(w.seen[n-1].Head, end.Head)
			})
			got := w.seen[:len(w.seen)-1]
			w.seen = nil
			if len(got) == 0 && (c.refused || c.drop != vnet.Keep || c.lost && !machine) {
				continue
			}
			c.check(t, w, &sent, got)
		}
	}
	// One way in after the other: an address that goes back and forth is a loop's.
	for _, c := range foreignFrames() {
		t.Run("from a host/"+c.name, func(t *testing.T) { try(t, &c, fromHost, false) })
	}
	for _, c := range foreignFrames() {
		t.Run("from a machine/"+c.name, func(t *testing.T) { try(t, &c, fromMachine, true) })
	}
	for _, c := range foreignFrames() {
		if len(c.spec.Payload) < vnet.LegacyGSOMaxSize { // the longest that a TAP hands out
			t.Run("from a TAP/"+c.name, func(t *testing.T) { try(t, &c, fromTap, false) })
		}
	}
	p := s.stop()
	for reason, n := range drops {
		if got := p.Port("v").Drops.Ingress[reason]; got != n {
			t.Errorf("%d drops as %s, want %d", got, reason, n)
		}
	}
	for _, name := range []string{"a", "h", "v"} {
		port := *p.Port(name)
		for reason := range dropped(port) {
			if _, ok := drops[reason]; !ok {
				t.Errorf("port %s: drops %v, want none as %s", name, dropped(port), reason)
			}
		}
	}
}

// rawSender sends a frame with its virtio-net header as it is.
type rawSender func(*vnet.Frame) error

// rawSocket sends out of a netdev, as a program on the host does. Like rawTap it shares
// nothing with package tunio, which mends headers.
func rawSocket(t *testing.T, ns *netns.Namespace, device string) rawSender {
	t.Helper()
	index := link(t, ns, device).Index
	return opened(t, ns, vnet.MinHeaderLen, func() (int, error) {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = errors.Join(
				unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
				unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: index}))
		}
		return fd, err
	})
}

// rawTap sends into a TAP that exists, as a virtual machine does.
func rawTap(t *testing.T, ns *netns.Namespace, name string) rawSender {
	t.Helper()
	return opened(t, ns, vnet.HeaderLen, func() (int, error) {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, err
		}
		ifr, err := unix.NewIfreq(name)
		if err != nil {
			return fd, err
		}
		ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		return fd, errors.Join(
			unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr),
			unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, vnet.HeaderLen),
			unix.IoctlSetPointerInt(fd, unix.TUNSETVNETLE, 1))
	})
}

// opened is a sender with a descriptor that open opens in ns, and headers of headerLen
// bytes. It waits for memory: a long frame needs pages of 32 KiB.
func opened(t *testing.T, ns *netns.Namespace, headerLen int, open func() (int, error)) rawSender {
	t.Helper()
	fd := -1
	err := ns.Do(func() (err error) {
		fd, err = open()
		return err
	})
	t.Cleanup(func() { unix.Close(fd) })
	netnstest.Need(t, err)
	return func(f *vnet.Frame) error {
		b := make([]byte, headerLen)
		f.Hdr.Encode(b)
		b = f.AppendTo(b)
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			_, err := unix.Write(fd, b)
			if err == unix.EINTR || err == unix.ENOBUFS && time.Now().Before(end) {
				continue
			}
			return err
		}
	}
}

// check holds what arrived of a frame against what should.
func (c *foreign) check(t *testing.T, w *wayOut, sent *vnet.Frame, got []vnet.Frame) {
	t.Helper()
	if c.drop != vnet.Keep {
		t.Errorf("%v arrived at %s, want it dropped as %v", lengths(got), w.device, c.drop)
		return
	}
	var want []vnet.Frame
	super, single := c.spec.GSOSize > 0, c.spec
	single.GSOSize = 0
	one := super && len(c.spec.Payload) <= c.spec.GSOSize
	switch how := w.how; {
	case !super && c.sum != nil && (how == noOffloads || c.summed):
		want = []vnet.Frame{c.sum(*sent)}
	case !super && how != noOffloads:
		want = []vnet.Frame{*sent}
	case how == noOffloads, how == segments && sent.Len() >= foreignMax:
		if !super {
			c.spec.GSOSize = max(1, len(c.spec.Payload))
		}
		for _, p := range vnettest.Segments(c.spec) {
			want = append(want, vnet.Frame{Head: p})
		}
	case one:
		want = []vnet.Frame{vnettest.Super(single)}
	case how == whole, sent.Len() < foreignMax:
		want = []vnet.Frame{*sent}
		if sent.Hdr.Flags&vnet.NeedsCsum == 0 && len(got) == 1 && got[0].Hdr.Flags&vnet.NeedsCsum != 0 {
			// The kernel asks for the checksum of what leaves a netdev (tcp4_gso_segment).
			c.spec.Csum = vnettest.Seed
			want = []vnet.Frame{vnettest.Super(c.spec)}
		}
	default:
		headers := vnettest.Super(c.spec).Hdr.HdrLen
		segs := (foreignMax - 1 - int(headers)) / c.spec.GSOSize
		want = vnettest.Chunks(c.spec, segs, vnet.FormNone)
	}
	if len(got) != len(want) {
		t.Errorf("%s (%s): arrived %v, want %v", w.device, w.how, lengths(got), lengths(want))
		return
	}
	for i := range got {
		if d := difference(&got[i], &want[i]); d != "" {
			t.Errorf("%s (%s): frame %d of %d: %s", w.device, w.how, i, len(got), d)
			return
		}
	}
}

// difference tells how two frames differ to a receiver, or is empty.
func difference(got, want *vnet.Frame) string {
	g, w := got.AppendTo(nil), want.AppendTo(nil)
	told := func(h vnet.Header) vnet.Header {
		h.HdrLen, h.Flags = 0, h.Flags&vnet.NeedsCsum
		if h.Flags == 0 {
			h.CsumStart, h.CsumOffset = 0, 0
		}
		return h
	}
	if a, b := told(got.Hdr), told(want.Hdr); a != b {
		return fmt.Sprintf("header %+v, want %+v", a, b)
	}
	if len(g) != len(w) {
		return fmt.Sprintf("%d bytes, want %d", len(g), len(w))
	}
	for i := range g {
		if g[i] != w[i] {
			return fmt.Sprintf("byte %d of %d: %x, want %x", i, len(g), g[i:min(i+4, len(g))], w[i:min(i+4, len(g))])
		}
	}
	return ""
}

// foreignFrames are the cases.
func foreignFrames() (all []foreign) {
	add := func(f foreign, edits ...func(*vnet.Frame)) {
		f.edit = func(v *vnet.Frame) {
			for _, e := range edits {
				e(v)
			}
		}
		if f.spec.UDP && f.spec.GSOSize > 0 && !since(6, 2) {
			return // a TAP takes no USO
		}
		all = append(all, f)
	}
	l4 := func(v6 bool) int {
		if v6 {
			return vnet.EthLen + vnet.IPv6Len
		}
		return vnet.EthLen + vnet.IPv4Len
	}
	put := func(at int, v uint16) func(*vnet.Frame) {
		return func(f *vnet.Frame) { binary.BigEndian.PutUint16(f.Head[at:], v) }
	}
	header := func(edit func(*vnet.Header)) func(*vnet.Frame) {
		return func(f *vnet.Frame) { edit(&f.Hdr) }
	}
	csum := func(start, offset int) func(*vnet.Frame) {
		return header(func(h *vnet.Header) { h.CsumStart, h.CsumOffset = uint16(start), uint16(offset) })
	}
	hdrLen := func(n int) func(*vnet.Frame) {
		return header(func(h *vnet.Header) { h.HdrLen = uint16(n) })
	}
	udp := func(v6 bool, n, size int) vnettest.Spec {
		return vnettest.Spec{V6: v6, UDP: true, Payload: vnettest.Pattern(n), GSOSize: size, ID: 7}
	}
	tcp := func(v6 bool, n, size int) vnettest.Spec {
		s := super(v6, n, size)
		s.TCPOptions = nil
		return s
	}

	for _, v6 := range []bool{false, true} {
		family := map[bool]string{false: "IPv4", true: "IPv6"}[v6]
		for _, s := range []struct {
			name string
			spec vnettest.Spec
			lost bool
		}{
			{"TCP", super(v6, 40_000, 1400), false},
			{"UDP", udp(v6, 40_000, 1400), false},
			// virtio_net_hdr_to_skb takes it for a super-packet, as it does not look for TCP
			// options; tcp_gso_segment then finds that there is nothing to cut.
			{"one TCP segment", super(v6, 1400, 1400), true},
		} {
			right := vnettest.Super(s.spec)
			at := int(right.Hdr.CsumStart) + int(right.Hdr.CsumOffset)
			length := right.Len() - int(right.Hdr.CsumStart)
			seed := binary.BigEndian.Uint16(right.Head[at:])
			for _, field := range []struct {
				name string
				seed uint16
			}{
				{"the right seed", seed},
				{"a seed of zero", 0},
				{"a seed without length", vnettest.Reseed(seed, length, 0)},
				{"a seed of another length", vnettest.Reseed(seed, length, 1448)},
			} {
				add(foreign{name: family + " " + s.name + ", " + field.name, spec: s.spec, lost: s.lost},
					put(at, field.seed))
			}
		}
		neither := vnet.EthLen + map[bool]int{false: 9, true: 6}[v6]
		for _, proto := range []uint8{vnet.ProtoSCTP, 253} {
			add(foreign{name: fmt.Sprintf("%s protocol %d with a GSO type", family, proto),
				spec: tcp(v6, 40_000, 1400), drop: vnet.DropBadGSO},
				func(f *vnet.Frame) { f.Head[neither] = proto })
		}
		start := l4(v6)
		const n = 900
		end := start + vnet.TCPLen + n
		for _, c := range []struct {
			name          string
			start, offset int
			refused       bool
		}{
			{"an odd start", start + 1, 16, false},
			{"an odd offset", start, 17, false},
			{"an odd start and offset", start + 3, 101, false},
			{"the last two bytes", end - 2, 0, false},
			{"the last two bytes, by offset", start, end - 2 - start, false},
			{"the last byte", end - 1, 0, true},
			{"the last byte, by offset", start, end - 1 - start, true},
			{"the end", end, 0, true},
			{"far past the end", 0xffff, 16, true},
			{"far past the end, by offset", start, 0xffff, true},
			{"0", 0, 16, true},
		} {
			f := foreign{name: family + " checksum at " + c.name, spec: tcp(v6, n, 0), refused: c.refused}
			if !c.refused {
				f.sum = summed
			}
			add(f, csum(c.start, c.offset))
			if c.start != start && c.offset == 16 { // with a GSO type
				f.name, f.spec, f.sum = "super-packet, "+f.name, tcp(v6, 40_000, 1400), nil
				if !c.refused {
					f.drop = vnet.DropBadGSO
				}
				add(f, csum(c.start, c.offset))
			}
		}

		sctp := tcp(v6, 1000, 0)
		add(foreign{name: family + " SCTP", spec: sctp, sum: castagnoli, summed: true},
			func(f *vnet.Frame) { f.Head[neither] = vnet.ProtoSCTP }, csum(start, vnet.SCTPCsumOffset))

		full := super(v6, 40_000, 1400)
		for _, h := range []int{0, 1, vnet.EthLen, start, start + vnet.TCPLen, start + 32, start + 1000} {
			add(foreign{name: fmt.Sprintf("%s hdr_len %d", family, h), spec: full}, hdrLen(h))
		}
		add(foreign{name: family + " hdr_len of the whole frame", spec: full},
			func(f *vnet.Frame) { f.Hdr.HdrLen = uint16(f.Len()) })
		add(foreign{name: family + " hdr_len far past the end", spec: full, refused: true},
			hdrLen(0xffff))
		for _, csum := range []vnettest.Csum{vnettest.Full, vnettest.Zero} {
			unasked := tcp(v6, 40_000, 1400)
			unasked.Csum = csum
			name := map[vnettest.Csum]string{vnettest.Full: "finished", vnettest.Zero: "zero"}[csum]
			add(foreign{name: family + " super-packet without NEEDS_CSUM, checksum " + name, spec: unasked})
			datagram := udp(v6, 40_000, 1400)
			datagram.Csum = csum
			add(foreign{name: family + " UDP super-packet without NEEDS_CSUM, checksum " + name, spec: datagram,
				refused: true})
		}
		add(foreign{name: family + " gso_size 0", spec: full, refused: true},
			header(func(h *vnet.Header) { h.GSOSize = 0 }))
		add(foreign{name: family + " gso_size 65535", spec: full, refused: true},
			header(func(h *vnet.Header) { h.GSOSize = 0xffff }))
		add(foreign{name: family + " gso_size above the payload", spec: tcp(v6, 1000, 1400)})
		add(foreign{name: family + " gso_size above the payload, TCP options", spec: super(v6, 1000, 1400)})
		add(foreign{name: family + " UDP gso_size above the payload", spec: udp(v6, 1000, 1400)})
	}

	v4 := super(false, 40_000, 1400)
	add(foreign{name: "IPv4 without header checksum", spec: v4}, put(vnet.EthLen+10, 0))
	add(foreign{name: "IPv4 with tot_len 0", spec: v4}, put(vnet.EthLen+2, 0))
	if since(6, 6) {
		add(foreign{name: "BIG IPv4 without header checksum", spec: super(false, 200_000, 1400)},
			put(vnet.EthLen+10, 0))
	}
	return all
}

// summed is f with its Internet checksum finished, as the header asks.
func summed(f vnet.Frame) vnet.Frame {
	b := f.AppendTo(nil)
	start := int(f.Hdr.CsumStart)
	sum := ^vnettest.Sum(b[start:])
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(b[start+int(f.Hdr.CsumOffset):], sum)
	return vnet.Frame{Head: b}
}

// castagnoli is f with a finished CRC32c (RFC 9260, appendix A).
func castagnoli(f vnet.Frame) vnet.Frame {
	b := f.AppendTo(nil)
	start := int(f.Hdr.CsumStart)
	field := b[start+int(f.Hdr.CsumOffset):][:4]
	clear(field)
	binary.LittleEndian.PutUint32(field, crc32.Checksum(b[start:], crc32.MakeTable(crc32.Castagnoli)))
	return vnet.Frame{Head: b}
}
