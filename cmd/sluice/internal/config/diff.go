package config

import (
	"fmt"
	"slices"
	"strings"
)

// Need says how a change is made.
type Need uint8

// Needs, in increasing order.
const (
	Live     Need = iota // it takes effect with the next batch of frames, and no frame is lost
	Reattach             // the port releases its device and attaches again; others keep running
	Restart              // the switch must be restarted
)

// String is the need as a change shows it.
func (n Need) String() string { return [...]string{"live", "re-attach", "restart"}[n] }

// Op is what happened to the object of a change.
type Op uint8

// Changes.
const (
	Changed Op = iota // a key of it
	Added
	Removed
)

// Change is one difference of two switches.
type Change struct {
	Op       Op
	Kind     string // of the object: port, mirror, static address, fdb, control; empty: the switch
	Name     string // of the object, where there are several
	Key      string // of Changed; "order" means the order of all objects of the kind
	From, To string // of Changed, as the command line spells them; To of Added is the whole
	Needs    Need
}

// String is the change on one line: port a: tag 10 -> 20 (live).
func (c Change) String() string {
	object := strings.TrimSpace(c.Kind + " " + c.Name)
	switch c.Op {
	case Added:
		return fmt.Sprintf("%s added: %s", object, c.To)
	case Removed:
		return object + " removed"
	}
	if object != "" {
		object += ": "
	}
	return fmt.Sprintf("%s%s %s -> %s (%s)", object, c.Key, c.From, c.To, c.Needs)
}

// Fixed reports whether a running switch cannot make the change.
func (c Change) Fixed() bool { return c.Needs == Restart }

// Port is the name of the port that changes, or empty.
func (c Change) Port() string {
	if c.Kind != portKind {
		return ""
	}
	return c.Name
}

// NeedsQueues reports whether q needs other queues than p, so that it must attach again.
func (p Port) NeedsQueues(q Port) bool {
	d := differ{kind: portKind}
	diffObject(&d, portKeys, &p, &q)
	return slices.ContainsFunc(d.changes, func(c Change) bool { return c.Needs == Reattach })
}

// Diff lists the changes from old to new: in each part first what is removed, then what is changed,
// then what is added. It is empty exactly when the two are Equal.
func Diff(old, new Switch) []Change {
	var d differ
	diffObject(&d, switchKeys, &old, &new)
	return d.changes
}

const portKind = "port"

// differ collects the changes of one object.
type differ struct {
	kind, name string
	changes    []Change
}

func (d *differ) changed(key, from, to string, needs Need) {
	d.changes = append(d.changes, Change{
		Kind: d.kind, Name: d.name, Key: key, From: from, To: to, Needs: needs,
	})
}

func diffObject[T any](d *differ, keys []key[T], old, new *T) {
	for i := range keys {
		keys[i].diff(d, old, new)
	}
}

func (g group[T, E]) diff(d *differ, old, new *T) {
	was, is := g.labels(old), g.labels(new)
	at := map[string]int{} // in old
	for i, label := range was {
		at[label] = i
	}
	var changed, added []Change
	var kept []string // in the new order
	stays := map[string]bool{}
	for i, label := range is {
		e := &(*g.field(new))[i]
		j, ok := at[label]
		if !ok {
			added = append(added, Change{Op: Added, Kind: g.what, Name: label, To: g.note(e), Needs: g.needs})
			continue
		}
		kept = append(kept, label)
		stays[label] = true
		one := differ{kind: g.what, name: label}
		diffObject(&one, g.keys, &(*g.field(old))[j], e)
		changed = append(changed, one.changes...)
	}
	var before []string // those kept, in the old order
	for _, label := range was {
		if stays[label] {
			before = append(before, label)
			continue
		}
		d.changes = append(d.changes, Change{Op: Removed, Kind: g.what, Name: label, Needs: g.needs})
	}
	d.changes = append(append(d.changes, changed...), added...)
	if !slices.Equal(before, kept) {
		d.changes = append(d.changes, Change{
			Kind: g.name, Key: "order", From: strings.Join(before, listSeparator), To: strings.Join(kept, listSeparator),
		})
	}
}

func (g group[T, E]) labels(t *T) (all []string) {
	for i := range *g.field(t) {
		all = append(all, g.label(&(*g.field(t))[i]))
	}
	return all
}
