package accept

import (
	"bytes"
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/integration/netns/netnstest"
	"sluice/tunio/release"
	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// UDP that its sender leaves to be cut reaches the other host, in order or not; what
// the kernel cannot hand over is counted. Before Linux 6.2 a virtio-net header has
// no word for it: a packet socket answers EINVAL instead of the frame, and a tap
// refuses one, so that the switch sends the segments.
func TestUSO(t *testing.T) {
	for _, c := range []cable{{Packet, Packet}, {Packet, Tap}, {Tap, Packet}, {Macvtap, Tap}} {
		t.Run(fmt.Sprintf("from=%s/to=%s", c.from, c.to), func(t *testing.T) {
			b := connect(t, c)
			lost := c.from == Packet && !release.Since(release.Current(), 6, 2)
			const size, datagrams = 1400, 10
			unsupported := vnet.DropUnsupportedGSO.String()
			var server net.PacketConn
			var client net.Conn
			netnstest.Need(t, b.hosts["b"].Do(func() (err error) {
				server, err = net.ListenPacket("udp", "10.0.0.2:0")
				return err
			}))
			defer server.Close()
			netnstest.Need(t, b.hosts["a"].Do(func() (err error) {
				client, err = net.Dial("udp", server.LocalAddr().String())
				return err
			}))
			defer client.Close()
			raw, err := client.(*net.UDPConn).SyscallConn()
			netnstest.Need(t, err)
			netnstest.Need(t, raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, size)
			}))
			netnstest.Need(t, err)

			whole := vnettest.Pattern(datagrams * size)
			missing := map[int]bool{}
			for i := range datagrams {
				missing[i] = true
			}
			got := make([]byte, 2*size)
			// Neighbours are found by what is sent first, and a datagram may get lost.
			for end := time.Now().Add(patience); len(missing) > 0 && time.Now().Before(end); {
				if _, err := client.Write(whole); err != nil {
					t.Fatal(err)
				}
				for {
					server.SetReadDeadline(time.Now().Add(time.Second))
					n, _, err := server.ReadFrom(got)
					if err != nil {
						break
					}
					at := bytes.Index(whole, got[:n])
					if n != size || at%size != 0 {
						t.Fatalf("a datagram of %d bytes, from byte %d on", n, at)
					}
					delete(missing, at/size)
				}
				if lost {
					break
				}
			}
			sum, err := b.Stop()
			if err != nil {
				t.Fatal(err)
			}
			p, to := sum.Port("a"), sum.Port("b")
			switch {
			case lost && (len(missing) != datagrams || p.Drops.Ingress[unsupported] == 0):
				t.Errorf("%d datagrams missing, ingress drops %v", len(missing), p.Drops.Ingress)
			case !lost && len(missing) > 0:
				t.Errorf("%d datagrams missing: in %+v, out %+v, %+v", len(missing), p, to.TX, to.Drops)
			}
		})
	}
}
