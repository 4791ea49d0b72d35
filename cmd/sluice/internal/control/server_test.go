package control

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sluice/cmd/sluice/internal/config"
	"sluice/cmd/sluice/internal/keeper"
)

// TestRequests: every route, what it answers and does. Every answer is as openapi.json
// describes it, and every route is asked.
func TestRequests(t *testing.T) {
	c := newChecker(t)
	asked := map[string]bool{}
	vlan := uint16(0)
	for _, x := range []struct {
		route   string // as in the description
		path    string // where it has parameters
		headers string
		body    string
		status  int
		says    string
		want    string // what the switch then is: a change of example; empty: it is as before
	}{
		{route: "GET /v1/openapi.json", status: 200, says: `"openapi": "3.1.0"`},
		{route: "GET /v1/config", status: 200, says: `"device": "vA"`},
		{route: "GET /v1/config", headers: "Accept: application/yaml", status: 200, says: "  a:\n    kind: packet\n"},
		{route: "PUT /v1/config", body: `{"ports":{"a":{"kind":"packet","device":"vA"}}}`, status: 200, says: "port b removed", want: "-b"},
		{route: "PUT /v1/config", headers: "Content-Type: application/yaml; charset=utf-8", body: example, status: 200, says: `"changes": []`},
		{route: "PUT /v1/config", headers: "Content-Type: application/yaml", body: "ports:\n a: {kind: vet, device: v}", status: 400, says: `2:12: ports.a.kind: no such port kind \"vet\"`},
		{route: "PUT /v1/config", path: "/v1/config?dry_run=1", body: `{}`, status: 200, says: "port b removed"},
		{route: "PUT /v1/config", path: "/v1/config?dry_run=true", body: `{}`, status: 400, says: `dry_run: \"true\" is not 1`},
		{route: "PUT /v1/config", headers: `If-Match: "7"`, body: `{"ports":{"a":{"kind":"packet","device":"vA"}}}`, status: 200, says: `"revision": 8`, want: "-b"},
		{route: "PUT /v1/config", headers: `If-Match: *`, body: `{"ports":{"a":{"kind":"packet","device":"vA"}}}`, status: 200, says: `"revision": 8`, want: "-b"},
		{route: "PUT /v1/config", headers: `If-Match: "6"`, body: `{}`, status: 412, says: "it has revision 7"},
		{route: "PUT /v1/config", headers: `If-Match: "x"`, body: `{}`, status: 400, says: "is no revision"},
		{route: "PUT /v1/config", body: strings.Repeat(" ", maxBody+1), status: 413, says: "longer than 1048576 bytes"},
		{route: "POST /v1/reload", status: 200, says: "port a: mtu unset -> 9000 (live)", want: "a mtu=9000"},
		{route: "POST /v1/reload", path: "/v1/reload?dry_run=1", status: 200, says: "port a: mtu unset -> 9000 (live)"},
		{route: "POST /v1/ports", body: `{"name":"c","kind":"tap","device":"tC"}`, status: 200, says: "port c added: c=tap:tC", want: "+c"},
		{route: "POST /v1/ports", body: `{"name":"a","kind":"tap","device":"tC"}`, status: 400, says: "there are two ports a"},
		{route: "POST /v1/ports", body: `{"name":"c","kind":"tap"}`, status: 400, says: "device"},
		{route: "PATCH /v1/ports/{name}", path: "/v1/ports/a", body: `{"mtu":"9000"}`, status: 200, says: "mtu unset -> 9000", want: "a mtu=9000"},
		{route: "PATCH /v1/ports/{name}", path: "/v1/ports/b", body: `{"tag":null}`, status: 200, says: "tag 10 -> unset", want: "b tag="},
		{route: "PATCH /v1/ports/{name}", path: "/v1/ports/b", body: `{"mtuu":1}`, status: 400, says: `"cause":"mtuu: no such key: did you mean mtu?"`},
		{route: "PATCH /v1/ports/{name}", path: "/v1/ports/x", body: `{}`, status: 404, says: `there is no port \"x\": the ports are a, b`},
		{route: "DELETE /v1/ports/{name}", path: "/v1/ports/b", status: 200, says: "port b removed", want: "-b"},
		{route: "DELETE /v1/ports/{name}", path: "/v1/ports/x", status: 404, says: `there is no port \"x\"`},
		{route: "POST /v1/mirrors", body: `{"name":"m","ports":["a"],"to":"b"}`, status: 200, says: "mirror m added", want: "+m"},
		{route: "POST /v1/mirrors", body: `{"name":"m","ports":["a"],"to":"x"}`, status: 400, says: `there is no port \"x\"`},
		{route: "DELETE /v1/mirrors/{name}", path: "/v1/mirrors/x", status: 404, says: `there is no mirror \"x\"`},
		{route: "GET /v1/show", status: 200, says: `"why": "there is no such device"`},
		{route: "GET /v1/show", status: 200, says: `"size": 16384`},
		{route: "GET /v1/stats", status: 200, says: `"runt": 1`},
		{route: "GET /v1/fdb", status: 200, says: "52:54:00:00:00:0a"},
		{route: "GET /v1/fdb", path: "/v1/fdb?port=a&vlan=5", status: 200, says: `"entries": []`},
		{route: "GET /v1/fdb", path: "/v1/fdb?port=x", status: 404, says: `there is no port \"x\"`},
		{route: "GET /v1/fdb", path: "/v1/fdb?vlan=4096", status: 400, says: "from 0 to 4095"},
		{route: "PUT /v1/fdb", body: `{"mac":"52:54:00:00:00:0b","port":"a"}`, status: 200, says: "static address 52:54:00:00:00:0b in VLAN 0 added: port a", want: "+e"},
		{route: "PUT /v1/fdb", body: `{"mac":"ff:ff:ff:ff:ff:ff","port":"a"}`, status: 400, says: "mac"},
		{route: "DELETE /v1/fdb/{vlan}/{mac}", path: "/v1/fdb/0/52:54:00:00:00:0c", status: 404, says: "no static entry"},
		{route: "DELETE /v1/fdb/{vlan}/{mac}", path: "/v1/fdb/x/52:54:00:00:00:0c", status: 400, says: "vlan"},
		{route: "DELETE /v1/fdb/{vlan}/{mac}", path: "/v1/fdb/0/52", status: 400, says: "mac"},
		{route: "POST /v1/fdb/flush", status: 200, says: `"entries": 1`},
		{route: "POST /v1/fdb/flush", body: `{"port":"a","vlan":3}`, status: 200, says: `"entries": 0`},
		{route: "POST /v1/fdb/flush", body: `{"vlan":4096}`, status: 400, says: "from 0 to 4095"},
		{route: "POST /v1/fdb/flush", body: `{"prot":"a"}`, status: 400, says: "prot"},
		{route: "POST /v1/fdb/flush", body: `{} {}`, status: 400, says: "behind the object"},
		{route: "POST /v1/fdb/flush", body: `{"port":"x"}`, status: 404, says: `there is no port \"x\"`},
		{route: "GET /v1/events", status: 200, says: `"text":"a -> b"`},
		{route: "GET /v1/events", path: "/v1/events?since=-1", status: 400, says: "is no number of an event"},
	} {
		t.Run(x.route+" "+x.path+x.headers+x.body[:min(len(x.body), 40)], func(t *testing.T) {
			b := serve(t, func(s *Server) {
				s.Load = func() (config.Switch, error) { return changed(t, newFake(t).want, "a mtu=9000"), nil }
			})
			b.tell(keeper.Event{Kind: keeper.MACFlaps, VLAN: &vlan, Text: "a -> b"})
			before := b.want.Clone()
			asked[x.route] = true
			method, path, _ := strings.Cut(x.route, " ")
			if x.path != "" {
				path = x.path
			}
			answer := b.ask(method, path, x.headers, x.body)
			text, err := io.ReadAll(answer.Body)
			if err != nil {
				t.Fatal(err)
			}
			if answer.StatusCode != x.status || !strings.Contains(string(text), x.says) {
				t.Errorf("%s\n%s\nwant %d and %s", answer.Status, text, x.status, x.says)
			}
			c.answer(t, x.route, fmt.Sprint(answer.StatusCode), answer.Header.Get("Content-Type"), text)
			if want := changed(t, before, x.want); !b.want.Equal(want) {
				t.Errorf("the switch is\n%v\nwant\n%v", config.Diff(before, b.want), config.Diff(before, want))
			}
		})
	}
	for route := range (&Server{}).routes() {
		if !asked[route] {
			t.Errorf("%s is not tested", route)
		}
	}
}

// changed is a switch after a change: -PORT, +THING or a port's key.
func changed(t *testing.T, s config.Switch, how string) config.Switch {
	t.Helper()
	var err error
	switch name, set, _ := strings.Cut(how, " "); {
	case how == "":
	case how == "+c":
		s, err = s.AddPort(config.DefaultPort("c", config.Tap, "tC"))
	case how == "+m":
		s, err = s.AddMirror(config.Mirror{Name: "m", Ports: []string{"a"}, Direction: config.Both, To: "b"})
	case how == "+e":
		mac, _ := config.ParseMAC("52:54:00:00:00:0b")
		s.FDB.Static = append(s.FDB.Static, config.Entry{MAC: mac, Port: "a"})
	case how[0] == '-':
		s, err = s.RemovePort(how[1:])
	default:
		s, err = s.SetPort(name, set)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEditsUndone: what is added can be removed, and the switch is then as it was.
func TestEditsUndone(t *testing.T) {
	b := serve(t, nil)
	before := b.want.Clone()
	for _, x := range [][2]string{
		{"POST /v1/mirrors", `{"name":"m","vlan":10,"to":"a"}`}, {"DELETE /v1/mirrors/m", ""},
		{"PUT /v1/fdb", `{"vlan":7,"mac":"52:54:00:00:00:0b","port":"a"}`},
		{"PUT /v1/fdb", `{"vlan":7,"mac":"52:54:00:00:00:0b","port":"b"}`},
		{"DELETE /v1/fdb/7/52:54:00:00:00:0b", ""},
	} {
		method, path, _ := strings.Cut(x[0], " ")
		if answer := b.ask(method, path, "", x[1]); answer.StatusCode != 200 {
			t.Errorf("%s: %s", x[0], answer.Status)
		}
	}
	if b.revision != 12 || !b.want.Equal(before) {
		t.Errorf("revision %d, want 12; %v", b.revision, config.Diff(before, b.want))
	}
}

func TestWhatThereIsNot(t *testing.T) {
	b := serve(t, nil)
	for _, x := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", "/v1/nothing", 404, ""},
		{"GET", "/", 404, ""},
		{"DELETE", "/v1/config", 405, "GET, PUT"},
		{"BREW", "/v1/ports/a", 405, "PATCH, DELETE"},
		{"POST", "/v1/reload", 409, ""}, // there is no file
	} {
		answer := b.ask(x.method, x.path, "", "")
		text, _ := io.ReadAll(answer.Body)
		if answer.StatusCode != x.status || answer.Header.Get("Allow") != x.allow || !strings.Contains(string(text), `"hint"`) {
			t.Errorf("%s %s: %s, Allow %q\n%s", x.method, x.path, answer.Status, answer.Header.Get("Allow"), text)
		}
	}
}

func TestETagIsTheRevision(t *testing.T) {
	b := serve(t, nil)
	if tag := b.ask("GET", "/v1/config", "", "").Header.Get("ETag"); tag != `"7"` {
		t.Errorf("ETag %s", tag)
	}
}

// FuzzRequest: whatever is asked, the switch stays valid and the answer says what is wrong.
func FuzzRequest(f *testing.F) {
	for route := range (&Server{}).routes() {
		method, path, _ := strings.Cut(route, " ")
		if route != "GET /v1/openapi.json" {
			f.Add(method, path, "", `{"name":"m","ports":["a"],"to":"b","mac":"52:54:00:00:00:0b","vlan":1}`)
		}
	}
	f.Add("PUT", "/v1/config", yamlType, example)
	f.Add("PATCH", "/v1/ports/a?dry_run=1", "", `{"mtu":null,"tag":"5"}`)
	f.Add("DELETE", "/v1/fdb/0/52:54:00:00:00:0b", "", "")
	f.Fuzz(func(t *testing.T, method, path, kind, body string) {
		r, err := http.NewRequest(method, "http://sluice"+path, strings.NewReader(body))
		if err != nil || strings.Contains(path, "follow") { // that has no end
			return
		}
		r.Header.Set("Content-Type", kind)
		sw := newFake(t)
		w := httptest.NewRecorder()
		(&Server{Switch: sw}).handler().ServeHTTP(w, r)
		if err := sw.want.Validate(); err != nil {
			t.Errorf("the switch is not valid: %v", err)
		}
		if w.Code >= 500 || w.Code >= 400 && !strings.Contains(w.Body.String(), `"text":`) {
			t.Errorf("%d\n%s", w.Code, w.Body)
		}
	})
}
