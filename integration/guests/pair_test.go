package guests

import (
	"testing"

	"sluice/integration/guests/seen"
	"sluice/integration/vm"
)

// TestTwoGuests is what everyone wants of two guests: all that hosts say to each other
// gets through, over both families, and super-packets arrive as they were sent.
func TestTwoGuests(t *testing.T) {
	b := newBed(t)
	x := b.guest("a", vm.Newest, vm.NIC{})
	y := b.guest("b", vm.Newest, vm.NIC{})
	b.run()
	watches := map[*guest]*watch{x: x.watch(), y: y.watch()}
	for _, address := range []string{y.v4, y.v6} {
		x.ping(address, 56)
		x.ping(address, 8000) // fragments
		x.exchange(address, 2*quickSize)
		x.echo(address, 1400, 40)
		x.echo(address, 8000, 1) // fragments
	}
	lease(x, y)
	frames := map[string]seen.Frames{}
	for g, w := range watches {
		frames[g.name] = w.stop()
	}
	ports := b.stop()
	for _, g := range b.guests {
		f, p := frames[g.name], ports[g.name]
		g.usoAtBoot(true)
		for _, flow := range []seen.Flow{seen.TCP4, seen.TCP6, seen.UDP4, seen.UDP6} {
			got := f.Flows[flow]
			t.Logf("guest %s, %s: %+v", g.name, flow, got)
			if got.GSO == 0 || got.Max < wholeFrame || got.Partial == 0 {
				t.Errorf("guest %s, %s: nothing came whole: %+v", g.name, flow, got)
			}
		}
		if p.TX.Segmented != 0 || p.TX.Resegmented != 0 || p.TX.CsumCompleted != 0 {
			t.Errorf("port %s touched what its guest takes: %+v", p.Name, p.TX)
		}
		if got := f.Sum().Max; got != int(p.TX.MaxFrame) {
			t.Errorf("guest %s got %d bytes at most, %d were sent", g.name, got, p.TX.MaxFrame)
		}
		lossless(t, p)
	}
	corrupt(t, b)
}

// TestOldGuest: a guest with a kernel that knows no USO, beside one that does.
func TestOldGuest(t *testing.T) {
	onlyFull(t)
	b := newBed(t)
	b.guest("a", "6.1", vm.NIC{})
	b.guest("b", vm.Newest, vm.NIC{})
	b.run()
	frames := offloadRow(b)
	lease(b.guests[1], b.guests[0])
	lease(b.guests[0], b.guests[1])
	ports := b.stop()
	has := map[string]nic{"a": without("host_uso", "guest_uso"), "b": without()}
	for _, g := range b.guests {
		g.usoAtBoot(true)
	}
	for name, other := range map[string]string{"a": "b", "b": "a"} {
		for _, fault := range faults(name, frames[name], ports[name], has[other], has[name]) {
			t.Error(fault)
		}
		faultless(t, ports[name])
	}
	corrupt(t, b)
}
