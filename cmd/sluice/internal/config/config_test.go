package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"sluice/dataplane"
	"sluice/vnet"
)

// parsed is the switch of a file that must be right.
func parsed(t *testing.T, file string) Switch {
	t.Helper()
	s, err := ParseYAML("test.yaml", []byte(file))
	if err != nil {
		t.Fatalf("%v\nof\n%s", err, file)
	}
	return s
}

func TestParseTakesEveryKey(t *testing.T) {
	trunks := VLANs{}
	trunks.Add(0, 0)
	trunks.Add(20, 30)
	trunks.Add(4095, 4095)
	a := Port{
		Name: "a", Kind: Packet, Device: "vA", MTU: 9000, Queues: 4,
		GSOMaxSize: 65536, GSOIPv4MaxSize: 131072, GSOMaxSegs: 16,
		Oversize: dataplane.OversizeSegment, Offload: OffloadCsum, Host: HostKeep, Reserved: ReservedDrop,
		VLANMode: NativeUntagged, Tag: Tag{VLAN: 10, Set: true}, Trunks: trunks,
		Isolated: true, MACLimit: 100, Storm: 1000, Loop: LoopShut,
	}
	b := DefaultPort("b", Tap, "tB")
	b.Netns, b.Tag = "B", Tag{Set: true}
	c := DefaultPort("3", Macvtap, "m0")
	c.Lower = "eth0.100"
	want := Switch{
		Name: "lab", Reserved: ReservedForward,
		FDB: FDB{Size: 32768, Ageing: 60, MACLimit: 20000, Static: []Entry{
			{VLAN: 10, MAC: 0x52540000000a, Port: "a"}, {MAC: 0x52540000000a, Port: "b"},
		}},
		Ports: []Port{a, b, c},
		Mirrors: []Mirror{{
			Name: "watch", Ports: []string{"a", "b"}, Direction: Ingress, VLAN: Tag{VLAN: 10, Set: true}, To: "3",
		}},
		Metrics: "127.0.0.1:9100",
		Control: Control{Socket: "/run/lab.sock", Group: "wheel"},
	}
	got := parsed(t, example)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for _, p := range want.Ports {
		if got, err := ParsePort(p.String()); err != nil || got != p {
			t.Errorf("%s: got %+v, %v; want %+v", p, got, err, p)
		}
	}
	roundTrip(t, want)
	if text, _ := want.MarshalYAML(); string(text) != example {
		t.Errorf("printed as\n%swant\n%s", text, example)
	}
}

// Every field of the value is in a table: Equal and Diff see a difference in it, and it survives
// each spelling.
func TestEveryFieldHasAKey(t *testing.T) {
	s := parsed(t, example)
	def := Default()
	port := DefaultPort("", "", "")
	for what, pair := range map[string][2]any{
		"Switch": {s, def}, "FDB": {s.FDB, def.FDB}, "Control": {s.Control, def.Control},
		"Entry": {s.FDB.Static[0], Entry{}}, "Mirror": {s.Mirrors[0], Mirror{Direction: Both}},
	} {
		a, b := reflect.ValueOf(pair[0]), reflect.ValueOf(pair[1])
		for i := range a.NumField() {
			if reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
				t.Errorf("the example says nothing of %s.%s", what, a.Type().Field(i).Name)
			}
		}
	}
	fields := reflect.TypeFor[Port]()
	for i := range fields.NumField() {
		given := slices.ContainsFunc(s.Ports, func(p Port) bool {
			return reflect.ValueOf(p).Field(i).Interface() != reflect.ValueOf(port).Field(i).Interface()
		})
		if !given {
			t.Errorf("the example says nothing of Port.%s", fields.Field(i).Name)
		}
	}
}

func TestNothingIsADefaultSwitch(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "{}", "{}\n", "---\n"} {
		s, err := ParseYAML("f", []byte(text))
		if err != nil || !s.Equal(Default()) {
			t.Errorf("%q: %+v, %v", text, s, err)
		}
	}
	roundTrip(t, Default())
	if d := Default(); d.FDB.Size != 16384 || d.FDB.Ageing != 300 || d.Reserved != ReservedDrop {
		t.Errorf("defaults: %+v", d)
	}
}

// TestLayoutsOfYAML that mean the same.
func TestLayoutsOfYAML(t *testing.T) {
	want := parsed(t, "fdb: {static: [{mac: 02:00:00:00:00:01, port: a}]}\nports: {a: {kind: tap, device: t, trunks: [1, 2-3]}}\n")
	for _, file := range []string{
		"fdb:\n  static:\n  - mac: 02:00:00:00:00:01\n    port: a\nports:\n  a:\n    kind: tap\n    device: t\n    trunks:\n    - 1\n    - 2-3\n",
		"# c\nfdb: # c\n  # c\n  static:\n    # c\n    -\n      mac: '02:00:00:00:00:01' # c\n      port: \"a\"\n" +
			"ports:\r\n  a:\r\n    kind: tap\r\n    device: t\r\n    trunks: [1,\r\n      2-3]\r\n",
		"{fdb: {static: [{mac: 02:00:00:00:00:01,\n port: a}]},\nports: {a: {kind: tap, device: t, trunks: [1, 2-3]}}}",
		`{"fdb": {"static": [{"mac": "02:00:00:00:00:01", "port": "a"}]}, "ports": {"a": {"kind": "tap", "device": "t", "trunks": [1, "2-3"]}}}`,
	} {
		if s := parsed(t, file); !s.Equal(want) {
			t.Errorf("%s\ndiffers: %v", file, Diff(want, s))
		}
	}
}

// TestModeFollowsOpenVSwitch: port_configure in its vswitchd/bridge.c.
func TestModeFollowsOpenVSwitch(t *testing.T) {
	for arg, want := range map[string]VLANMode{
		"a=tap:t":                                  Trunk,
		"a=tap:t,trunks=1":                         Trunk,
		"a=tap:t,tag=0":                            Access,
		"a=tap:t,tag=5":                            Access,
		"a=tap:t,vlan_mode=access":                 Access,
		"a=tap:t,vlan_mode=trunk":                  Trunk,
		"a=tap:t,tag=5,vlan_mode=native-tagged":    NativeTagged,
		"a=tap:t,vlan_mode=native-untagged,tag=10": NativeUntagged,
	} {
		p, err := ParsePort(arg)
		if err != nil || p.Mode() != want {
			t.Errorf("%s: %s, %v; want %s", arg, p.Mode(), err, want)
		}
	}
}

func TestVLANSets(t *testing.T) {
	for text, want := range map[string]string{
		"10": "10", "10+20-30": "10+20-30", "20-30+10": "10+20-30", "1-5+3-7": "1-7", "0-4095": "0-4095",
		"7-7": "7", "63-64": "63-64", "4095+0": "0+4095", "5+6": "5-6",
	} {
		p, err := ParsePort("a=tap:t,trunks=" + text)
		if got := p.Trunks.String(); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
	var v VLANs
	v.Add(64, 66)
	if v.Len() != 3 || v.Has(63) || !v.Has(64) || !v.Has(66) || v.Has(67) {
		t.Errorf("64 to 66: %s, %d of them", v, v.Len())
	}
}

// wrong are files with one error each: the message, and its place.
var wrong = []struct{ file, says string }{
	{"port: {}", "1:1: port: no such key: did you mean ports?"},
	{"nonsense: 1", "1:1: nonsense: no such key: the keys are name, reserved, fdb, ports, mirrors, metrics, control"},
	{"name: a\nname: b", "2:1: name: the key is given twice: leave one out"},
	{"name: 5", "1:7: name: 5 is a number: want a name, so put it in quotes"},
	{"name: -x", `1:7: name: name "-x": want letters, digits and . _ @ -, a letter or digit first`},
	{"name: ''", "1:7: name: the name is empty"},
	{"name:", "1:1: name: there is no value: want a name"},
	{"name: [a]", "1:1: name: a list is not a name"},
	{"- a", "1:1: a list is not a map of keys"},
	{"a", `1:1: "a" is not a map of keys`},
	{"reserved: flood", `1:11: reserved: "flood" is not drop or forward`},
	{"fdb: 5", "1:6: fdb: 5 is not a map of keys"},
	{"fdb: {size: 16383}", "1:13: fdb.size: 16383 is not a number from 16384 to 1048576"},
	{"fdb: {aging: 5}", "1:7: fdb.aging: no such key: did you mean ageing?"},
	{"fdb: {static: {}}", "1:7: fdb.static: a map is not a list"},
	{"fdb:\n  static:\n    - {mac: 01:00:5e:00:00:01, port: a}\nports: {a: {kind: tap, device: t}}",
		`3:13: fdb.static[0].mac: "01:00:5e:00:00:01" is not the MAC address of a host, such as 52:54:00:00:00:0a`},
	{"fdb:\n  static:\n    - {mac: 2, port: a}\nports: {a: {kind: tap, device: t}}",
		"3:13: fdb.static[0].mac: 2 is not the MAC address of a host, such as 52:54:00:00:00:0a"},
	{"fdb: {static: [{mac: 02:00:00:00:00:01, port: ab, vlan: 4}]}\nports: {abc: {kind: tap, device: t}}",
		`1:47: fdb.static[0].port: there is no port "ab": did you mean abc?`},
	{"fdb: {static: [{mac: 02:00:00:00:00:01}]}", "1:16: fdb.static[0].port: it is missing: add the port that it is behind"},
	{"fdb: {static: [{mac: 02:00:00:00:00:01, port: a}, {mac: 02:00:00:00:00:01, port: a}]}\nports: {a: {kind: tap, device: t}}",
		"1:51: fdb.static[1]: there are two of 02:00:00:00:00:01 in VLAN 0: give each its own"},
	{"ports: [a]", "1:1: ports: a list is not a map of ports by name"},
	{"ports:\n  a:\n", "2:3: ports.a: there is no value: want a map of keys"},
	{"ports:\n  a: {kind: tap}\n", "2:3: ports.a.device: it is missing: add the netdev's name"},
	{"ports:\n  a b: {kind: tap, device: t}\n", `2:3: ports.a b: name "a b": want letters, digits and . _ @ -, a letter or digit first`},
	{"ports:\n  a: {kind: tap, device: t}\n  a: {kind: tap, device: s}\n",
		"3:3: ports.a: there is another port of this name in line 2: give each its own"},
	{"ports:\n  a: {kind: tap, device: t}\n  b: {kind: tap, device: t}\n", "3:26: ports.b.device: device t is under port a already"},
	{"ports: {a: {kind: veth, device: t}}", `1:19: ports.a.kind: no such port kind "veth": use tap, packet or macvtap`},
	{"ports: {a: {kind: 3, device: t}}", "1:19: ports.a.kind: 3 is not tap, packet or macvtap"},
	{"ports: {a: {kind: tap, device: a/b}}", `1:32: ports.a.device: device name "a/b": want a name that a netdev can have`},
	{"ports: {a: {kind: tap, device: ..}}", `1:32: ports.a.device: ".." is not a name that a netdev can have`},
	{"ports: {a: {kind: tap, device: \"a\\tb\"}}", `1:32: ports.a.device: device name "a\tb": want a name that a netdev can have`},
	{"ports: {a: {kind: tap, device: 1" + strings.Repeat("x", 127) + "}}",
		`1:32: ports.a.device: device name "1` + strings.Repeat("x", 127) + `" has 128 bytes, and at most 127 are allowed`},
	{"ports: {a: {kind: tap, device: t, gso_max_sise: 1}}", "1:35: ports.a.gso_max_sise: no such key: did you mean gso_max_size?"},
	{"ports: {a: {kind: tap, device: t, trunk: [1]}}", "1:35: ports.a.trunk: no such key: did you mean trunks?"},
	{"ports: {a: {kind: tap, device: t, vlan: 1}}", "1:35: ports.a.vlan: no such key: did you mean vlan_mode?"},
	{"ports: {a: {kind: tap, device: t, netns: A}, b: {kind: tap, device: t, netns: A}}",
		"1:69: ports.b.device: device t is under port a already"},
	{"fdb:\n  static:\n    - mac: 02:00:00:00:00:01\n", "3:7: fdb.static[0].port: it is missing: add the port that it is behind"},
	{"ports: {a: {kind: tap, device: t, colour: 1}}", "1:35: ports.a.colour: no such key: `sluice config schema` lists them"},
	{"ports: {a: {kind: tap, device: t, mtu: 67}}", "1:40: ports.a.mtu: 67 is not a number from 68 to 65535"},
	{"ports: {a: {kind: tap, device: t, mtu: 0}}", "1:40: ports.a.mtu: 0 is not a number from 68 to 65535"},
	{"ports: {a: {kind: tap, device: t, mtu: '1500'}}", `1:40: ports.a.mtu: "1500" is text: want the number without quotes`},
	{"ports: {a: {kind: tap, device: t, mtu: 01500}}", "1:40: ports.a.mtu: 01500 is not a number from 68 to 65535"},
	{"ports: {a: {kind: tap, device: t, mtu: 1.5e3}}", "1:40: ports.a.mtu: 1.5e3 is not a number from 68 to 65535"},
	{"ports: {a: {kind: tap, device: t, mtu: 99999999999999999999}}",
		`1:40: ports.a.mtu: "99999999999999999999" is not a number from 68 to 65535`},
	{"ports: {a: {kind: tap, device: t, queues: 0}}", "1:43: ports.a.queues: 0 is not a number from 1 to 256"},
	{"ports: {a: {kind: tap, device: t, isolated: yes}}", `1:45: ports.a.isolated: "yes" is not true or false`},
	{"ports: {a: {kind: tap, device: t, tag: 4096}}", "1:40: ports.a.tag: 4096 is not a number from 0 to 4095"},
	{"ports: {a: {kind: tap, device: t, trunks: 10}}", "1:43: ports.a.trunks: 10 is not a list, such as [10, 20-30]"},
	{"ports: {a: {kind: tap, device: t, trunks: [30-20]}}",
		`1:35: ports.a.trunks: "30-20" is not a VLAN from 0 to 4095, or a range of them such as 20-30`},
	{"ports: {a: {kind: tap, device: t, trunks: [4096]}}",
		"1:35: ports.a.trunks: 4096 is not a VLAN from 0 to 4095, or a range of them such as 20-30"},
	{"ports: {a: {kind: tap, device: t, trunks: ['10']}}",
		`1:35: ports.a.trunks: "10" is not a VLAN from 0 to 4095, or a range of them such as 20-30`},
	{"ports: {a: {kind: tap, device: t, trunks: []}}", "1:35: ports.a.trunks: the list is empty: leave it out to carry all VLANs"},
	{"ports: {a: {kind: tap, device: t, vlan_mode: trunk, tag: 1}}",
		"1:58: ports.a.tag: a trunk has no tag: leave it out, or use vlan_mode native-untagged or native-tagged"},
	{"ports: {a: {kind: tap, device: t, trunks: [1], tag: 1}}",
		"1:35: ports.a.trunks: an access port carries only the VLAN of its tag: leave trunks out, or use vlan_mode native-untagged"},
	{"ports: {a: {kind: packet, device: t, netns: B}}", "1:45: ports.a.netns: key netns is for tap ports, and a is a packet port"},
	{"ports: {a: {kind: tap, device: t, lower: B}}", "1:42: ports.a.lower: key lower is for macvtap ports, and a is a tap port"},
	{"ports: {a: {kind: tap, device: t, host: drop}}", "1:41: ports.a.host: key host is for packet ports, and a is a tap port"},
	{"ports: {a: {kind: tap, device: t, netns: 'a,b'}}",
		"1:42: ports.a.netns: namespace \"a,b\": want a name that `ip netns` knows, or a path, without spaces and commas"},
	{"mirrors: {m: {ports: [a]}}\nports: {a: {kind: tap, device: t}}", "1:11: mirrors.m.to: it is missing: add the port that gets the copies"},
	{"mirrors: {m: {ports: [a], to: b}}\nports: {a: {kind: tap, device: t}}", `1:31: mirrors.m.to: there is no port "b"`},
	{"mirrors: {m: {ports: [b], to: a}}\nports: {a: {kind: tap, device: t}}", `1:15: mirrors.m.ports: there is no port "b"`},
	{"mirrors: {m: {ports: [a], to: a}}\nports: {a: {kind: tap, device: t}}",
		"1:31: mirrors.m.to: port a is itself mirrored: choose another"},
	{"mirrors: {m: {to: a}}\nports: {a: {kind: tap, device: t}}",
		"1:11: mirrors.m.ports: neither ports nor vlan is given: say what to copy"},
	{"mirrors: {m: {ports: [b, b], to: a}}\nports: {a: {kind: tap, device: t}, b: {kind: tap, device: u}}",
		"1:15: mirrors.m.ports: port b is named twice"},
	{"mirrors: {m: {ports: [], to: a}}\nports: {a: {kind: tap, device: t}}",
		"1:15: mirrors.m.ports: the list is empty: leave it out for all ports"},
	{"mirrors: {m: {ports: [b], direction: in, to: a}}\nports: {a: {kind: tap, device: t}, b: {kind: tap, device: u}}",
		`1:38: mirrors.m.direction: "in" is not ingress, egress or both`},
	{"metrics: 9100", "1:10: metrics: 9100 is a number: want a listen address, so put it in quotes"},
	{"metrics: localhost", `1:10: metrics: listen address "localhost": want [HOST]:PORT, such as :9100 or 127.0.0.1:9100`},
	{"metrics: a:b:1", `1:10: metrics: listen address "a:b:1": want [HOST]:PORT, such as :9100 or 127.0.0.1:9100`},
	{"metrics: ':70000'", `1:10: metrics: listen address ":70000": want a port from 1 to 65535`},
	{"control: {socket: run/x}", `1:19: control.socket: socket path "run/x": want an absolute path, or none`},
	{"control: {socket: /run/../x}", `1:19: control.socket: socket path "/run/../x": want /x`},
	{"ports: *x", "1:8: ports: anchors, aliases and type tags are not supported: write the value itself"},
	{"ports: &x {}", "1:8: ports: anchors, aliases and type tags are not supported: write the value itself"},
	{"name: !!str x", "1:7: name: anchors, aliases and type tags are not supported: write the value itself"},
	{"<<: {name: x}", "1:1: a key is a word: merge keys, anchors and others are not supported"},
	{"name: a\n---\nname: b\n", "3:5: there is a second document: a file has one"},
	{"name: [a", "1:7: sequence end token ']' not found"},
	{"\tname: a", "1:5: tab character cannot use as a map key directly"},
	{"name: \"\xff\"", "1:8: the text is not UTF-8"},
	{"a: " + strings.Repeat("[", 17), "1:20: values are nested more than 16 deep"},
	{strings.Repeat("- ", 17), "1:33: values are nested more than 16 deep"},
	{strings.Repeat("&a ", 17) + "b", "1:49: values are nested more than 16 deep"},
	{"name: a: b", "1:8: there is a second colon in the line: put the value in quotes, or the key on a line of its own"},
	{strings.Repeat("a:\n", 51), "51:2: more than 50 keys have no value"},
	{"a:\n" + strings.Repeat("-\n", 51), "52:1: more than 50 keys have no value"},
	{strings.Repeat("# long\n", MaxDocument/7+1), "it is longer than 262144 bytes"},
}

func TestYAMLSaysWhatIsWrongWhereAndWhatIsRight(t *testing.T) {
	for _, c := range wrong {
		_, err := ParseYAML("f.yaml", []byte(c.file))
		if err == nil {
			t.Errorf("%.200q: no error; want %q", c.file, c.says)
			continue
		}
		if got := err.Error(); got != "f.yaml:"+c.says && got != "f.yaml: "+c.says {
			t.Errorf("%.200q:\ngot  %s\nwant f.yaml:%s", c.file, got, c.says)
		}
		for line := range strings.Lines(err.Error()) {
			if len(line) > 160 && !strings.Contains(line, "has 128 bytes") {
				t.Errorf("%d columns: %s", len(line), line)
			}
		}
	}
}

func TestJSONSaysWhatIsWrongWhereAndWhatIsRight(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "1:1: unexpected end of JSON input",
		`[]`:                         "1:1: a list is not a map of keys",
		`null`:                       "1:1: there is no value: want a map of keys",
		"{\n  \"näme\": 1}":          "2:3: näme: no such key: did you mean name?",
		"{\"ä\": 1, \"name\": 5}":    "1:2: ä: no such key: the keys are name, reserved, fdb, ports, mirrors, metrics, control\n1:18: name: 5 is a number: want a name, so put it in quotes",
		`{"name": "a",}`:             "1:14: invalid character '}' looking for beginning of object key string",
		`{"name" "a"}`:               "1:9: invalid character '\"' after object key",
		`{"name": "a"} 1`:            "1:15: invalid character '1' after top-level value",
		`{"name": "a", "name": ""}`:  "1:15: name: the key is given twice: leave one out",
		`{"fdb": {"size": 1e5}}`:     "1:18: fdb.size: 1e5 is not a number from 16384 to 1048576",
		`{"fdb": {"size": "20000"}}`: `1:18: fdb.size: "20000" is text: want the number without quotes`,
		`{"ports": {"a": {"kind": "tap", "device": "t", "isolated": "true"}}}`:         `1:60: ports.a.isolated: "true" is not true or false`,
		"{\"ports\":\n{\"a\": {\"kind\": \"tap\", \"device\": \"t\"},\n \"a\": null}}": "3:2: ports.a: there is another port of this name in line 2: give each its own",
	} {
		_, err := ParseJSON([]byte(text))
		if err == nil || err.Error() != want {
			t.Errorf("%s:\ngot  %v\nwant %s", text, err, want)
		}
	}
}

func TestArgumentsSayWhatIsWrongAndWhatIsRight(t *testing.T) {
	for arg, want := range map[string]string{
		"":                                     "want NAME=KIND:DEVICE[,key=value...], for example a=packet:veth0",
		"vA":                                   "want NAME=KIND:DEVICE",
		"a=vA":                                 "want NAME=KIND:DEVICE",
		"=packet:vA":                           "the port has no name: want NAME=packet:vA",
		"a b=packet:vA":                        `name "a b": want letters, digits`,
		"a=veth:vA":                            `kind: no such port kind "veth": use tap, packet or macvtap`,
		"a=packet:":                            "device: the device name is empty",
		"a=packet:" + strings.Repeat("x", 128): "has 128 bytes, and at most 127 are allowed",
		"a=packet:a/b":                         `device: device name "a/b": want a name that a netdev can have`,
		"a=packet:vA,mtu":                      `"mtu" is not key=value; lists are joined by +, such as trunks=10+20-30`,
		"a=packet:vA,trunks=1,2":               `"2" is not key=value; lists are joined by +`,
		"a=packet:vA,,mtu=1500":                `"" is not key=value`,
		"a=packet:vA,mtu=":                     `"mtu=" is not key=value`,
		"a=packet:vA,mtu=67":                   "mtu: 67 is not a number from 68 to 65535",
		"a=packet:vA,mtu=x":                    `mtu: "x" is not a number`,
		"a=packet:vA,mtu=+1500":                `mtu: "+1500" is not a number`,
		"a=packet:vA,mtu=1500,mtu=9000":        "mtu: the key is given twice",
		"a=packet:vA,kind=tap":                 "kind: the key is given twice",
		"a=packet:vA,gso_max_size=524281":      "gso_max_size: 524281 is not a number from 128 to 524280",
		"a=packet:vA,queues=0":                 "queues: 0 is not a number from 1 to 256",
		"a=packet:vA,netns=B":                  "netns: key netns is for tap ports, and a is a packet port",
		"a=tap:tA,lower=eth0":                  "key lower is for macvtap ports",
		"a=tap:tA,host=drop":                   "key host is for packet ports",
		"a=packet:vA,host=maybe":               `host: "maybe" is not drop or keep`,
		"a=packet:vA,offload=some":             `offload: "some" is not auto, full, csum or none`,
		"a=packet:vA,oversize=drop":            `oversize: "drop" is not resegment, segment or pass`,
		"a=packet:vA,isolated=1":               `isolated: "1" is not true or false`,
		"a=packet:vA,trunks=10++20":            `trunks: "" is not a VLAN from 0 to 4095`,
		"a=packet:vA,tag=none":                 `tag: "none" is not a number from 0 to 4095`,
		"a=packet:vA,tags=1":                   "tags: no such key: did you mean tag?",
		"a=packet:vA,speed=1":                  "speed: no such key: `sluice config schema` lists them",
	} {
		_, err := ParsePort(arg)
		if err == nil || !strings.HasPrefix(err.Error(), "-p "+arg+": ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want the argument and %q", arg, err, want)
		}
	}
	if _, err := ParsePort("a=packet:vA,"); err != nil {
		t.Errorf("a comma at the end: %v", err)
	}
}

// All errors are reported, in the order of the file, without those that only follow from others.
func TestEveryErrorIsReported(t *testing.T) {
	_, err := ParseYAML("f", []byte(`ports:
  a: {kind: veth, device: vA, mtu: 1, mtu: 2}
  b: {kind: packet, device: vA, color: red}
  c: 5
mirrors: {m: {to: d, ports: [a]}}
name: ""
`))
	want := `f:2:13: ports.a.kind: no such port kind "veth": use tap, packet or macvtap
f:2:36: ports.a.mtu: 1 is not a number from 68 to 65535
f:2:39: ports.a.mtu: the key is given twice: leave one out
f:3:29: ports.b.device: device vA is under port a already
f:3:33: ports.b.color: no such key: ` + "`sluice config schema` lists them" + `
f:4:6: ports.c: 5 is not a map of keys
f:5:19: mirrors.m.to: there is no port "d"
f:6:7: name: the name is empty`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestErrorsAreBounded(t *testing.T) {
	_, err := ParseYAML("f", []byte("ports: {"+strings.Repeat("-, ", 60)+"}"))
	errs, _ := err.(Errors)
	if len(errs) != maxErrors+1 || !strings.Contains(errs[maxErrors].Text, "more errors") {
		t.Errorf("%d errors: %v", len(errs), err)
	}
}

// Validate is for values that no parser made: it finds values that the forms do not take, and
// conflicts between values.
func TestValidateChecksWhatWasNotParsed(t *testing.T) {
	for _, c := range []struct {
		says string
		edit func(*Switch)
	}{
		{"name: the name is empty", func(s *Switch) { s.Name = "" }},
		{`reserved: `, func(s *Switch) { s.Reserved = "" }},
		{"fdb.size: 1 is not", func(s *Switch) { s.FDB.Size = 1 }},
		{"fdb.mac_limit: -1 is not", func(s *Switch) { s.FDB.MACLimit = -1 }},
		{"fdb.static[0].vlan: 4096 is not", func(s *Switch) { s.FDB.Static[0].VLAN = 4096 }},
		{"fdb.static[0].mac: ", func(s *Switch) { s.FDB.Static[0].MAC = 1<<48 + 2 }},
		{"ports.a: there are two of a", func(s *Switch) { s.Ports[1].Name = "a" }},
		{"ports.a.kind: it is missing", func(s *Switch) { s.Ports[0].Kind = "" }},
		{"ports.a.queues: 0 is not", func(s *Switch) { s.Ports[0].Queues = 0 }},
		{"ports.a.tag: 4096 is not", func(s *Switch) { s.Ports[0].Tag = Tag{VLAN: 4096, Set: true} }},
		{"ports.a.oversize: ", func(s *Switch) { s.Ports[0].Oversize = 9 }},
		{"ports.a.loop: ", func(s *Switch) { s.Ports[0].Loop = "" }},
		{"ports.a.device: device name \"\\xff\"", func(s *Switch) { s.Ports[0].Device = "\xff" }},
		{"ports.b b: name", func(s *Switch) { s.Ports[1].Name = "b b" }},
		{"fdb.static: 32769 addresses do not fit into a size of 32768", func(s *Switch) {
			s.FDB.Static = nil
			for i := range s.FDB.Size + 1 {
				s.FDB.Static = append(s.FDB.Static, Entry{MAC: vnet.MAC(0x020000000000 + i), Port: "a"})
			}
		}},
		{"mirrors.watch.direction: ", func(s *Switch) { s.Mirrors[0].Direction = "" }},
	} {
		s := parsed(t, example)
		c.edit(&s)
		err := s.Validate()
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v; want %q", err, c.says)
		}
	}
	if err := (Switch{}).Validate(); err == nil {
		t.Error("a zero Switch is valid")
	}
	if err := (Port{}).Validate(); err == nil {
		t.Error("a zero Port is valid")
	}
	if err := DefaultPort("a", Tap, "t").Validate(); err != nil {
		t.Error(err)
	}
}

func TestDiffTellsEachChange(t *testing.T) {
	old := parsed(t, example)
	new := parsed(t, strings.NewReplacer(
		"name: lab", "name: lab2", "ageing: 60", "ageing: 300", "tag: 10\n", "tag: 11\n", "    device: tB", "    device: tC",
		"    gso_max_segs: 16\n", "", "    tag: 0\n", "", "port: b", "port: a", "queues: 4", "queues: 2",
		"trunks: [0, 20-30, 4095]", "trunks: [20-31]", "[a, b]", "[b]", "    isolated: true\n", "",
	).Replace(example))
	new.Ports = append([]Port{DefaultPort("x", Packet, "vX")}, new.Ports...)
	new.Ports[1], new.Ports[2] = new.Ports[2], new.Ports[1]
	new.Ports = slices.DeleteFunc(new.Ports, func(p Port) bool { return p.Name == "3" })
	new.Mirrors[0].To = "x"
	new.Mirrors = append(new.Mirrors, Mirror{Name: "w2", Ports: []string{"a"}, Direction: Both, To: "x"})
	want := []string{
		"name lab -> lab2 (restart)",
		"fdb: ageing 60 -> 300 (live)",
		"static address 52:54:00:00:00:0a in VLAN 0: port b -> a (live)",
		"port 3 removed",
		"port b: device tB -> tC (re-attach)",
		"port b: tag 0 -> unset (live)",
		"port a: queues 4 -> 2 (re-attach)",
		"port a: gso_max_segs 16 -> unset (live)",
		"port a: tag 10 -> 11 (live)",
		"port a: trunks 0+20-30+4095 -> 20-31 (live)",
		"port a: isolated true -> false (live)",
		"port x added: x=packet:vX",
		"ports: order a+b -> b+a (live)",
		"mirror watch: ports a+b -> b (live)",
		"mirror watch: to 3 -> x (live)",
		"mirror w2 added: ports=a,to=x",
	}
	var got []string
	changes := Diff(old, new)
	for _, c := range changes {
		got = append(got, c.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if c := changes[0]; !c.Fixed() || c.Port() != "" {
		t.Errorf("%v: fixed %v, port %q", c, c.Fixed(), c.Port())
	}
	if c := changes[4]; c.Fixed() || c.Port() != "b" {
		t.Errorf("%v: fixed %v, port %q", c, c.Fixed(), c.Port())
	}
	if c := changes[13]; c.Port() != "" {
		t.Errorf("%v is of port %q", c, c.Port())
	}
	a, _ := old.Port("a")
	b := a
	b.Tag.VLAN++
	if a.NeedsQueues(b) {
		t.Error("another tag needs other queues")
	}
	if b.Queues++; !a.NeedsQueues(b) {
		t.Error("more queues need no other queues")
	}
	if old.Equal(new) || len(Diff(old, old)) > 0 || len(Diff(new, new)) > 0 {
		t.Error("Equal and Diff disagree")
	}
}

// TestEqualAndDiffSeeEveryField outside of ports, whose fields == sees.
func TestEqualAndDiffSeeEveryField(t *testing.T) {
	s := parsed(t, example)
	for want, edit := range map[string]func(*Switch){
		"name lab -> x (restart)":                                         func(s *Switch) { s.Name = "x" },
		"reserved forward -> drop (live)":                                 func(s *Switch) { s.Reserved = ReservedDrop },
		"metrics 127.0.0.1:9100 -> unset (live)":                          func(s *Switch) { s.Metrics = "" },
		"control: socket /run/lab.sock -> /x (restart)":                   func(s *Switch) { s.Control.Socket = "/x" },
		"control: group wheel -> unset (live)":                            func(s *Switch) { s.Control.Group = "" },
		"fdb: size 32768 -> 16384 (restart)":                              func(s *Switch) { s.FDB.Size = 16384 },
		"fdb: ageing 60 -> 61 (live)":                                     func(s *Switch) { s.FDB.Ageing++ },
		"fdb: mac_limit 20000 -> 0 (live)":                                func(s *Switch) { s.FDB.MACLimit = 0 },
		"static address 52:54:00:00:00:0a in VLAN 10: port a -> 3 (live)": func(s *Switch) { s.FDB.Static[0].Port = "3" },
		"port b removed":                                                  func(s *Switch) { s.Ports = slices.Delete(s.Ports, 1, 2) },
		"mirror watch: ports a+b -> a (live)":                             func(s *Switch) { s.Mirrors[0].Ports = []string{"a"} },
		"mirror watch: direction ingress -> both (live)":                  func(s *Switch) { s.Mirrors[0].Direction = Both },
		"mirror watch: vlan 10 -> unset (live)":                           func(s *Switch) { s.Mirrors[0].VLAN = Tag{} },
		"mirror watch: vlan 10 -> 0 (live)":                               func(s *Switch) { s.Mirrors[0].VLAN.VLAN = 0 },
		"mirror watch: to 3 -> b (live)":                                  func(s *Switch) { s.Mirrors[0].To = "b" },
		"mirror watch removed":                                            func(s *Switch) { s.Mirrors = nil },
	} {
		other := s.Clone()
		edit(&other)
		d := Diff(s, other)
		if s.Equal(other) || len(d) != 1 || d[0].String() != want {
			t.Errorf("equal %v, changes %v; want %s", s.Equal(other), d, want)
		}
	}
}

// TestWordsOfYAMLAreQuoted: names that mean something else in YAML.
func TestWordsOfYAMLAreQuoted(t *testing.T) {
	s := Default()
	for i, word := range append([]string{"7", "0x1", "1e3", "01-02"}, yamlWords...) {
		p := DefaultPort(strings.ToUpper(word), Tap, word)
		p.Netns = word
		s.Ports = append(s.Ports, p)
		if i > 0 {
			s.Mirrors = append(s.Mirrors, Mirror{Name: word, Ports: []string{p.Name}, Direction: Both, To: s.Ports[i-1].Name})
		}
	}
	roundTrip(t, s)
	text, _ := s.MarshalYAML()
	for _, word := range yamlWords {
		if !strings.Contains(string(text), "netns: \""+word+"\"\n") {
			t.Errorf("%s has no quotes", word)
		}
	}
}

// TestOneNameInTwoNamespaces is of two devices.
func TestOneNameInTwoNamespaces(t *testing.T) {
	s := parsed(t, "ports: {a: {kind: tap, device: t, netns: A}, b: {kind: tap, device: t, netns: B}, c: {kind: tap, device: t}}")
	roundTrip(t, s)
}

func TestEditsAreNewValues(t *testing.T) {
	s := parsed(t, example)
	was := s.Clone()
	set, err := s.SetPort("a", "mtu=1500", "trunks=5,7", "storm=", "host=")
	if err == nil || !strings.Contains(err.Error(), `ports.a.trunks: "5,7"`) {
		t.Errorf("a comma in a list: %v", err)
	}
	if !set.Equal(was) {
		t.Error("an edit that failed changed the switch")
	}
	if set, err = s.SetPort("a", "mtu=1500", "trunks=5+7", "storm=", "host="); err != nil {
		t.Fatal(err)
	}
	want, _ := was.Port("a")
	want.MTU, want.Storm, want.Host, want.Trunks = 1500, 0, HostAuto, VLANs{1<<5 | 1<<7}
	if got, _ := set.Port("a"); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	added, err := s.AddPort(DefaultPort("n", Tap, "tN"))
	if err != nil || len(added.Ports) != 4 || added.Ports[3].Name != "n" {
		t.Errorf("%+v, %v", added.Ports, err)
	}
	removed, err := added.RemovePort("n")
	if err != nil || !removed.Equal(was) {
		t.Errorf("%v, %v", Diff(was, removed), err)
	}
	for what, err := range map[string]error{
		"there are two ports a":                        second(s.AddPort(DefaultPort("a", Tap, "tN"))),
		"ports.n.device: device vA is under port a":    second(s.AddPort(DefaultPort("n", Packet, "vA"))),
		"ports.n.device: it is missing":                second(s.AddPort(DefaultPort("n", Tap, ""))),
		`there is no port "z": the ports are a, b, 3`:  second(s.RemovePort("z")),
		`mirrors.watch.to: there is no port "3"`:       second(s.RemovePort("3")),
		`fdb.static[0].port: there is no port "a"`:     second(s.RemovePort("a")),
		`there is no port "y": the ports are`:          second(s.SetPort("y", "mtu=1500")),
		`ports.a: "mtu" is not key=value`:              second(s.SetPort("a", "mtu")),
		"ports.a.mtuu: no such key: did you mean mtu?": second(s.SetPort("a", "mtuu=")),
		"ports.a.kind: it is missing":                  second(s.SetPort("a", "kind=")),
		"ports.b.host: key host is for packet ports":   second(s.SetPort("b", "host=drop")),
		"ports.b.trunks: an access port carries":       second(s.SetPort("b", "trunks=5")),
		"ports.a.mtu: the key is given twice":          second(s.SetPort("a", "mtu=1500", "mtu=1501")),
		`there is no port "c"`:                         second(Default().SetPort("c", "mtu=1500")),
	} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v; want %q", err, what)
		}
	}
	if !s.Equal(was) {
		t.Errorf("edits changed what they were made of: %v", Diff(was, s))
	}
}

func second(_ Switch, err error) error { return err }

func TestCloneSharesNothing(t *testing.T) {
	s := parsed(t, example)
	was := parsed(t, example)
	c := s.Clone()
	c.Ports[0].MTU = 1
	c.Mirrors[0].Name = "x"
	c.Mirrors[0].Ports[0] = "x"
	c.FDB.Static[0].MAC = vnet.MAC(5)
	if !s.Equal(was) {
		t.Errorf("a change of the clone is one of the switch: %v", Diff(was, s))
	}
}

// PortHelp fits a terminal of 80 columns.
func TestPortHelpNamesEveryKey(t *testing.T) {
	help := PortHelp()
	for line := range strings.Lines(help) {
		if n := len(strings.TrimRight(line, "\n")); n >= 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	for i := range portKeys {
		k := &portKeys[i]
		if k.arg != "" && !strings.Contains(help, "\n  "+k.name+"="+k.arg+" ") && !strings.HasPrefix(help, "  "+k.name+"=") {
			t.Errorf("the help says nothing of %s", k.name)
		}
	}
}
