package traffic

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/integration/netns"
	"sluice/integration/netns/netnstest"
	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// TestT01PacketToPacket: ns1 - veth - [packet, packet] - veth - ns2, with default
// settings.
func TestT01PacketToPacket(t *testing.T) {
	b, x, y := pair(t, netns.Link{}, netns.Link{})
	s := run(t, b.sw, "a=packet:vA", "b=packet:vB")
	b.exchange(x, y, 32<<20)
	b.iperf(x, y)
	echoUDP(t, x, y)
	delivered(t, s.stop())
	for _, name := range []string{"a", "b"} {
		p := s.port(name)
		if p.TX.Segmented != 0 || p.TX.CsumCompleted != 0 || p.TX.MaxFrame <= 1514 {
			t.Errorf("port %s: the far end takes everything, and yet: %+v", name, p.TX)
		}
	}
}

// echoUDP sends datagrams of several lengths, the longest in fragments, and wants
// each back.
func echoUDP(t *testing.T, x, y *host) {
	t.Helper()
	for _, address := range []string{y.v4, y.v6} {
		var server net.PacketConn
		var client net.Conn
		err := y.Do(func() (err error) {
			server, err = net.ListenPacket("udp", net.JoinHostPort(address, "0"))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		err = x.Do(func() (err error) {
			client, err = net.Dial("udp", server.LocalAddr().String())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		go func() {
			b := make([]byte, 1<<16)
			for {
				n, from, err := server.ReadFrom(b)
				if err != nil {
					return
				}
				server.WriteTo(b[:n], from)
			}
		}()
		for _, n := range []int{1, 1400, 9000} {
			want, got := vnettest.Pattern(n), make([]byte, 1<<16)
			var back int
			for range 5 { // a datagram may get lost
				client.SetDeadline(time.Now().Add(patience / 5))
				if _, err = client.Write(want); err == nil {
					back, err = client.Read(got)
				}
				if err == nil {
					break
				}
			}
			if err != nil || !bytes.Equal(got[:back], want) {
				t.Errorf("%s: %d bytes of UDP: %d came back, %v", address, n, back, err)
			}
		}
	}
}

// TestT02TapToTap: ns1 - [tap, tap] - ns2: nothing is cut when both ends take
// everything.
func TestT02TapToTap(t *testing.T) {
	b := newBed(t)
	x, y := b.host("a"), b.host("b")
	x.Eager()
	y.Eager()
	b.built()
	s := run(t, b.sw, "a=tap:eth0,netns="+x.Name, "b=tap:eth0,netns="+y.Name)
	x.Address("eth0", x.addresses()...)
	y.Address("eth0", y.addresses()...)
	b.built()
	b.exchange(x, y, 32<<20)
	b.iperf(x, y)
	delivered(t, s.stop())
	for _, name := range []string{"a", "b"} {
		p := s.port(name)
		if p.TX.Segmented+p.TX.Resegmented != 0 || p.TX.MaxFrame < 1<<15 || p.RX.MaxFrame < 1<<15 {
			t.Errorf("port %s: super-packets do not pass whole: %+v, %+v", name, p.RX, p.TX)
		}
	}
}

// TestNamespaceByPath: netns= takes the path of a namespace, also of one without a name,
// as a container's.
func TestNamespaceByPath(t *testing.T) {
	for _, kind := range []string{"named", "of a process"} {
		t.Run(kind, func(t *testing.T) {
			b := newBed(t)
			x, y := b.cabled("a", netns.Link{}), b.host("b")
			b.built()
			path := "/run/netns/" + y.Name
			if kind == "of a process" {
				p, err := y.Start(t.Context(), nil, "busybox", "sleep", "600")
				netnstest.Need(t, err)
				path = fmt.Sprintf("/proc/%d/ns/net", p.PID())
				wait(t, "the process to be in its namespace", func() bool {
					in, err := os.Stat(path)
					want, wantErr := os.Stat("/run/netns/" + y.Name)
					return err == nil && wantErr == nil && os.SameFile(in, want)
				})
			}
			s := run(t, b.sw, "a=packet:vA", "b=tap:eth0,netns="+path)
			y.Address("eth0", y.addresses()...)
			b.built()
			b.exchange(x, y, 1<<20)
			s.stop()
			if _, err := y.Link("eth0"); err == nil {
				t.Error("the tap is still there")
			}
		})
	}
	b := newBed(t)
	b.built()
	for path, says := range map[string]string{
		"/run/netns/nosuch": "/run/netns/nosuch", "/dev/null": "not a network namespace",
	} {
		s := launch(t, b.sw, "b=tap:eth0,netns="+path)
		if code := s.exit(); code != 1 || s.lines("sluice: port b:", says) != 1 {
			t.Errorf("%s: exit code %d:\n%s", path, code, s.logged(""))
		}
	}
}

// TestT05BigToLegacy: a sender of BIG TCP, and an egress of 64 KiB. Frames come in
// above it, leave below it, and the kernel has nothing left to cut.
func TestT05BigToLegacy(t *testing.T) {
	b, x, y := pair(t, netns.Link{GSO: 524280}, netns.Link{GSO: 65536})
	x.Eager()
	b.built()
	s := run(t, b.sw, "a=packet:vA", "b=packet:vB")
	before := received(t, y)
	sizes, err := y.MeasureFrames("eth0")
	netnstest.Need(t, err)
	b.exchange(x, y, 64<<20)
	b.iperf(x, y)
	if err := sizes.Stop(); err != nil {
		t.Fatal(err)
	}
	frames := received(t, y) - before
	sum := s.stop()
	delivered(t, sum)
	in, out := sum.Port("a"), sum.Port("b")
	if in.RX.MaxFrame <= 65536 {
		t.Errorf("greatest frame in %d: want BIG TCP", in.RX.MaxFrame)
	}
	for what, n := range map[string]int{
		"counted": out.TX.MaxFrame, "seen at the receiver": sizes.MaxIn(),
	} {
		if n <= 1514 || n >= 65536 {
			t.Errorf("greatest frame out, %s: %d, want it between the MTU and 64 KiB", what, n)
		}
	}
	if out.TX.Resegmented == 0 || out.TX.Segmented != 0 {
		t.Errorf("%d resegmented, %d segmented", out.TX.Resegmented, out.TX.Segmented)
	}
	// The receiver counts what the kernel makes of a frame; a few may have come
	// before and after.
	if frames > out.TX.Frames+64 {
		t.Errorf("%d frames left and %d arrived: the kernel has cut some", out.TX.Frames, frames)
	}
}

// bigTap is a tap port that makes a host's eth0 and gives it BIG TCP.
func bigTap(h *host) string {
	return fmt.Sprintf("tap:eth0,netns=%s,gso_max_size=%d,gso_ipv4_max_size=%[2]d", h.Name, big)
}

// TestMixedPorts: A to B stays whole while A to C is cut, at the same time, and
// kinds are mixed.
func TestMixedPorts(t *testing.T) {
	b := newBed(t)
	x := b.cabled("a", netns.Link{GSO: big})
	x.Eager()
	y := b.host("b")
	z := b.cabled("c", netns.Link{GSO: 65536})
	b.built()
	s := run(t, b.sw, "a=packet:vA", "b="+bigTap(y), "c=macvtap:mC,lower=vC")
	y.Address("eth0", y.addresses()...)
	b.built()
	var both sync.WaitGroup
	for _, far := range []*host{y, z} {
		both.Go(func() {
			for _, address := range []string{far.v4, far.v6} {
				if err := b.swap(x, far, address, 48<<20); err != nil {
					t.Errorf("%s: %v", address, err)
				}
			}
		})
	}
	both.Wait()
	clean(t, x, y, z)

	sum := s.stop()
	delivered(t, sum)
	whole, cut := sum.Port("b"), sum.Port("c")
	if !since(6, 6) { // no super-packet above 64 KiB leaves
		if whole.TX.Segmented != 0 || whole.TX.MaxFrame >= 65536 || whole.TX.MaxFrame <= 1514 {
			t.Errorf("to the tap: %+v, limits %+v", whole.TX, whole.Limits)
		}
	} else if whole.TX.Resegmented+whole.TX.Segmented != 0 || whole.TX.MaxFrame <= 65536 {
		t.Errorf("to the tap, frames are not whole: %+v, limits %+v", whole.TX, whole.Limits)
	}
	if cut.TX.Resegmented == 0 || cut.TX.Segmented != 0 ||
		cut.TX.MaxFrame >= 65536 || cut.TX.MaxFrame <= 1514 {
		t.Errorf("to the macvtap, frames are not in chunks: %+v, limits %+v", cut.TX, cut.Limits)
	}
}

// TestBigTCPReachesATap, in the form that a tap takes: both families leave whole what
// came in above 64 KiB.
func TestBigTCPReachesATap(t *testing.T) {
	for _, family := range []string{"IPv4", "IPv6"} {
		t.Run(family, func(t *testing.T) {
			b := newBed(t)
			x, y := b.cabled("a", netns.Link{GSO: big}), b.host("b")
			x.Eager()
			b.built()
			s := run(t, b.sw, "a=packet:vA", "b="+bigTap(y))
			y.Address("eth0", y.addresses()...)
			b.built()
			sizes, err := y.MeasureFrames("eth0")
			netnstest.Need(t, err)
			address := map[string]string{"IPv4": y.v4, "IPv6": y.v6}[family]
			if err := b.swap(x, y, address, 64<<20); err != nil {
				t.Error(err)
			}
			clean(t, x, y)
			if err := sizes.Stop(); err != nil {
				t.Fatal(err)
			}
			delivered(t, s.stop())
			p := s.port("b")
			if family == "IPv6" && p.Limits.IPv6Form == "none" {
				if p.TX.MaxFrame >= 65536 || p.TX.Resegmented == 0 {
					t.Errorf("%+v, limits %+v", p.TX, p.Limits)
				}
				return
			}
			if family == "IPv4" && !since(6, 3) { // the sender has none either
				if p.TX.MaxFrame >= 65536 || p.TX.MaxFrame <= 1514 || p.TX.Resegmented+p.TX.Segmented != 0 {
					t.Errorf("%+v, limits %+v", p.TX, p.Limits)
				}
				return
			}
			if p.TX.MaxFrame <= 65536 || p.TX.Resegmented+p.TX.Segmented != 0 {
				t.Errorf("want BIG TCP: %+v", p.TX)
			}
			if sizes.MaxIn() <= 65536 {
				t.Errorf("greatest frame seen in the namespace %d, want BIG TCP", sizes.MaxIn())
			}
		})
	}
}

// TestFloodedFrameIsCutForOneEgressAlone: each egress of a flooded frame decides by
// itself.
func TestFloodedFrameIsCutForOneEgressAlone(t *testing.T) {
	b := newBed(t)
	x := b.cabled("a", netns.Link{GSO: big})
	y := b.cabled("b", netns.Link{GSO: big})
	z := b.cabled("c", netns.Link{GSO: 65536})
	b.built()
	s := run(t, b.sw, "a=packet:vA", "b=packet:vB", "c=packet:vC")
	from := tapInto(t, x.Namespace, "eth0")
	whole, cut := tapInto(t, y.Namespace, "eth0"), tapInto(t, z.Namespace, "eth0")
	spec := super(false, 200_000, 1448)
	if got := cross(from, whole, spec); len(got) != 1 {
		t.Errorf("at b: %v", lengths(got))
	}
	// 200000 bytes in chunks of 45 segments: 65160 and 66 of headers.
	if got := lengths(cut.whole(spec)); fmt.Sprint(got) != "[65226 65226 65226 4586]" {
		t.Errorf("at c: %v", got)
	}
	sum := s.stop()
	if p := sum.Port("c"); p.TX.Resegmented != 1 || p.TX.Chunks != 4 {
		t.Errorf("c: %+v", p.TX)
	}
	if p := sum.Port("b"); p.TX.Resegmented != 0 {
		t.Errorf("b: %+v", p.TX)
	}
}

// TestT06MixedMTU: ports of MTU 9000, 1500 and 1460. TCP agrees on what all take;
// what does not fit is a named drop.
func TestT06MixedMTU(t *testing.T) {
	b := newBed(t)
	x := b.cabled("a", netns.Link{MTU: 9000, GSO: big})
	y := b.cabled("b", netns.Link{})
	z := b.cabled("c", netns.Link{MTU: 1460})
	b.built()
	s := run(t, b.sw, "a=packet:vA", "b=packet:vB", "c=packet:vC")
	b.exchange(x, y, 16<<20)
	b.exchange(x, z, 16<<20)
	b.exchange(z, y, 16<<20)

	// Datagrams that fit the first cable alone.
	from, at := tapInto(t, x.Namespace, "eth0"), tapInto(t, y.Namespace, "eth0")
	for _, c := range []struct {
		name string
		spec vnettest.Spec
		fits bool
	}{
		{"segments of the MTU", super(false, taken(100_000), 1448), true},
		{"segments a byte above it", super(false, taken(100_000), 1449), false},
		{"segments above it, IPv6", super(true, 50_000, 1429), false},
		{"a frame of the MTU", super(false, 1448, 0), true},
		{"a frame a byte above it", super(false, 1449, 0), false},
		{"one segment, shorter than gso_size", super(false, 1448, 8948), true},
	} {
		if frames, ok := tryCross(from, at, c.spec); ok != c.fits {
			t.Errorf("%s: arrived %v, want %v: %v", c.name, ok, c.fits, lengths(frames))
		}
	}
	sum := s.stop()
	if n := sum.Port("b").Drops.Egress["over_mtu"]; n < 3 {
		t.Errorf("b: over_mtu %d, want the 3 frames that did not arrive", n)
	}
	if n := sum.Port("c").Drops.Egress["over_mtu"]; n < 5 {
		t.Errorf("c: over_mtu %d, want the 5 flooded frames above 1460", n)
	}
}

// TestT06StallIsCounted: hosts that believe in an MTU which a port does not have.
// TCP cannot go on, but its frames do not vanish uncounted.
func TestT06StallIsCounted(t *testing.T) {
	b, x, y := pair(t, netns.Link{MTU: 9000}, netns.Link{MTU: 9000})
	s := run(t, b.sw, "a=packet:vA", "b=packet:vB,mtu=1500")
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	stalled := make(chan error, 1)
	go func() { stalled <- b.Exchange(ctx, x.Namespace, y.Namespace, y.v4, 1<<20) }()
	wait(t, "TCP to send again what got lost", func() bool {
		c, err := x.Counters()
		return err == nil && c["TcpRetransSegs"] > 0
	})
	s.says(1, "level=WARN", "port=b", "over_mtu", "mtu=1500")
	cancel()
	if err := <-stalled; err == nil {
		t.Error("frames above the port's MTU arrived")
	}
	p := s.port("b")
	if p.Limits.MTU != 1500 || p.Drops.Egress["over_mtu"] == 0 {
		t.Errorf("limits %+v, drops %v", p.Limits, p.Drops.Egress)
	}
	if mtu := link(t, b.sw, "vB").MTU; mtu != 9000 {
		t.Errorf("the netdev's MTU is %d: it is not Sluice's to set", mtu)
	}
}

// TestTwoHostsOfOneMACAreTold: the log names the address.
func TestTwoHostsOfOneMACAreTold(t *testing.T) {
	b, x, y := pair(t, netns.Link{}, netns.Link{})
	const mac = "52:54:00:12:34:56" // of each QEMU guest that is not given one
	for _, h := range []*host{x, y} {
		must(t, h.Namespace, "ip", "link", "set", "eth0", "address", mac)
		h.Sysctl("net.ipv4.neigh.eth0.retrans_time_ms", "50")
		h.Sysctl("net.ipv4.neigh.eth0.mcast_solicit", "20")
	}
	b.built()
	s := run(t, b.sw, "a=packet:vA", "b=packet:vB")
	out, _ := x.Run(deadline(t, patience), "busybox", "ping", "-c", "3", "-W", "1", y.v4)
	if !strings.Contains(string(out), " 0 packets received") {
		t.Errorf("ping says %s", out)
	}
	s.says(1, "level=WARN", "mac="+mac, "port=", "other=")
	if n := s.lines("mac="); n != 1 {
		t.Errorf("%d warnings, want 1:\n%s", n, s.logged("mac="))
	}
}

// TestT08DHCP: a DHCP server whose replies have their checksum left to the
// hardware, and a client that reads them from a raw socket.
func TestT08DHCP(t *testing.T) {
	const packet, tap = "packet:vB", "tap:eth0,netns=NS"
	for _, c := range []struct {
		name      string
		client    string // port
		completed bool   // the checksum, by the switch
	}{
		{"to a packet port", packet, false},
		{"to a packet port without offload", packet + ",offload=none", true},
		{"to a TAP", tap, false},
		{"to a TAP without offload", tap + ",offload=none", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t)
			server := b.cabled("a", netns.Link{})
			client := b.host("b")
			if strings.HasPrefix(c.client, packet) {
				b.Veth(client.Namespace, "eth0", b.sw, "vB", netns.Link{})
			}
			b.built()
			s := run(t, b.sw, "a=packet:vA", "b="+strings.ReplaceAll(c.client, "NS", client.Name))
			replies, err := client.CaptureFrames("eth0")
			netnstest.Need(t, err)

			dir := t.TempDir()
			_, err = server.Start(t.Context(), nil, "dnsmasq", "--user=root", "--port=0",
				"--conf-file=/dev/null", "--no-ping", "--keep-in-foreground", "--pid-file",
				"--interface=eth0", "--dhcp-range=10.0.0.50,10.0.0.59,1h",
				"--dhcp-leasefile="+filepath.Join(dir, "leases"))
			netnstest.Need(t, err)
			script := filepath.Join(dir, "script")
			text := "#!/bin/sh\n[ \"$1\" != bound ] || echo $ip >\"$0.lease\"\n"
			if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
			out, err := client.Run(deadline(t, patience), "busybox", "udhcpc", "-i", "eth0",
				"-f", "-n", "-q", "-s", script, "-t", "15", "-T", "1")
			netnstest.Need(t, err)
			got, err := os.ReadFile(script + ".lease")
			if err != nil || !strings.HasPrefix(string(got), "10.0.0.5") {
				t.Errorf("lease %q, %v\n%s", got, err, out)
			}
			if n := s.port("b").TX.CsumCompleted; n > 0 != c.completed {
				t.Errorf("%d checksums completed, want some: %v", n, c.completed)
			}
			if err := replies.Stop(); err != nil {
				t.Fatal(err)
			}
			offers(t, replies.Frames(), !c.completed)
		})
	}
}

// offers fails t unless all that a DHCP server sent is there with its checksum left to the
// hardware, or with a right one.
func offers(t *testing.T, frames []netns.Captured, partial bool) {
	t.Helper()
	const udp, bootps = vnet.EthLen + vnet.IPv4Len, 67
	n := 0
	for _, c := range frames {
		b := c.Data
		if c.Outgoing || len(b) < udp+vnet.UDPLen || b[12] != 8 || b[vnet.EthLen+9] != vnet.ProtoUDP ||
			binary.BigEndian.Uint16(b[udp:]) != bootps {
			continue
		}
		n++
		if c.Unchecked != partial {
			t.Errorf("reply %d: its checksum is left to the hardware: %v, want %v", n, c.Unchecked, partial)
		}
		p := vnet.Packet{L3: vnet.EthLen, L4: udp, Proto: vnet.ProtoUDP}
		if sum := vnettest.Sum(append(pseudo(b, &p), b[udp:]...)); !partial && sum != 0xffff {
			t.Errorf("reply %d: the checksum is wrong: sum %#x", n, sum)
		}
	}
	if n < 2 { // an offer and an acknowledgement
		t.Errorf("%d replies, want 2", n)
	}
}
