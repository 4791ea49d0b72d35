package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sluice/tunio/probe"
	"sluice/vnet"
)

// with is a report on what was found.
func with(found probe.Report) *Report {
	r := &Report{Kinds: map[string]Kind{}, Netdevs: []Netdev{}, Findings: []Finding{}}
	r.kernel(&found)
	return r
}

// marks are the marks of the findings about port kinds, by "object id".
func (r *Report) marks() map[string]Mark {
	m := map[string]Mark{}
	for _, f := range r.Findings {
		m[f.Object+" "+f.ID] = f.Mark
	}
	return m
}

func kindOf(name string, a probe.Ability) probe.Kind {
	k := probe.Kind{Name: name, Ability: a, HeaderLen: vnet.HeaderLen}
	k.Out.Types = probe.Types{TCPv4: true, TCPv6: true, UDP: true, ECN: true}
	k.In.Types = k.Out.Types
	return k
}

// TestWhatAKernelLacksIsTold, and what that means for a switch.
func TestWhatAKernelLacksIsTold(t *testing.T) {
	full := probe.Ability{IPv4: true, IPv6: vnet.FormPlain, MaxWrite: vnet.MaxFrame}
	v4 := probe.Ability{IPv4: true, MaxWrite: vnet.MaxFrame}
	old := probe.Ability{MaxWrite: vnet.LegacyGSOMaxSize - 1}
	for _, c := range []struct {
		name   string
		change func(tap, packet, macvtap *probe.Kind, r *probe.Report)
		want   map[string]Mark // beside what is ok
	}{
		{"nothing", func(_, _, _ *probe.Kind, _ *probe.Report) {}, map[string]Mark{}},
		{"IPv6 of packet", func(_, p, m *probe.Kind, r *probe.Report) {
			p.Ability, m.Ability, r.Packet = v4, v4, v4
		}, map[string]Mark{"packet big_ipv6": Note, "macvtap big_ipv6": Note}},
		{"all above 64 KiB of a tap", func(tap, _, _ *probe.Kind, r *probe.Report) {
			tap.Ability, r.Tap = old, old
		}, map[string]Mark{"tap big_ipv4": Note, "tap big_ipv6": Note}},
		{"macvtap is not like packet", func(_, _, m *probe.Kind, _ *probe.Report) { m.Ability = v4 },
			map[string]Mark{"macvtap ability": Note}},
		{"TAPs", func(tap, _, _ *probe.Kind, _ *probe.Report) { tap.Err, tap.HeaderLen = errors.New("no tun"), 0 },
			map[string]Mark{"tap works": Problem}},
		{"macvtaps", func(_, _, m *probe.Kind, _ *probe.Report) { m.Err, m.HeaderLen = errors.New("no macvtap"), 0 },
			map[string]Mark{"macvtap works": Note}},
		{"USO, both ways", func(tap, _, _ *probe.Kind, _ *probe.Report) { tap.Out.UDP, tap.In.UDP = false, false },
			map[string]Mark{"tap gso_out": Note, "tap gso_in": Note}},
		{"PACKET_VNET_HDR_SZ", func(_, p, _ *probe.Kind, _ *probe.Report) { p.HeaderLen = vnet.MinHeaderLen },
			map[string]Mark{"packet header": Note}},
		{"tcx", func(_, _, _ *probe.Kind, r *probe.Report) { r.HostDrop = errors.ErrUnsupported },
			map[string]Mark{"packet host_drop": Note}},
		{"everything", func(_, _, _ *probe.Kind, r *probe.Report) { r.Kinds, r.Why = nil, "no namespace" },
			map[string]Mark{"kernel tried": Note}},
	} {
		found := probe.Report{
			Result: probe.Result{Release: "7.3", Tap: full, Packet: full, Probed: true},
			Kinds:  []probe.Kind{kindOf("tap", full), kindOf("packet", full), kindOf("macvtap", full)},
		}
		k := found.Kinds
		c.change(&k[0], &k[1], &k[2], &found)
		r := with(found)
		got := r.marks()
		problems := 0
		for what, mark := range got {
			if mark == Problem {
				problems++
			}
			if mark != OK && c.want[what] != mark {
				t.Errorf("without %s: %s is a %s", c.name, what, mark)
			}
		}
		for what, mark := range c.want {
			if got[what] != mark {
				t.Errorf("without %s: %s is %q, want a %s", c.name, what, got[what], mark)
			}
		}
		if r.Problems != problems || len(r.Kinds) != 3 || r.HostDrop.Works != (found.HostDrop == nil) {
			t.Errorf("without %s: %+v", c.name, r)
		}
		for name, kind := range r.Kinds {
			if kind.Tried != nil != (len(found.Kinds) > 0 && kind.Error == "") {
				t.Errorf("without %s: %s: tried %+v", c.name, name, kind)
			}
		}
	}
}

// TestDocumentationHasEveryField of the report, and no other.
func TestDocumentationHasEveryField(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, contract, _ := strings.Cut(string(doc), "# The report")
	contract, _, _ = strings.Cut(contract, "# Units")
	named := map[string]bool{}
	for _, name := range regexp.MustCompile(`"([a-z0-9_]+)"`).FindAllStringSubmatch(contract, -1) {
		named[name[1]] = true
	}
	r := with(probe.Report{Kinds: []probe.Kind{kindOf("tap", probe.Ability{}), kindOf("packet", probe.Ability{}),
		kindOf("macvtap", probe.Ability{})}})
	r.Netdevs = []Netdev{{HeldBy: &Holder{}, Ports: map[string]Port{"packet": {}}}}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	// The limits are the summary's, documented there.
	delete(all["netdevs"].([]any)[0].(map[string]any)["ports"].(map[string]any)["packet"].(map[string]any), "limits")
	have := map[string]bool{"limits": true}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, below := range v {
				have[name] = true
				walk(below)
			}
		case []any:
			for _, below := range v {
				walk(below)
			}
		}
	}
	walk(all)
	for name := range have {
		if !named[name] {
			t.Errorf("%s is in no line of the package comment", name)
		}
	}
	for name := range named {
		if !have[name] {
			t.Errorf("the package comment names %s, which the report does not have", name)
		}
	}
}

// TestTextFitsATerminal, whatever the names of netdevs and processes.
func TestTextFitsATerminal(t *testing.T) {
	r := with(probe.Report{Result: probe.Result{Release: "6.18.44-with-a-long-name"}, HostDrop: errors.New("x")})
	long := strings.Repeat("altname\x1b[2J", 20)
	r.Netdevs = []Netdev{{Name: "vA", Found: true, AltNames: []string{long}, Ports: map[string]Port{"packet": {}}}}
	r.find(Finding{Group: netdevs, Object: "vA", ID: "x", Mark: Problem, Text: long, Means: long, Mend: "ip " + long})
	r.find(Finding{Group: netdevs, Object: "vA", ID: "y", Mark: Note, Text: "short",
		Mend: strings.Repeat("sysctl -w a=b ", 20), Advice: strings.Repeat("some words ", 20)})
	for _, colour := range []bool{false, true} {
		var b bytes.Buffer
		if err := r.WriteText(&b, colour); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		if strings.Contains(text, "\x1b[31mproblem") != colour {
			t.Errorf("colour %v:\n%s", colour, text)
		}
		for _, c := range colours {
			text = strings.ReplaceAll(text, c, "")
		}
		text = strings.ReplaceAll(text, "\x1b[0m", "")
		continued := 0
		for line := range strings.Lines(text) {
			if n := len(strings.TrimSuffix(line, "\n")); n > 80 || strings.Contains(line, "\x1b") {
				t.Errorf("%d columns: %q", n, line)
			}
			if strings.HasSuffix(line, " \\\n") && strings.Contains(line, "sysctl") {
				continued++
			}
			if strings.HasSuffix(line, " \\\n") && strings.Contains(line, "some words") {
				t.Errorf("advice is no command: %q", line)
			}
		}
		if continued == 0 {
			t.Errorf("a command of several lines cannot be copied:\n%s", text)
		}
	}
}

// TestColourIsForTerminals that want it.
func TestColourIsForTerminals(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no terminal can be made: ", err)
	}
	defer terminal.Close()
	r, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer pipe.Close()
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	if !Colourful(terminal) || Colourful(pipe) {
		t.Errorf("a terminal: %v, a pipe: %v", Colourful(terminal), Colourful(pipe))
	}
	t.Setenv("NO_COLOR", "1")
	if Colourful(terminal) {
		t.Error("colour in spite of NO_COLOR")
	}
}

// TestWrapLosesNothing: all words are there, in order.
func TestWrapLosesNothing(t *testing.T) {
	for _, said := range []string{"", "a", "some words of a sentence that goes on", strings.Repeat("x", 50) + " y"} {
		lines := wrap(said, 10)
		got := strings.Join(lines, " ")
		if strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(said, " ", "") {
			t.Errorf("%q became %q", said, lines)
		}
		if slices.ContainsFunc(lines, func(l string) bool { return len(l) > 10 }) {
			t.Errorf("%q", lines)
		}
	}
}
