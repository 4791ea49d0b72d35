package guests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sluice/integration/guests/seen"
	"sluice/integration/vm"
)

// bare is a guest without any offload.
var bare = without("csum", "host_tso4", "host_tso6", "host_uso",
	"guest_csum", "guest_tso4", "guest_tso6", "guest_ecn", "guest_uso")

// TestBareGuestCostsNobodyElse: from one guest to two at once, of which one takes
// everything and the other nothing.
func TestBareGuestCostsNobodyElse(t *testing.T) {
	onlyFull(t)
	b := newBed(t)
	x := b.guest("a", "6.12", vm.NIC{})
	y := b.guest("b", "6.12", vm.NIC{})
	z := b.guest("c", "6.12", vm.NIC{Offloads: bare.offloads()})
	b.run()
	toWhole, toBare := y.watch(), z.watch()
	for _, v6 := range []bool{false, true} {
		address := func(g *guest) string {
			if v6 {
				return g.v6
			}
			return g.v4
		}
		both := []traffic{x.background(address(y), quickSize), x.background(address(z), quickSize)}
		isWhole := func(f seen.Frames) bool { return f.Sum().Max > wholeFrame }
		toWhole.until("super-packets at b", isWhole)
		toBare.until("segments at c", func(f seen.Frames) bool { return f.Sum().Frames > 100 })
		toWhole.until("super-packets at b while c gets segments", isWhole)
		for _, e := range both {
			e.stop()
		}
		for _, g := range []*guest{y, z} {
			x.echo(address(g), 1400, 40)
		}
	}
	lease(x, z)
	whole, cut := toWhole.stop(), toBare.stop()
	t.Logf("b got %+v\nc got %+v", whole, cut)
	ports := b.stop()
	wrong := append(faults("b", whole, ports["b"], without(), without()),
		faults("c", cut, ports["c"], without(), bare)...)
	for _, fault := range wrong {
		t.Error(fault)
	}
	if p := ports["b"]; p.TX.Segmented+p.TX.Resegmented+p.TX.CsumCompleted > 0 {
		t.Errorf("b pays for c: %+v", p.TX)
	}
	if p := ports["c"]; p.TX.Segmented == 0 || p.TX.CsumCompleted == 0 {
		t.Errorf("nothing was cut or summed for c: %+v", p.TX)
	}
	for _, p := range ports {
		faultless(t, p)
		t.Logf("port %s: %d dropped by the kernel", p.Name, p.KernelDrops)
	}
	corrupt(t, b)
}

// TestGuestsComeAndGo: a guest reboots, is reset, powers off, and loses its QEMU, while
// two others exchange data. Its port follows; the others lose nothing.
func TestGuestsComeAndGo(t *testing.T) {
	onlyFull(t)
	for _, stays := range []bool{false, true} {
		t.Run(fmt.Sprintf("tap stays=%v", stays), func(t *testing.T) {
			b := newBed(t)
			if stays {
				b.makeTap("c")
			}
			for _, name := range []string{"a", "b", "c"} {
				b.guest(name, "6.12", vm.NIC{})
			}
			comeAndGo(t, b)
		})
	}
}

// comeAndGo does it to guest c. Its tap is QEMU's, and goes with it, or stays, without a
// carrier.
func comeAndGo(t *testing.T, b *bed) {
	x, y, z := b.guests[0], b.guests[1], b.guests[2]
	b.run()
	others := x.background(y.v4, quickSize)
	again := func(how string) {
		t.Helper()
		z.setUp()
		for _, address := range []string{z.v4, z.v6} {
			x.reaches(address)
			x.exchange(address, 1<<20)
		}
		if t.Failed() {
			t.Fatal("after ", how)
		}
	}
	z.Reboot()
	again("reboot")
	z.Reset()
	again("reset")
	lines := []string{"port is up"}
	for _, end := range []struct {
		how string
		do  func()
	}{{"power off", z.PowerOff}, {"kill -9", z.Kill}, {"quit", z.Quit}} {
		// What is under way to the guest when it goes, and while it is away, harms nobody.
		arrives := z.watch()
		dying := x.Background("peer", "swap", z.v4, "1000000000")
		ping := x.Background("ping", z.v6)
		arrives.until("data at c", func(f seen.Frames) bool { return f.Sum().Frames > 50 })
		end.do()
		b.says("port=c", "port is down")
		z.PowerOn()
		z.Up()
		dying.Kill()
		ping.Kill()
		again(end.how)
		lines = append(lines, "port is down", "port is up")
	}
	others.stop()
	ports := b.stop()
	for _, name := range []string{"a", "b"} {
		lossless(t, ports[name])
	}
	if p := ports["b"]; p.TX.Segmented+p.TX.Resegmented > 0 {
		t.Errorf("b's frames were cut: %+v", p.TX)
	}
	c := ports["c"]
	t.Logf("port c: dropped %v, %d by the kernel", c.Drops.Egress, c.KernelDrops)
	for name, want := range map[string][]string{"a": lines[:1], "b": lines[:1], "c": lines} {
		got := b.logged("port=" + name)
		// A tap that is made again is down at first, which the log may tell too.
		isDown := func(line string) bool { return strings.Contains(line, "port is down") }
		got = slices.CompactFunc(got, func(a, b string) bool { return isDown(a) && isDown(b) })
		ok := len(got) == len(want)
		for i := 0; ok && i < len(want); i++ {
			ok = strings.Contains(got[i], want[i])
		}
		if !ok {
			t.Errorf("port %s: want lines %q, got\n%s", name, want, strings.Join(got, "\n"))
		}
	}
	corrupt(t, b)
}

// says waits until the last line of the switch's log with a word in it says so.
func (b *bed) says(word, what string) {
	b.t.Helper()
	soon(b.t, word+": "+what, func() bool {
		lines := b.logged(word)
		return len(lines) > 0 && strings.Contains(lines[len(lines)-1], what)
	})
}

// logged are the lines of the switch's log with a word.
func (b *bed) logged(word string) (all []string) {
	for line := range strings.Lines(b.Stderr()) {
		if strings.Contains(line, word) {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}
