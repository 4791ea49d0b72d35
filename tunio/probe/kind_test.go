package probe

import (
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/integration/leaktest"
	"sluice/tunio/release"
	"sluice/vnet"
)

// examined is what Examine finds with this hide function.
func examined(t *testing.T, hide func(int) (io.Closer, error)) Report {
	t.Helper()
	leaktest.NeedRoot(t)
	r := Examine(hide)
	settle(t)
	return r
}

func hidesNothing(int) (io.Closer, error) { return io.NopCloser(nil), nil }

// TestExamineAgreesWithRun: both use one probe, and the abilities follow from the details.
func TestExamineAgreesWithRun(t *testing.T) {
	r := examined(t, hidesNothing)
	if run := Run(); r.Result != run {
		t.Errorf("%+v, and Run says %+v", r.Result, run)
	}
	for i, name := range []string{"tap", "packet", "macvtap"} {
		k := &r.Kinds[i]
		if k.Name != name || k.Err != nil {
			t.Fatalf("%s: %+v", name, k)
		}
		longest := func(all bool) int { return map[bool]int{true: k.MaxWrite, false: legacyMaxFrame}[all] }
		if k.Out.IPv4 != longest(k.IPv4) || k.Out.Plain != longest(k.IPv6 == vnet.FormPlain) ||
			k.IPv6 != vnet.FormPlain && k.Out.HBH != longest(k.IPv6 == vnet.FormHBH) {
			t.Errorf("%s: sent %+v, and it is able to do %+v", name, k.Out, k.Ability)
		}
	}
	// Not by the release, but as seen.
	var seen Report
	var err error
	onThread(func() { err = seen.examine(hidesNothing) })
	if err != nil || seen.Tap != r.Tap || seen.Packet != r.Packet {
		t.Errorf("seen %+v, %v, want %+v", seen.Result, err, r.Result)
	}
}

// TestExamineFindsWhatWasMeasured on this release.
func TestExamineFindsWhatWasMeasured(t *testing.T) {
	r := examined(t, hidesNothing)
	since := func(major, minor int) bool { return release.Since(r.Release, major, minor) }
	all := Types{TCPv4: true, TCPv6: true, UDP: true, ECN: true}
	tap, packet, macvtap := &r.Kinds[0], &r.Kinds[1], &r.Kinds[2]
	for _, k := range []*Kind{tap, packet, macvtap} {
		out := all
		out.UDP = since(6, 2) // before, a virtio-net header cannot express it
		if k.Out.Types != out {
			t.Errorf("%s: types out %+v, want %+v", k.Name, k.Out.Types, out)
		}
		in, header := out, vnet.HeaderLen
		if k == macvtap {
			// tap_handle_frame (drivers/net/tap.c) cuts it on 6.18, whatever the reader takes.
			in.UDP = since(6, 19) && k.In.UDP
		}
		if k == packet && !since(6, 4) {
			header = vnet.MinHeaderLen
		}
		if k.In.Types != in || k.HeaderLen != header {
			t.Errorf("%s: types in %+v, want %+v; header of %d bytes", k.Name, k.In.Types, in, k.HeaderLen)
		}
		want := vnet.MaxFrame
		if k == tap || !since(6, 6) { // a TAP's tso_max_size is 65536
			want = legacyMaxFrame
		}
		if k.In.IPv4 != want || k.In.IPv6 != want {
			t.Errorf("%s: longest frames in %d and %d, want %d", k.Name, k.In.IPv4, k.In.IPv6, want)
		}
	}
}

// TestExamineSeesWhetherFramesAreHidden, whatever the hide function claims.
func TestExamineSeesWhetherFramesAreHidden(t *testing.T) {
	const says = "the host's own stack gets the frames all the same"
	if r := examined(t, hidesNothing); r.HostDrop == nil || r.HostDrop.Error() != says {
		t.Errorf("nothing is hidden: %v, want %s", r.HostDrop, says)
	}
	refused := errors.New("refused")
	r := examined(t, func(int) (io.Closer, error) { return nil, refused })
	if !errors.Is(r.HostDrop, refused) {
		t.Errorf("%v, want %v", r.HostDrop, refused)
	}
}

// TestExamineWithoutPrivilege: it can only use the release, and says why.
func TestExamineWithoutPrivilege(t *testing.T) {
	r := Report{Result: Result{Tap: Ability{MaxWrite: 1}, Packet: Ability{MaxWrite: 2}}}
	want := r.Result
	var err error
	onThread(func() {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err = unix.Capset(&header, &none[0]); err == nil {
			err = r.examine(hidesNothing)
		}
	})
	if !errors.Is(err, unix.EPERM) || !errors.Is(r.HostDrop, unix.EPERM) || len(r.Kinds) != 0 || r.Result != want {
		t.Errorf("%v: %+v", err, r)
	}
}
