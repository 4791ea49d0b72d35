package guests

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"sluice/integration/guests/seen"
	"sluice/integration/vm"
)

// TestQueuesAndMTU: with one queue and with four, with frames of 1500 and of 9000 bytes.
// Of both, one and 1500 are TestTwoGuests. The taps with four are there before QEMU.
func TestQueuesAndMTU(t *testing.T) {
	onlyFull(t)
	for _, c := range []struct{ queues, mtu int }{{1, 9000}, {4, 1500}, {4, 9000}} {
		t.Run(fmt.Sprintf("queues=%d/mtu=%d", c.queues, c.mtu), func(t *testing.T) {
			b := newBed(t)
			for _, name := range []string{"a", "b"} {
				if c.queues > 1 {
					b.makeTap(name, "multi_queue")
				}
				b.guest(name, "6.12", vm.NIC{Queues: c.queues, MTU: c.mtu}, vm.CPUs(min(c.queues, 2)))
			}
			x, y := b.guests[0], b.guests[1]
			b.run(fmt.Sprint("queues=", c.queues))
			for _, g := range b.guests {
				if c.queues > 1 { // the driver uses one for each processor
					g.run(fmt.Sprint("ethtool -L eth0 combined ", c.queues))
				}
			}
			w := y.watch()
			for _, address := range []string{y.v4, y.v6} {
				x.ping(address, c.mtu-v6Headers)
				x.echo(address, c.mtu-v6Headers, 6)
				atOnce(t, x, address, 2*c.queues)
			}
			f := w.stop()
			for _, flow := range []seen.Flow{seen.TCP4, seen.TCP6} {
				got := f.Flows[flow]
				t.Logf("%s: %+v", flow, got)
				if got.GSO == 0 || got.Max <= max(wholeFrame, c.mtu) {
					t.Errorf("%s: nothing came whole: %+v", flow, got)
				}
			}
			if got := f.Sum(); got.Plain > c.mtu+14 || got.Plain <= c.mtu-200 {
				t.Errorf("the longest frame without a GSO type has %d bytes, MTU %d", got.Plain, c.mtu)
			}
			used := interrupted(y)
			t.Logf("packets came in on %d queues of %d", used, c.queues)
			if used < min(c.queues, 2) {
				t.Errorf("packets came in on %d queues of %d", used, c.queues)
			}
			for _, p := range b.stop() {
				if p.Limits.MTU != c.mtu {
					t.Errorf("port %s: MTU %d", p.Name, p.Limits.MTU)
				}
				faultless(t, p)
			}
			corrupt(t, b)
		})
	}
}

// interrupted counts the guest's receive queues that had an interrupt.
func interrupted(g *guest) (queues int) {
	// Lines are "25:  COUNT for each CPU  CHIP  virtio1-input.0", a vector for each queue.
	for line := range strings.Lines(g.Run("cat", "/proc/interrupts")) {
		f := strings.Fields(line)
		if len(f) < 2 || !strings.Contains(f[len(f)-1], "-input.") {
			continue
		}
		for _, count := range f[1:] {
			if n, _ := strconv.Atoi(count); n > 0 { // 0 for what is no number
				queues++
				break
			}
		}
	}
	return queues
}

// v6Headers are those of IPv6 with UDP or an echo.
const v6Headers = 48

// atOnce exchanges over n connections.
func atOnce(t *testing.T, g *guest, address string, n int) {
	t.Helper()
	var wait sync.WaitGroup
	for range n {
		wait.Go(func() { g.exchange(address, quickSize/4) })
	}
	wait.Wait()
}
