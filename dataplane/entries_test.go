package dataplane

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sluice/vnet"
)

// TestRandomSourcesMoveNobodyElse is an attack: a million random addresses, many times
// what the database holds. Who was there stays known, who comes up later becomes known, and
// the attacker gets none of their frames.
func TestRandomSourcesMoveNobodyElse(t *testing.T) {
	addresses := 1000000
	if raceEnabled {
		addresses = 100000 // still six times what there is room for
	}
	l := newLab(t)
	_, qa := l.port("a", bigLimits())
	_, qb := l.port("b", bigLimits())
	_, qc := l.port("c", bigLimits())
	evil, qevil := l.port("evil", bigLimits())
	for _, q := range []*fakeQueue{qa, qb, qc, qevil} {
		q.sink.Store(true)
	}
	hello(qa, host1)
	hello(qb, host2)
	const late = 50
	hosts := []struct {
		q   *fakeQueue
		mac vnet.MAC
	}{{qa, host1}, {qb, host2}}
	talk := func() { // each to each
		for _, from := range hosts {
			for _, to := range hosts {
				if from.q != to.q {
					from.q.inject(small(from.mac, to.mac))
				}
			}
		}
	}
	rng := rand.New(rand.NewPCG(3, 4))
	f := small(host3, broadcast)
	seen := uint64(0)
	for n := 0; n < addresses; {
		var batch []vnet.Frame
		for range batchFrames {
			src := vnet.MAC(rng.Uint64N(1<<40))<<8&^(1<<40) | 0x020000000000
			g := f.Clone()
			putMAC(g.Head[6:], src)
			batch = append(batch, g)
		}
		qevil.inject(batch...)
		n += len(batch)
		if n%(addresses/late/batchFrames*batchFrames) != 0 {
			continue
		}
		if len(hosts) < late { // behind c, which sends from few addresses
			h := host3 + vnet.MAC(len(hosts))
			hosts = append(hosts, struct {
				q   *fakeQueue
				mac vnet.MAC
			}{qc, h})
			hello(qc, h)
		}
		seen = evil.Stats().TxOffered
		talk()
		if got := evil.Stats().TxOffered; got != seen {
			t.Fatalf("after %d addresses the attacker gets %d frames for others", n, got-seen)
		}
	}
	if len(hosts) < late/2 {
		t.Errorf("only %d hosts came up", len(hosts))
	}
	if n := l.fdb.Len(); n != DefaultFDBSize {
		t.Errorf("%d addresses, want as many as there is room for", n)
	}
	full := 0
	for {
		select {
		case e := <-l.Events():
			if e.Kind == EventFDBFull && e.Port == evil && e.Size == DefaultFDBSize {
				full++
			}
			continue
		default:
		}
		break
	}
	if full != 1 {
		t.Errorf("told %d times that the database is full", full)
	}
}

func TestPortMACLimit(t *testing.T) {
	l := newLab(t)
	a, qa := l.portConfig(PortConfig{Name: "a", MACLimit: 2}, bigLimits())
	_, qb := l.port("b", bigLimits())
	_, qc := l.port("c", bigLimits())
	hello(qa, host1, qb, qc)
	hello(qa, host2, qb, qc)
	l.noEvent()
	hello(qa, host3, qb, qc)
	want := Event{Port: a, Kind: EventMACLimit, Queue: qa, MAC: host3, Size: 2}
	if e := l.event(); e != want {
		t.Errorf("%+v, want %+v", e, want)
	}
	gone, there := small(macA, host1), small(macA, host3)
	qb.inject(gone, there)
	same(t, qa.taken(), gone, there)
	same(t, qc.taken(), gone)

	if err := a.Configure(PortConfig{Name: "a", MACLimit: 1}); err != nil {
		t.Fatal(err)
	}
	old := small(macA, host2)
	qb.inject(old, there)
	same(t, qc.taken(), old)
	l.noEvent()
}

func wantEntries(t *testing.T, sw *Switch, want ...Entry) {
	t.Helper()
	if got := sw.Entries(); !slices.Equal(got, want) {
		t.Errorf("entries are\n%+v, want\n%+v", got, want)
	}
}

func TestEntries(t *testing.T) {
	l := newLab(t)
	a, qa := l.port("a", bigLimits())
	b, qb := l.portConfig(PortConfig{Name: "b", VLAN: VLAN{Mode: VLANAccess, Tag: 10}}, bigLimits())
	_, qc := l.port("c", bigLimits())
	wantEntries(t, l.Switch)
	qa.inject(small(host2, broadcast))
	l.advance(7)
	qb.inject(small(host3, broadcast), small(host1, broadcast))
	if err := l.AddEntry(0, host1, a); err != nil {
		t.Fatal(err)
	}
	l.advance(20)
	static := Entry{MAC: host1, Port: a, Static: true}
	learnt := Entry{MAC: host2, Port: a, Age: 20}
	behindB := Entry{VID: 10, MAC: host3, Port: b, Age: 13}
	wantEntries(t, l.Switch, static, learnt, Entry{VID: 10, MAC: host1, Port: b, Age: 13}, behindB)

	// A static entry stays where it is, and who sends from its address elsewhere is heard.
	qb.taken()
	qc.taken()
	qa.taken()
	f := small(host1, broadcast)
	qc.inject(f)
	same(t, qa.taken(), f)
	back := small(host2, host1)
	qc.inject(back)
	same(t, qa.taken(), back)

	if !l.DelEntry(10, host1) || l.DelEntry(10, host1) || l.DelEntry(0, host3) || l.DelEntry(4096, host1) {
		t.Error("deleted what is not there, or not what is")
	}
	wantEntries(t, l.Switch, static, Entry{MAC: host2, Port: l.ports[2]}, behindB)
	if n := l.Flush(a, -1); n != 0 {
		t.Errorf("%d flushed behind a", n)
	}
	if n := l.Flush(nil, 9); n != 0 {
		t.Errorf("%d flushed in VLAN 9", n)
	}
	if n := l.Flush(b, 10); n != 1 {
		t.Errorf("%d flushed behind b in VLAN 10", n)
	}
	wantEntries(t, l.Switch, static, Entry{MAC: host2, Port: l.ports[2]})
	if n := l.Flush(nil, 0); n != 1 {
		t.Errorf("%d flushed in VLAN 0", n)
	}
	l.advance(100000)
	a.SetUp(false)
	wantEntries(t, l.Switch, static)
	l.detach(a, qa)
	wantEntries(t, l.Switch, static)
	if !l.DelEntry(0, host1) {
		t.Error("the static entry is gone")
	}
	wantEntries(t, l.Switch)
	if err := l.AddEntry(0, host1, a); err != nil {
		t.Error(err)
	}
	a.Remove()
	wantEntries(t, l.Switch)
	_, qd := l.port("d", bigLimits()) // has a's ID
	hello(qd, host1)
	if n := l.Flush(a, -1); n != 0 {
		t.Errorf("%d flushed behind a removed port", n)
	}
}

func TestEntriesThatCannotBe(t *testing.T) {
	l := &lab{Switch: New(Options{FDBSize: 1}), t: t}
	t.Cleanup(l.Close)
	a, _ := l.portConfig(PortConfig{Name: "a", VLAN: VLAN{Trunks: vlans(5)}}, bigLimits())
	b, _ := l.port("b", bigLimits())
	b.Remove()
	for _, c := range []struct {
		vid  uint16
		mac  vnet.MAC
		port *Port
		want string
	}{
		{5, 0, a, "not the address of one host"},
		{5, broadcast, a, "not the address of one host"},
		{5, 1 << 48, a, "not the address of one host"},
		{4096, host1, a, "4095 is the greatest VLAN"},
		{6, host1, a, "the port does not carry the VLAN"},
		{5, host1, b, "the port was removed"},
		{5, host1, a, ""},
		{5, host2, a, "static addresses fill the database"},
	} {
		err := l.AddEntry(c.vid, c.mac, c.port)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v in VLAN %d: %v, want %q", c.mac, c.vid, err, c.want)
		}
	}
}

// TestPortIsConfigured while it is in use: its VLAN changes, entries that do not fit are
// forgotten and others stay.
func TestPortIsConfigured(t *testing.T) {
	l := newLab(t)
	a, qa := l.port("a", bigLimits())
	b, qb := l.port("b", bigLimits())
	_, qc := l.port("c", bigLimits())
	tagged := func(src, dst vnet.MAC, vid byte) vnet.Frame {
		return withTags(small(src, dst), []byte{0x81, 0, 0, vid})
	}
	qa.inject(tagged(host1, broadcast, 10), tagged(host1, broadcast, 20), small(host1, broadcast))
	qb.inject(tagged(host2, broadcast, 20))
	for _, v := range []uint16{10, 30} {
		if err := l.AddEntry(v, host3, a); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Configure(PortConfig{Name: "a", VLAN: VLAN{Mode: VLANAccess, Tag: 10}}); err != nil {
		t.Fatal(err)
	}
	wantEntries(t, l.Switch, Entry{VID: 10, MAC: host1, Port: a}, Entry{VID: 10, MAC: host3, Port: a, Static: true},
		Entry{VID: 20, MAC: host2, Port: b})
	if c := a.Config(); c.VLAN.Tag != 10 {
		t.Errorf("it is %+v", c)
	}
	qa.taken()
	qb.taken()
	qc.taken()
	qb.inject(tagged(host2, host1, 10), tagged(host2, host1, 20), small(host2, host1))
	same(t, qa.taken(), small(host2, host1))
	same(t, qc.taken(), tagged(host2, host1, 20), small(host2, host1))
	qa.inject(tagged(host1, host2, 10), small(host1, host2))
	same(t, qb.taken(), tagged(host1, host2, 10))
	wantIngress(t, a, vnet.DropVLAN, 1)

	// The policy and the limits take effect, too, and nothing is forgotten for them.
	c := a.Config()
	c.Oversize, c.Isolated = OversizeSegment, true
	if err := a.Configure(c); err != nil {
		t.Fatal(err)
	}
	if e := l.Entries(); !slices.ContainsFunc(e, func(e Entry) bool { return e.Port == a && e.MAC == host1 }) {
		t.Errorf("entries are %+v", e)
	}
	a.SetLimits(withSize(65536))
	qb.inject(withTags(frame(tcp4(70000), host2, host1), []byte{0x81, 0, 0, 10}))
	if n := len(qa.taken()); n != (70000+mss-1)/mss {
		t.Errorf("%d segments", n)
	}
}

// TestConfigureWaitsForTheBatchUnderWay, which leaves no address behind that does not fit.
func TestConfigureWaitsForTheBatchUnderWay(t *testing.T) {
	l := duringABatch(t, func(b *Port) {
		if err := b.Configure(PortConfig{Name: "b", VLAN: VLAN{Mode: VLANAccess, Tag: 10}}); err != nil {
			t.Error(err)
		}
	}, func(b *Port) bool { return !b.view().vlan.all })
	wantEntries(t, l.Switch)
}

// TestUnicastIntoAVLANThatIsNotCarried is dropped on the way, not sent there.
func TestUnicastIntoAVLANThatIsNotCarried(t *testing.T) {
	l := newLab(t)
	a, qa := l.port("a", bigLimits())
	b, qb := l.portConfig(PortConfig{Name: "b", VLAN: VLAN{Trunks: vlans(5)}}, bigLimits())
	l.fdb.learn(0, host2, b.id, 0) // by a worker that knew it differently
	qa.inject(small(host1, host2))
	same(t, qb.taken())
	wantIngress(t, a, vnet.DropVLAN, 1)
}

func TestNobodyCarriesTheVLAN(t *testing.T) {
	l := newLab(t)
	a, qa := l.port("a", bigLimits())
	l.portConfig(PortConfig{Name: "b", VLAN: VLAN{Trunks: vlans(5)}}, bigLimits())
	qa.inject(small(host1, broadcast))
	wantIngress(t, a, vnet.DropNoEgress, 1)
}

func TestConfigurationsThatCannotBe(t *testing.T) {
	l := newLab(t)
	a, _ := l.port("a", bigLimits())
	for _, c := range []struct {
		config PortConfig
		want   string
	}{
		{PortConfig{Name: "b"}, "it cannot be called b"},
		{PortConfig{Name: "a", Oversize: 3}, "oversize policy 3 does not exist"},
		{PortConfig{Name: "a", VLAN: VLAN{Mode: 4}}, "VLAN mode 4 does not exist"},
		{PortConfig{Name: "a", VLAN: VLAN{Tag: 4096}}, "4095 is the greatest"},
		{PortConfig{Name: "a", MACLimit: -1}, "MAC limit -1"},
		{PortConfig{Name: "a", StormLimit: -1}, "storm limit -1"},
		{PortConfig{Name: "a", StormLimit: 1 << 32}, "storm limit 4294967296"},
	} {
		if err := a.Configure(c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
		if c.config.Name == "a" {
			c.config.Name = "new"
			if _, err := l.AddPort(c.config); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		}
	}
	if c := a.Config(); c != (PortConfig{Name: "a"}) {
		t.Errorf("it is %+v", c)
	}
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{Ageing: 9}, "ageing time 9"},
		{Config{Ageing: 1000001}, "ageing time 1000001"},
		{Config{MACLimit: -1}, "MAC limit -1"},
		{Config{MACLimit: DefaultFDBSize + 1}, "room for 16384"},
	} {
		if err := l.Configure(c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	if c := l.Config(); c != (Config{}) {
		t.Errorf("the switch is %+v", c)
	}
	a.Remove()
	if err := a.Configure(PortConfig{Name: "a"}); err == nil {
		t.Error("a removed port is configured")
	}
}

func TestSwitchIsConfigured(t *testing.T) {
	l := newLab(t)
	a, qa := l.port("a", bigLimits())
	l.port("b", bigLimits())
	if err := l.Configure(Config{Ageing: 60, MACLimit: 2}); err != nil {
		t.Fatal(err)
	}
	if c := l.Config(); c != (Config{Ageing: 60, MACLimit: 2}) {
		t.Errorf("it is %+v", c)
	}
	qa.inject(small(host1, broadcast), small(host2, broadcast), small(host3, broadcast))
	wantEntries(t, l.Switch, Entry{MAC: host2, Port: a}, Entry{MAC: host3, Port: a})
	l.advance(60)
	wantEntries(t, l.Switch, Entry{MAC: host2, Port: a, Age: 60}, Entry{MAC: host3, Port: a, Age: 60})
	l.advance(61)
	wantEntries(t, l.Switch)
	if n := l.fdb.Len(); n != 0 {
		t.Errorf("%d addresses that are too old take room", n)
	}
	if err := l.Configure(Config{}); err != nil {
		t.Fatal(err)
	}
	qa.inject(small(host1, broadcast), small(host2, broadcast), small(host3, broadcast))
	l.advance(361)
	if n := len(l.Entries()); n != 3 {
		t.Errorf("%d addresses", n)
	}
}

// TestConfigureLosesNothing changes what does not concern two ports, and what does not
// stop them, while they talk.
func TestConfigureLosesNothing(t *testing.T) {
	l := newLab(t)
	a, qa := l.port("a", bigLimits())
	b, qb := l.port("b", bigLimits())
	c, _ := l.port("c", bigLimits())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 300 {
			mode := VLANMode(i % 4)
			for _, err := range []error{
				c.Configure(PortConfig{Name: "c", VLAN: VLAN{Mode: mode, Tag: 10}, Isolated: i%2 == 0}),
				a.Configure(PortConfig{Name: "a", Oversize: Oversize(i % 3), VLAN: VLAN{Trunks: vlans(0, uint16(1+i%9))}}),
				b.Configure(PortConfig{Name: "b", MACLimit: i % 3, StormLimit: 1000000}),
				l.Configure(Config{Ageing: Tick(10 + i), MACLimit: 1000 + i}),
			} {
				if err != nil {
					t.Error(err)
				}
			}
			l.Entries()
			l.Flush(c, -1)
		}
	}()
	n := 0
	for running := true; running; n++ {
		select {
		case <-done:
			running = false
		default:
		}
		qa.inject(frame(tcp4(50000), host1, host2))
		qb.inject(small(host2, host1))
	}
	if out, back := len(qb.taken()), len(qa.taken()); out != n || back != n {
		t.Errorf("%d and %d frames arrived, of %d each", out, back, n)
	}
}
