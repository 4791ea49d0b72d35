package keeper

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/dataplane"
	"sluice/vnet"
)

// TestEveryDropHasAdvice, each in a line of less than 160 columns, and each different.
func TestEveryDropHasAdvice(t *testing.T) {
	seen := map[string]bool{}
	check := func(d vnet.Drop, text string) {
		if text == "" {
			t.Errorf("nobody is told what to do about %v", d)
		}
		if n := len(droppingMsg(d, text)); n >= 160 {
			t.Errorf("%v: a line of %d columns: %s", d, n, text)
		}
		if seen[text] {
			t.Errorf("%v: said twice: %s", d, text)
		}
		seen[text] = true
	}
	for d := vnet.Keep + 1; d < vnet.NumDrops; d++ {
		if a := advised[d]; a.elsewhere == "" || a.text != "" {
			check(d, a.text)
		}
	}
	for kind := vnet.NoTunnel + 1; kind < vnet.NumTunnels; kind++ {
		check(vnet.DropUnsupportedGSO, tunnelAdvice[kind])
	}
	check(vnet.DropUnsupportedGSO, groAdvice("enp94s0f0np0.42")) // as long as a name may be
}

// TestDropWatch: what is found in the second that a row describes.
func TestDropWatch(t *testing.T) {
	type counts struct{ frames, drops uint64 }
	const never = 0
	for _, c := range []struct {
		name    string
		drop    vnet.Drop
		seconds []counts // what is counted in each
		found   int      // the second whose look finds it first, from 1
	}{
		{"nothing", vnet.DropBadGSO, []counts{{1e6, 0}, {1e6, 0}}, never},
		{"strays", vnet.DropBadGSO, []counts{{1e6, 1}, {1e6, 1}}, never},
		{"three at once", vnet.DropBadGSO, []counts{{9, 0}, {9, 3}}, 2},
		{"the third", vnet.DropBadCsum, []counts{{0, 1}, {0, 1}, {0, 0}, {0, 1}}, 4},
		{"however many others pass", vnet.DropUnsupportedGSO, []counts{{1e9, 2}, {1e9, 1}}, 2},
		// A flow that lives on its timeouts: 0.2 s, doubled each time.
		{"retransmissions of one segment", vnet.DropOverMTU, []counts{{4, 3}, {1, 1}}, 1},
		{"strays in different windows", vnet.DropRefused,
			append(append([]counts{{5, 2}}, make([]counts, 21)...), counts{5, 2}, counts{5, 0}), never},

		{"a full queue is usual", vnet.DropFull, slices.Repeat([]counts{{905, 95}}, 30), never},
		{"a full queue for a moment", vnet.DropFull,
			append([]counts{{100, 900}}, slices.Repeat([]counts{{10000, 0}}, 20)...), never},
		{"a tenth, over a window", vnet.DropFull, slices.Repeat([]counts{{900, 100}}, 11), 11},
		{"nobody else is up, at the start", vnet.DropNoEgress,
			append([]counts{{0, 9}, {0, 9}}, slices.Repeat([]counts{{1000, 0}}, 20)...), never},
		{"strays around the end of a window", vnet.DropRefused,
			append(append(make([]counts, 9), counts{5, 1}, counts{5, 1}), counts{5, 1}), 12},
		{"the log tells of it already", vnet.DropPortDown, slices.Repeat([]counts{{0, 9}}, 30), never},

		{"nobody else is up", vnet.DropNoEgress, slices.Repeat([]counts{{0, 9}}, 12), 11},
	} {
		var w dropWatch
		var stats dataplane.Stats
		now := time.Unix(1e9, 0)
		w.roll(now, &stats) // as the first look does
		got := never
		for i, n := range c.seconds {
			if c.drop.Ingress() {
				stats.RxFrames += n.frames + n.drops
				stats.IngressDrops[c.drop] += n.drops
			} else {
				stats.TxFrames += n.frames
				stats.EgressDrops[c.drop] += n.drops
			}
			found := w.look(now, &stats)
			if got == never && slices.Contains(found, c.drop) {
				got = i + 1
			}
			if slices.ContainsFunc(found, func(d vnet.Drop) bool { return d != c.drop }) {
				t.Errorf("%s: found %v", c.name, found)
			}
			w.roll(now, &stats)
			now = now.Add(time.Second)
		}
		if got != c.found {
			t.Errorf("%s: found in second %d, want %d", c.name, got, c.found)
		}
	}
}

// TestAdviceIsGivenOnce for each port and reason.
func TestAdviceIsGivenOnce(t *testing.T) {
	var log bytes.Buffer
	p := &port{log: slog.New(slog.NewTextHandler(&log, nil)), ns: &namespace{}}
	var stats dataplane.Stats
	now := time.Unix(1e9, 0)
	count := func(add func()) {
		add()
		p.warn(now, &stats)
		now = now.Add(time.Second)
	}
	count(func() {})
	for range 30 {
		count(func() {
			stats.RxFrames += 7
			stats.IngressDrops[vnet.DropBadGSO]++
			stats.IngressDrops[vnet.DropUnsupportedGSO] += 5
			stats.Tunnels[vnet.TunnelGRE]++
			stats.Tunnels[vnet.TunnelIP]++
			stats.Tunnels[vnet.NoTunnel]++ // two could not be read
		})
	}
	count(func() { stats.IngressDrops[vnet.DropUnsupportedGSO] += 3; stats.Tunnels[vnet.TunnelUDP] += 3 })
	for text, want := range map[string]int{
		"\n": 5, "bad_gso": 1, "unsupported_gso": 4,
		"tx-gre-segmentation": 1, "tx-ipxip4-segmentation": 1, "SCTP": 1, "tx-udp_tnl-segmentation": 1,
	} {
		if n := strings.Count(log.String(), text); n != want {
			t.Errorf("%q: %d times, want %d", text, n, want)
		}
	}
	if t.Failed() {
		t.Log(log.String())
	}
}
