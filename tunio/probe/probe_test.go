package probe

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/integration/leaktest"
	"sluice/vnet"
)

func TestProbeFindsWhatWasMeasuredOnThisRelease(t *testing.T) {
	leaktest.NeedRoot(t)
	release := Run().Release
	var r Result // all zeros: right values at the end were found
	var err error
	onThread(func() { err = r.try() })
	if err != nil {
		t.Fatal(err)
	}
	tap, packet := byRelease(release)
	if !tap.IPv4 { // 17 pages and the headers: what the longest write is depends on these
		for _, found := range []*Ability{&r.Tap, &r.Packet} {
			if found.MaxWrite < legacyMaxFrame || found.MaxWrite >= bigPayload {
				t.Errorf("%s: longest write %d", release, found.MaxWrite)
			}
			found.MaxWrite = legacyMaxFrame
		}
	}
	if strings.HasPrefix(release, "6.12.") && r.Tap.IPv6 == vnet.FormPlain {
		// Measured: the receive side of 6.12.117 takes the plain form, which a packet socket makes
		// of both. Earlier kernels do not, and byRelease describes those.
		tap.IPv6, packet.IPv6 = vnet.FormPlain, vnet.FormPlain
	}
	if r.Tap != tap || r.Packet != packet {
		t.Errorf("%s: found tap %+v, packet %+v, want %+v, %+v", release, r.Tap, r.Packet, tap, packet)
	}
	if !strings.HasPrefix(release, "6.18.") {
		return
	}
	want := Result{
		Tap:    Ability{IPv4: true, IPv6: vnet.FormHBH, MaxWrite: 524279},
		Packet: Ability{IPv4: true, IPv6: vnet.FormNone, MaxWrite: 524279},
	}
	if r != want {
		t.Errorf("%s: found %+v, want %+v", release, r, want)
	}
}

func TestRunLeavesNothingBehind(t *testing.T) {
	leaktest.NeedRoot(t)
	settle(t)
	before := netdevs(t)
	r := Run()
	if !r.Probed || r.Why != "" || r.Release == "" {
		t.Errorf("not probed: %+v", r)
	}
	settle(t)
	if after := netdevs(t); after != before {
		t.Errorf("netdevs are now %s, before %s", after, before)
	}
}

// netdevs are the netdevs here with the names that the probe gives. Others come and go with other
// work on the machine.
func netdevs(t *testing.T) string {
	t.Helper()
	devs, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, d := range devs {
		if slices.Contains([]string{"tap0", "veth0", "veth1"}, d.Name) {
			names = append(names, d.Name)
		}
	}
	return fmt.Sprint(names)
}

// settle waits until no thread of the process is in another network namespace: a thread ends some
// time after its goroutine.
func settle(t *testing.T) {
	t.Helper()
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		left := ""
		tasks, _ := filepath.Glob("/proc/self/task/*/ns/net")
		for _, task := range tasks {
			if ns, err := os.Readlink(task); err == nil && ns != own {
				left = task + " in " + ns
			}
		}
		if left == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left: %s", left)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestWithoutPrivilegeTheReleaseDecides(t *testing.T) {
	r := Result{Tap: Ability{MaxWrite: 1}, Packet: Ability{MaxWrite: 2}}
	want := r
	var err error
	onThread(func() {
		// Of this thread alone, which ends.
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err = unix.Capset(&header, &none[0]); err == nil {
			err = r.try()
		}
	})
	const says = "make a network namespace: operation not permitted (needs CAP_SYS_ADMIN)"
	if err == nil || err.Error() != says {
		t.Errorf("error %v", err)
	}
	if r != want {
		t.Errorf("what stood in became %+v", r)
	}
}

func TestOnThreadSparesTheMainThread(t *testing.T) {
	for range 200 {
		onThread(func() {
			if unix.Gettid() == unix.Getpid() {
				t.Error("runs on the main thread, which cannot end")
			}
		})
	}
}

// Both share one Ability, and Run only tries the packet socket: a macvtap needs a device node.
func TestMacvtapDoesWhatAPacketSocketDoes(t *testing.T) {
	leaktest.NeedRoot(t)
	var packet, macvtap Ability
	var err error
	onThread(func() { err = tryMacvtap(&packet, &macvtap) })
	if err != nil {
		t.Fatal(err)
	}
	if macvtap != packet {
		t.Errorf("macvtap %+v, packet socket %+v", macvtap, packet)
	}
}

func tryMacvtap(packet, macvtap *Ability) error {
	l, err := enter()
	if err != nil {
		return err
	}
	defer l.close()
	return errors.Join(l.ability(packet, l.packet), l.ability(macvtap, l.macvtap))
}
