package config

import (
	"bytes"
	"testing"
)

// example has every key of every table.
const example = `name: lab
reserved: forward
fdb:
  size: 32768
  ageing: 60
  mac_limit: 20000
  static:
    - {vlan: 10, mac: "52:54:00:00:00:0a", port: a}
    - {mac: "52:54:00:00:00:0a", port: b}
ports:
  a:
    kind: packet
    device: vA
    mtu: 9000
    queues: 4
    gso_max_size: 65536
    gso_ipv4_max_size: 131072
    gso_max_segs: 16
    oversize: segment
    offload: csum
    host: keep
    reserved: drop
    vlan_mode: native-untagged
    tag: 10
    trunks: [0, 20-30, 4095]
    isolated: true
    mac_limit: 100
    storm: 1000
    loop: shut
  b:
    kind: tap
    device: tB
    netns: B
    tag: 0
  "3":
    kind: macvtap
    device: m0
    lower: eth0.100
mirrors:
  watch:
    ports: [a, b]
    direction: ingress
    vlan: 10
    to: "3"
metrics: "127.0.0.1:9100"
control:
  socket: /run/lab.sock
  group: wheel
`

// roundTrip checks that each spelling of a valid switch is read back as that switch.
func roundTrip(t *testing.T, s Switch) {
	t.Helper()
	if err := s.Validate(); err != nil {
		t.Fatalf("%+v was read, and is not valid: %v", s, err)
	}
	y, _ := s.MarshalYAML()
	if got, err := ParseYAML("printed", y); err != nil || !got.Equal(s) {
		t.Fatalf("YAML\n%sof %+v\nis read as %+v, %v", y, s, got, err)
	}
	j, _ := s.MarshalJSON()
	if got, err := ParseJSON(j); err != nil || !got.Equal(s) {
		t.Fatalf("JSON\n%s\nof %+v\nis read as %+v, %v", j, s, got, err)
	}
	for _, p := range s.Ports {
		if got, err := ParsePort(p.String()); err != nil || got != p {
			t.Fatalf("-p %s\nof %+v\nis read as %+v, %v", p, p, got, err)
		}
	}
	if d := Diff(s, s.Clone()); len(d) > 0 || !s.Equal(s.Clone()) {
		t.Fatalf("a copy differs: %v", d)
	}
}

// whatIsWrong checks that the places of errors are inside the document, and that errors are
// printable lines.
func whatIsWrong(t *testing.T, err error, data []byte) {
	t.Helper()
	errs, ok := err.(Errors)
	if !ok || len(errs) == 0 || len(errs) > maxErrors+1 {
		t.Fatalf("%T: %v", err, err)
	}
	last := 1 + bytes.Count(data, []byte("\n")) + bytes.Count(data, []byte("\r"))
	for _, e := range errs {
		if e.Text == "" || e.Line < 0 || e.Line > last || e.Line > 0 && e.Column < 1 {
			t.Errorf("%q: %+v: there are %d lines", data, e, last)
		}
	}
}

func FuzzParseYAML(f *testing.F) {
	// Short, since the fuzzer spends its time on shortening long ones.
	f.Add([]byte("ports: {a: {kind: packet, device: vA, trunks: [1, 2-3], tag: 0}}\n"))
	f.Add([]byte("mirrors: {m: {ports: [a], to: b}}\nports:\n  a:\n    isolated: true\n"))
	f.Add([]byte("fdb:\n  static:\n  - {mac: 02:00:00:00:00:01, port: a}\nmetrics: ':1'\n"))
	f.Add([]byte("a: *x\n? b\n<<: &x {c: !!str d}\n--- |\n  text\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseYAML("fuzz", data)
		if err != nil {
			whatIsWrong(t, err, data)
			return
		}
		roundTrip(t, s)
	})
}

func FuzzParseJSON(f *testing.F) {
	f.Add([]byte(`{"ports": {"a": {"kind": "tap", "device": "t", "trunks": [1, "2-3"]}}}`))
	f.Add([]byte(`{"fdb": {"static": [{"mac": "02:00:00:00:00:01", "port": "a"}]}}`))
	f.Add([]byte(`{"ports": {"a": {"kind": "tap", "device": "t", "mtu": 1e3}, "a": null}} []`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseJSON(data)
		if err != nil {
			whatIsWrong(t, err, data)
			return
		}
		roundTrip(t, s)
	})
}

func FuzzParsePort(f *testing.F) {
	s, err := ParseYAML("example", []byte(example))
	if err != nil {
		f.Fatal(err)
	}
	for _, p := range s.Ports {
		f.Add(p.String())
	}
	f.Add("a=tap:t0,=1,trunks=1+,kind=tap,mtu=-1,")
	f.Fuzz(func(t *testing.T, arg string) {
		p, err := ParsePort(arg)
		if err != nil {
			whatIsWrong(t, err, nil)
			return
		}
		alone, err := Default().AddPort(p)
		if err != nil {
			t.Fatalf("-p %s is read as %+v, which is not valid: %v", arg, p, err)
		}
		roundTrip(t, alone)
	})
}
