package keeper

import (
	"context"
	"fmt"

	"sluice/dataplane"
)

// Entry is an address of the forwarding database, as `sluice fdb show` prints it.
type Entry struct {
	VLAN   uint16 `json:"vlan"`
	MAC    string `json:"mac"`
	Port   string `json:"port"`
	Static bool   `json:"static,omitempty"`
	Age    uint32 `json:"age"` // seconds since it was heard of; up to ten too many
}

// UnknownPortError is about a port that there is not.
type UnknownPortError struct{ Name string }

func (e *UnknownPortError) Error() string {
	return fmt.Sprintf("there is no port %q: `sluice show` lists the ports", e.Name)
}

// FDB is what the forwarding database knows behind a port, if its name is not empty, and in
// a VLAN, if it is not negative. The error may be *UnknownPortError.
func (k *Keeper) FDB(ctx context.Context, port string, vlan int) ([]Entry, error) {
	all := []Entry{}
	err := k.ofPort(ctx, port, func(p *dataplane.Port) {
		for _, e := range k.sw.Entries() {
			if p != nil && e.Port != p || vlan >= 0 && int(e.VID) != vlan || e.Port == nil {
				continue
			}
			all = append(all, Entry{
				VLAN: e.VID, MAC: e.MAC.String(), Port: e.Port.Name(), Static: e.Static, Age: uint32(e.Age),
			})
		}
	})
	return all, err
}

// Flush forgets what was learnt behind a port and in a VLAN, as with FDB, and reports how
// many addresses that were. Static ones stay.
func (k *Keeper) Flush(ctx context.Context, port string, vlan int) (n int, err error) {
	err = k.ofPort(ctx, port, func(p *dataplane.Port) { n = k.sw.Flush(p, vlan) })
	return n, err
}

// ofPort has Run's goroutine call f with the switch's port of that name, or with nil for an
// empty name.
func (k *Keeper) ofPort(ctx context.Context, name string, f func(*dataplane.Port)) (err error) {
	ended := k.do(ctx, func() {
		var sw *dataplane.Port
		if name != "" {
			p := k.named(name)
			if p == nil {
				err = &UnknownPortError{name}
				return
			}
			sw = p.sw
		}
		f(sw)
	})
	if ended != nil {
		return ended
	}
	return err
}
