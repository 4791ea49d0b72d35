package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"syscall"
	"time"

	"sluice/cmd/sluice/internal/config"
	"sluice/cmd/sluice/internal/keeper"
	"sluice/vnet"
)

// answerTimeout is how long a switch may take for an answer. Edits wait for the kernel.
const answerTimeout = 30 * time.Second

// Client talks to a running switch. It is safe for concurrent use.
type Client struct {
	path string
	http http.Client
}

// NewClient makes a client of the switch whose socket has this path.
func NewClient(path string) *Client {
	c := &Client{path: path}
	c.http.Transport = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		},
		DisableCompression: true,
	}
	return c
}

// Do sends one request and reads the answer into out, if that is not nil. An *Error is what
// the switch answered.
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	answer, err := c.send(ctx, method, path, in, nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(answer.Body).Decode(out); err != nil {
		return fmt.Errorf("control socket %s: the answer cannot be read: %w", c.path, err)
	}
	return nil
}

func (c *Client) send(ctx context.Context, method, path string, in any, header http.Header) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://sluice"+path, body)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		r.Header[k] = v
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if answer.StatusCode/100 == 2 {
		return answer, nil
	}
	defer answer.Body.Close()
	var wrapped struct {
		Error *Error `json:"error"`
	}
	err = json.NewDecoder(io.LimitReader(answer.Body, maxBody)).Decode(&wrapped)
	if err != nil || wrapped.Error == nil {
		return nil, &Error{Status: answer.StatusCode, Cause: "the switch answered " + answer.Status}
	}
	wrapped.Error.Status = answer.StatusCode
	return nil, wrapped.Error
}

// unreachable is why there was no answer, in terms of what to do.
func (c *Client) unreachable(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no switch answers at %s: start one with `sluice run`, or name it with --name or --control", c.path)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s may not be used by this user: use sudo, or join the socket's group", c.path)
	}
	var inner *url.Error
	if errors.As(err, &inner) {
		err = inner.Err
	}
	return fmt.Errorf("control socket %s: %w", c.path, err)
}

// Config is the desired state, as YAML or as JSON.
func (c *Client) Config(ctx context.Context, asJSON bool) ([]byte, error) {
	kind := yamlType
	if asJSON {
		kind = jsonType
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	answer, err := c.send(ctx, http.MethodGet, "/v1/config", nil, http.Header{"Accept": {kind}})
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return io.ReadAll(answer.Body)
}

// AddPort adds a port.
func (c *Client) AddPort(ctx context.Context, p config.Port) (a Applied, err error) {
	text, err := p.MarshalJSON()
	if err != nil {
		return a, err
	}
	return a, c.Do(ctx, http.MethodPost, "/v1/ports", json.RawMessage(text), &a)
}

// RemovePort removes a port.
func (c *Client) RemovePort(ctx context.Context, name string) (a Applied, err error) {
	return a, c.Do(ctx, http.MethodDelete, "/v1/ports/"+url.PathEscape(name), nil, &a)
}

// SetPort changes keys of a port: settings as on the command line, with an empty value for
// the default.
func (c *Client) SetPort(ctx context.Context, name string, settings map[string]*string) (a Applied, err error) {
	return a, c.Do(ctx, http.MethodPatch, "/v1/ports/"+url.PathEscape(name), settings, &a)
}

// Reload has the switch read its file again. With dryRun it only tells what would change.
func (c *Client) Reload(ctx context.Context, dryRun bool) (a Applied, err error) {
	path := "/v1/reload"
	if dryRun {
		path += "?dry_run=1"
	}
	return a, c.Do(ctx, http.MethodPost, path, nil, &a)
}

// Show is the state of the switch.
func (c *Client) Show(ctx context.Context) (s Show, err error) {
	return s, c.Do(ctx, http.MethodGet, "/v1/show", nil, &s)
}

// Stats are the counters of the ports.
func (c *Client) Stats(ctx context.Context) (s Stats, err error) {
	return s, c.Do(ctx, http.MethodGet, "/v1/stats", nil, &s)
}

// FDB is what the forwarding database knows: behind a port, if its name is not empty, and in
// a VLAN, if that is not negative.
func (c *Client) FDB(ctx context.Context, port string, vlan int) (f FDB, err error) {
	q := url.Values{}
	if port != "" {
		q.Set("port", port)
	}
	if vlan >= 0 {
		q.Set("vlan", strconv.Itoa(vlan))
	}
	return f, c.Do(ctx, http.MethodGet, "/v1/fdb?"+q.Encode(), nil, &f)
}

// Flush forgets what was learnt.
func (c *Client) Flush(ctx context.Context, what Flush) (f Flushed, err error) {
	return f, c.Do(ctx, http.MethodPost, "/v1/fdb/flush", what, &f)
}

// AddEntry adds a static address, or moves it to another port.
func (c *Client) AddEntry(ctx context.Context, e config.Entry) (a Applied, err error) {
	in := map[string]any{"vlan": e.VLAN, "mac": e.MAC.String(), "port": e.Port}
	return a, c.Do(ctx, http.MethodPut, "/v1/fdb", in, &a)
}

// RemoveEntry removes a static address.
func (c *Client) RemoveEntry(ctx context.Context, vlan uint16, mac vnet.MAC) (a Applied, err error) {
	return a, c.Do(ctx, http.MethodDelete, fmt.Sprintf("/v1/fdb/%d/%s", vlan, mac), nil, &a)
}

// Events calls f for every event behind seq: those that there are, and with follow those to
// come, until ctx is done or f answers false.
func (c *Client) Events(ctx context.Context, since *uint64, follow bool, f func(keeper.Event) bool) error {
	q := url.Values{}
	if since != nil {
		q.Set("since", fmt.Sprint(*since))
	}
	if follow {
		q.Set("follow", "1")
	}
	answer, err := c.send(ctx, http.MethodGet, "/v1/events?"+q.Encode(), nil, nil)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer answer.Body.Close()
	for d := json.NewDecoder(answer.Body); ; {
		var e keeper.Event
		switch err := d.Decode(&e); {
		case errors.Is(err, io.EOF), ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("control socket %s: the switch has ended", c.path)
		case !f(e):
			return nil
		}
	}
}
