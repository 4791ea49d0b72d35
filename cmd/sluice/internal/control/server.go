package control

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"sluice/cmd/sluice/internal/config"
	"sluice/cmd/sluice/internal/keeper"
	"sluice/dataplane/summary"
)

// Bounds of a request and its answer.
const (
	maxBody     = 1 << 20 // as much as a document of package config may have
	maxHeader   = 16 << 10
	patience    = 5 * time.Second
	idleTimeout = time.Minute
)

// Switch is what the server needs of a running switch. *keeper.Keeper is one.
type Switch interface {
	Config(context.Context) (config.Switch, uint64, error)
	Edit(context.Context, keeper.Edit) (keeper.Applied, error)
	State(context.Context) (keeper.State, error)
	Events(ctx context.Context, seq uint64, wait bool) []keeper.Event
	LastEvent() uint64
	FDB(ctx context.Context, port string, vlan int) ([]keeper.Entry, error)
	Flush(ctx context.Context, port string, vlan int) (int, error)
}

// Server answers on the control socket.
type Server struct {
	Switch  Switch
	Version string
	// Load reads the file that the switch was started from; nil where there is none.
	Load func() (config.Switch, error)
	Log  *slog.Logger

	// Patience is how long a client may take to send a request; each write of an answer may
	// take twice that. 0 is what users get.
	Patience time.Duration
}

//go:embed openapi.json
var openAPI []byte

// OpenAPI describes the interface, as OpenAPI 3.1.
func OpenAPI() []byte { return openAPI }

// Serve answers until ctx is done. It then ends streams and waits a moment for what is being
// answered.
func (s *Server) Serve(ctx context.Context, l *Listener) error {
	h := http.Server{
		Handler:        s.handler(),
		ReadTimeout:    cmp.Or(s.Patience, patience),
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeader,
		ConnContext:    withConn,
		ErrorLog:       slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // clients' faults
	}
	streams, end := context.WithCancel(context.Background())
	defer end()
	done := make(chan error, 1)
	h.Handler = withStreams(streams, h.Handler)
	go func() { done <- h.Serve(l) }()
	select {
	case err := <-done:
		return fmt.Errorf("control socket: %w", err)
	case <-ctx.Done():
	}
	end()
	patience, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if h.Shutdown(patience) != nil {
		h.Close()
	}
	return nil
}

// withStreams ends each request when streams is done.
func withStreams(streams context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		stop := context.AfterFunc(streams, cancel)
		defer stop()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// routes are what is served.
func (s *Server) routes() map[string]func(http.ResponseWriter, *http.Request) error {
	return map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /v1/openapi.json":        s.openAPI,
		"GET /v1/config":              s.getConfig,
		"PUT /v1/config":              s.putConfig,
		"POST /v1/reload":             s.reload,
		"POST /v1/ports":              s.addPort,
		"PATCH /v1/ports/{name}":      s.setPort,
		"DELETE /v1/ports/{name}":     s.deletePort,
		"POST /v1/mirrors":            s.addMirror,
		"DELETE /v1/mirrors/{name}":   s.deleteMirror,
		"GET /v1/show":                s.show,
		"GET /v1/stats":               s.stats,
		"GET /v1/fdb":                 s.fdb,
		"PUT /v1/fdb":                 s.addEntry,
		"DELETE /v1/fdb/{vlan}/{mac}": s.deleteEntry,
		"POST /v1/fdb/flush":          s.flush,
		"GET /v1/events":              s.events,
	}
}

// handler routes requests, after it has seen who asks.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, f := range s.routes() {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := f(w, r); err != nil {
				fail(w, err)
			}
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w = timed{w, 2 * cmp.Or(s.Patience, patience)}
		if p, ok := r.Context().Value(peerKey{}).(*conn); ok {
			if err := p.refused(); err != nil {
				w.Header().Set("Connection", "close")
				fail(w, err)
				return
			}
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		_, pattern := mux.Handler(r)
		if pattern == "" {
			s.unrouted(w, r, mux)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// timed bounds the time that each write may take: a client that does not read loses its
// connection.
type timed struct {
	http.ResponseWriter
	limit time.Duration
}

func (t timed) Write(b []byte) (int, error) {
	if err := t.deadline(); err != nil {
		return 0, err
	}
	return t.ResponseWriter.Write(b)
}

func (t timed) FlushError() error {
	if err := t.deadline(); err != nil {
		return err
	}
	return http.NewResponseController(t.ResponseWriter).Flush()
}

func (t timed) deadline() error {
	err := http.NewResponseController(t.ResponseWriter).SetWriteDeadline(time.Now().Add(t.limit))
	if errors.Is(err, http.ErrNotSupported) { // there is no connection
		return nil
	}
	return err
}

// Unwrap is for http.ResponseController.
func (t timed) Unwrap() http.ResponseWriter { return t.ResponseWriter }

func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", jsonType)
	_, err := w.Write(openAPI)
	return gone(err)
}

// unrouted answers a path or a method that there is not.
func (s *Server) unrouted(w http.ResponseWriter, r *http.Request, mux *http.ServeMux) {
	var methods []string
	for _, m := range []string{"GET", "PUT", "POST", "PATCH", "DELETE"} {
		try := r.Clone(r.Context())
		try.Method = m
		if _, pattern := mux.Handler(try); pattern != "" {
			methods = append(methods, m)
		}
	}
	if methods == nil {
		fail(w, &Error{
			Status: http.StatusNotFound, Object: r.URL.Path, Cause: "there is no such path",
			Hint: "GET /v1/openapi.json lists those that there are",
		})
		return
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	fail(w, &Error{
		Status: http.StatusMethodNotAllowed, Object: r.URL.Path, Cause: "it does not take " + r.Method,
		Hint: "use " + strings.Join(methods, ", "),
	})
}

// Error is what the socket answers when it cannot do what was asked.
type Error struct {
	Status int    `json:"-"`
	Object string `json:"object,omitempty"` // what it is about
	Cause  string `json:"cause"`
	Hint   string `json:"hint,omitempty"` // what would help
	Text   string `json:"text"`           // all of it, for a person; Error makes it
}

func (e *Error) Error() string {
	s := e.Cause
	if e.Object != "" {
		s = e.Object + ": " + s
	}
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// errGone says that the client does not take its answer. There is nobody to be told.
var errGone = errors.New("the client is gone")

func gone(err error) error {
	if err != nil {
		return errGone
	}
	return nil
}

// fail answers with an error.
func fail(w http.ResponseWriter, err error) {
	if errors.Is(err, errGone) {
		return
	}
	e := &Error{Status: http.StatusBadRequest, Cause: err.Error()}
	var own *Error
	var conflict *keeper.ConflictError
	var long *http.MaxBytesError
	var unknown *keeper.UnknownPortError
	switch {
	case errors.As(err, &own):
		e = own
	case errors.As(err, &unknown):
		e.Status = http.StatusNotFound
	case errors.As(err, &conflict):
		e.Status = http.StatusPreconditionFailed
	case errors.As(err, &long):
		e.Status = http.StatusRequestEntityTooLarge
		e.Cause = fmt.Sprintf("the request's body is longer than %d bytes", long.Limit)
	case errors.Is(err, keeper.ErrEnded), errors.Is(err, context.Canceled):
		e.Status = http.StatusServiceUnavailable
	}
	e.Text = e.Error()
	text, _ := Encode(map[string]*Error{"error": e}, "")
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(e.Status)
	_, _ = w.Write(text)
}

// answer answers with v as JSON.
func answer(w http.ResponseWriter, v any) error {
	text, err := Encode(v, "  ")
	if err != nil {
		return &Error{Status: http.StatusInternalServerError, Cause: err.Error()}
	}
	w.Header().Set("Content-Type", jsonType)
	_, err = w.Write(text)
	return gone(err)
}

// Encode is v as JSON with a newline, and with < and > as they are: people read it.
func Encode(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(v)
	return b.Bytes(), err
}

// body reads the body.
func body(r *http.Request) ([]byte, error) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		var long *http.MaxBytesError
		if errors.As(err, &long) {
			return nil, err
		}
		return nil, &Error{Status: http.StatusBadRequest, Cause: "the request's body did not come whole"}
	}
	return text, nil
}

// Types of bodies.
const (
	jsonType  = "application/json"
	yamlType  = "application/yaml" // RFC 9512
	linesType = "application/x-ndjson"
)

func isYAML(header string) bool {
	kind, _, _ := strings.Cut(header, ";")
	return strings.TrimSpace(kind) == yamlType
}

func (s *Server) getConfig(w http.ResponseWriter, r *http.Request) error {
	c, revision, err := s.Switch.Config(r.Context())
	if err != nil {
		return err
	}
	w.Header().Set("ETag", strconv.Quote(strconv.FormatUint(revision, 10)))
	if !isYAML(r.Header.Get("Accept")) {
		return answer(w, c)
	}
	text, err := c.MarshalYAML()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", yamlType)
	_, err = w.Write(text)
	return gone(err)
}

func (s *Server) putConfig(w http.ResponseWriter, r *http.Request) error {
	text, err := body(r)
	if err != nil {
		return err
	}
	var next config.Switch
	if isYAML(r.Header.Get("Content-Type")) {
		next, err = config.ParseYAML("", text)
	} else {
		next, err = config.ParseJSON(text)
	}
	if err != nil {
		return err
	}
	return s.edit(w, r, func(config.Switch) (config.Switch, error) { return next, nil })
}

func (s *Server) reload(w http.ResponseWriter, r *http.Request) error {
	if s.Load == nil {
		return &Error{
			Status: http.StatusConflict, Cause: "the switch was not started from a file",
			Hint: "start it with `sluice run -c FILE`, or use `sluice port`",
		}
	}
	next, err := s.Load()
	if err != nil {
		return err
	}
	return s.edit(w, r, func(config.Switch) (config.Switch, error) { return next, nil })
}

// Reload has the switch read its file again, as POST /v1/reload does.
func (s *Server) Reload(ctx context.Context) error {
	next, err := s.Load()
	if err != nil {
		return err
	}
	_, err = s.Switch.Edit(ctx, keeper.Edit{Change: func(config.Switch) (config.Switch, error) { return next, nil }})
	return err
}

// Change is one difference that an edit made, or would make.
type Change struct {
	Object string `json:"object"` // such as port a
	Needs  string `json:"needs"`  // live, re-attach or restart
	Text   string `json:"text"`
}

// Applied is what an edit did, or would do.
type Applied struct {
	Revision uint64   `json:"revision"` // of the configuration that holds now
	Changes  []Change `json:"changes"`
}

// edit edits the desired state and answers with what changed.
func (s *Server) edit(w http.ResponseWriter, r *http.Request, change func(config.Switch) (config.Switch, error)) error {
	e := keeper.Edit{Change: change}
	switch v := r.URL.Query().Get("dry_run"); v {
	case "":
	case "1":
		e.DryRun = true
	default: // whoever writes true does not want it done
		return &Error{Status: http.StatusBadRequest, Object: "dry_run", Cause: strconv.Quote(v) + " is not 1"}
	}
	if match := r.Header.Get("If-Match"); match != "" && match != "*" {
		var err error
		if e.Saw, err = strconv.ParseUint(strings.Trim(match, `"`), 10, 64); err != nil || e.Saw == 0 {
			return &Error{
				Status: http.StatusBadRequest, Object: "If-Match", Cause: match + " is no revision",
				Hint: "take it from the ETag of GET /v1/config",
			}
		}
	}
	a, err := s.Switch.Edit(r.Context(), e)
	if err != nil {
		return err
	}
	out := Applied{Revision: a.Revision, Changes: []Change{}}
	for _, c := range a.Changes {
		out.Changes = append(out.Changes, Change{
			Object: strings.TrimSpace(c.Kind + " " + c.Name), Needs: c.Needs.String(), Text: c.String(),
		})
	}
	return answer(w, out)
}

func (s *Server) addPort(w http.ResponseWriter, r *http.Request) error {
	text, err := body(r)
	if err != nil {
		return err
	}
	p, err := config.ParsePortJSON(text)
	if err != nil {
		return placeless(err)
	}
	return s.edit(w, r, func(c config.Switch) (config.Switch, error) { return c.AddPort(p) })
}

func (s *Server) setPort(w http.ResponseWriter, r *http.Request) error {
	text, err := body(r)
	if err != nil {
		return err
	}
	name := r.PathValue("name")
	return s.edit(w, r, func(c config.Switch) (config.Switch, error) {
		if _, ok := c.Port(name); !ok {
			return c, noPort(c, name)
		}
		next, err := c.SetPortJSON(name, text)
		return next, placeless(err)
	})
}

// placeless is the error of a short body: it names keys, and people who give a command never
// see the body that lines and columns would be of.
func placeless(err error) error {
	if errs := (config.Errors)(nil); errors.As(err, &errs) {
		for _, e := range errs {
			e.Line, e.Column = 0, 0
		}
	}
	return err
}

// noPort is the error of a path with an unknown port.
func noPort(c config.Switch, name string) error {
	_, err := c.RemovePort(name)
	return &Error{Status: http.StatusNotFound, Cause: err.Error()}
}

func (s *Server) deletePort(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	return s.edit(w, r, func(c config.Switch) (config.Switch, error) {
		if _, ok := c.Port(name); !ok {
			return c, noPort(c, name)
		}
		return c.RemovePort(name)
	})
}

func (s *Server) addMirror(w http.ResponseWriter, r *http.Request) error {
	text, err := body(r)
	if err != nil {
		return err
	}
	m, err := config.ParseMirrorJSON(text)
	if err != nil {
		return placeless(err)
	}
	return s.edit(w, r, func(c config.Switch) (config.Switch, error) { return c.AddMirror(m) })
}

func (s *Server) deleteMirror(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	return s.edit(w, r, func(c config.Switch) (config.Switch, error) {
		next, ok := c.RemoveMirror(name)
		if !ok {
			return c, &Error{Status: http.StatusNotFound, Cause: fmt.Sprintf("there is no mirror %q", name)}
		}
		return next, nil
	})
}

// Show is the state of the switch, and which program it is.
type Show struct {
	keeper.State
	Version string `json:"version"`
	FDB     FDBUse `json:"fdb"`
}

// FDBUse is how full the forwarding database is.
type FDBUse struct {
	Entries int `json:"entries"`
	Size    int `json:"size"`
}

func (s *Server) show(w http.ResponseWriter, r *http.Request) error {
	state, err := s.Switch.State(r.Context())
	if err != nil {
		return err
	}
	c, _, err := s.Switch.Config(r.Context())
	if err != nil {
		return err
	}
	known, err := s.Switch.FDB(r.Context(), "", -1)
	if err != nil {
		return err
	}
	return answer(w, Show{state, s.Version, FDBUse{len(known), c.FDB.Size}})
}

// Stats are the counters of the ports at one moment.
type Stats struct {
	Time  time.Time `json:"time"`
	Ports []Counts  `json:"ports"`
}

// Counts are those of one port.
type Counts struct {
	Name        string        `json:"name"`
	RX          summary.RX    `json:"rx"`
	TX          summary.TX    `json:"tx"`
	Drops       summary.Drops `json:"drops"`
	KernelDrops uint64        `json:"kernel_drops"`
}

func (s *Server) stats(w http.ResponseWriter, r *http.Request) error {
	state, err := s.Switch.State(r.Context())
	if err != nil {
		return err
	}
	out := Stats{Time: time.Now(), Ports: []Counts{}}
	for _, p := range state.Ports {
		out.Ports = append(out.Ports, Counts{p.Name, p.RX, p.TX, p.Drops, p.KernelDrops})
	}
	return answer(w, out)
}

// events streams events as JSON lines: those behind since, and with follow=1 those to come.
func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	seq := s.Switch.LastEvent()
	follow := q.Get("follow") == "1"
	if v := q.Get("since"); v != "" {
		var err error
		if seq, err = strconv.ParseUint(v, 10, 64); err != nil {
			return &Error{Status: http.StatusBadRequest, Object: "since", Cause: strconv.Quote(v) + " is no number of an event"}
		}
	} else if !follow {
		seq = 0
	}
	w.Header().Set("Content-Type", linesType)
	rc := http.NewResponseController(w)
	for {
		if err := rc.Flush(); err != nil { // the first tells the client that it is heard
			return errGone
		}
		list := s.Switch.Events(r.Context(), seq, follow)
		if len(list) == 0 {
			return nil
		}
		for i := range list {
			line, err := Encode(&list[i], "")
			if err == nil {
				_, err = w.Write(line)
			}
			if err != nil {
				return errGone
			}
		}
		seq = list[len(list)-1].Seq
		if !follow {
			return nil
		}
	}
}
