package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"sluice/cmd/sluice/internal/config"
	"sluice/cmd/sluice/internal/keeper"
)

// FDB is what the forwarding database knows.
type FDB struct {
	Entries []keeper.Entry `json:"entries"`
}

// Flush says what is to be forgotten: an empty port is all, no VLAN is all.
type Flush struct {
	Port string  `json:"port,omitempty"`
	VLAN *uint16 `json:"vlan,omitempty"`
}

// Flushed is how many addresses were forgotten.
type Flushed struct {
	Entries int `json:"entries"`
}

func (s *Server) fdb(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	vlan := -1
	if v := q.Get("vlan"); v != "" {
		n, err := parseVLAN(v)
		if err != nil {
			return err
		}
		vlan = int(n)
	}
	list, err := s.Switch.FDB(r.Context(), q.Get("port"), vlan)
	if err != nil {
		return err
	}
	return answer(w, FDB{list})
}

func parseVLAN(v string) (uint16, error) {
	n, err := strconv.ParseUint(v, 10, 16)
	if err != nil || n > config.MaxVLAN {
		return 0, &Error{Status: http.StatusBadRequest, Object: "vlan", Cause: fmt.Sprintf("%q is not a number from 0 to %d", v, config.MaxVLAN)}
	}
	return uint16(n), nil
}

func (s *Server) flush(w http.ResponseWriter, r *http.Request) error {
	text, err := body(r)
	if err != nil {
		return err
	}
	var f Flush
	if err := decode(text, &f); err != nil {
		return err
	}
	vlan := -1
	if f.VLAN != nil {
		if vlan = int(*f.VLAN); vlan > config.MaxVLAN {
			return &Error{Status: http.StatusBadRequest, Object: "vlan", Cause: fmt.Sprintf("%d is not a number from 0 to %d", vlan, config.MaxVLAN)}
		}
	}
	n, err := s.Switch.Flush(r.Context(), f.Port, vlan)
	if err != nil {
		return err
	}
	return answer(w, Flushed{n})
}

// decode reads a JSON object strictly; an empty body is an empty object.
func decode(text []byte, v any) error {
	if len(text) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil && d.More() {
		err = errors.New("there is more behind the object")
	}
	if err != nil {
		return &Error{Status: http.StatusBadRequest, Cause: "the body is not what is wanted: " + err.Error(), Hint: "GET /v1/openapi.json says what is"}
	}
	return nil
}

func (s *Server) addEntry(w http.ResponseWriter, r *http.Request) error {
	text, err := body(r)
	if err != nil {
		return err
	}
	e, err := config.ParseEntryJSON(text)
	if err != nil {
		return placeless(err)
	}
	same := func(o config.Entry) bool { return o.VLAN == e.VLAN && o.MAC == e.MAC }
	return s.edit(w, r, func(c config.Switch) (config.Switch, error) {
		c.FDB.Static = slices.DeleteFunc(c.FDB.Static, same)
		c.FDB.Static = append(c.FDB.Static, e)
		return c, nil
	})
}

func (s *Server) deleteEntry(w http.ResponseWriter, r *http.Request) error {
	vlan, err := parseVLAN(r.PathValue("vlan"))
	if err != nil {
		return err
	}
	mac, err := config.ParseMAC(r.PathValue("mac"))
	if err != nil {
		return &Error{Status: http.StatusBadRequest, Object: "mac", Cause: err.Error()}
	}
	return s.edit(w, r, func(c config.Switch) (config.Switch, error) {
		n := len(c.FDB.Static)
		c.FDB.Static = slices.DeleteFunc(c.FDB.Static, func(e config.Entry) bool { return e.VLAN == vlan && e.MAC == mac })
		if len(c.FDB.Static) == n {
			return c, &Error{
				Status: http.StatusNotFound,
				Cause:  fmt.Sprintf("there is no static entry for %s in VLAN %d", mac, vlan),
				Hint:   "`sluice fdb show` lists the entries; `sluice fdb flush` forgets learnt ones",
			}
		}
		return c, nil
	})
}
