package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// node is a piece of a document in no spelling: what the three are read into and
// written from.
type node struct {
	kind  nodeKind
	text  string  // of a scalar
	items []*node // of a list
	pairs []pair  // of a map, in their order
	pos   pos     // zero when it comes from no document
}

// pair is a key of a map and its value.
type pair struct {
	key   string
	pos   pos
	value *node
}

// pos is a place in a document, from 1 on.
type pos struct{ line, column int }

// nodeKind is what a node is.
type nodeKind uint8

const (
	null    nodeKind = iota
	untyped          // text of the command line: whatever its key wants
	text
	number
	boolean
	list
	object
)

// String is the kind as an error names it.
func (k nodeKind) String() string {
	return [...]string{"nothing", "text", "text", "a number", "true or false", "a list", "a map"}[k]
}

func scalar(kind nodeKind, text string) *node { return &node{kind: kind, text: text} }

// spell is the value on one line, as the command line has it.
func (n *node) spell() string {
	switch n.kind {
	case list:
		var all []string
		for _, item := range n.items {
			all = append(all, item.spell())
		}
		return strings.Join(all, listSeparator)
	case object:
		var all []string
		for _, p := range n.pairs {
			all = append(all, p.key+"="+p.value.spell())
		}
		return strings.Join(all, ",")
	}
	return n.text
}

// get is the value of a key.
func (n *node) get(key string) *pair {
	for i := range n.pairs {
		if n.pairs[i].key == key {
			return &n.pairs[i]
		}
	}
	return nil
}

// add puts a key behind the others; a nil value leaves it out.
func (n *node) add(key string, value *node) {
	if value != nil {
		n.pairs = append(n.pairs, pair{key: key, value: value})
	}
}

// Error is one thing that is wrong with a value, and where it stands.
type Error struct {
	File         string // its name, or the argument; empty where there is neither
	Line, Column int    // from 1; 0 where there is no file
	Key          string // such as ports.a.mtu; empty for the whole
	Text         string // what is wrong, and what would be right
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File + ":")
	}
	if e.Line > 0 {
		fmt.Fprintf(&b, "%d:%d:", e.Line, e.Column)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if e.Key != "" {
		b.WriteString(e.Key + ": ")
	}
	b.WriteString(e.Text)
	return b.String()
}

// maxErrors bounds what a bad file makes one read.
const maxErrors = 50

// Errors are all things that are wrong, up to 50, in the order in which they stand.
type Errors []*Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// report collects what is wrong with a value.
type report struct {
	file string
	root *node    // the document; nil where there is none
	path []string // of the value that is looked at; an item of a list is [0]
	errs Errors
	more int // that were too many
}

// in looks at a part of the value.
func (r *report) in(step string, look func()) {
	r.path = append(r.path, step)
	look()
	r.path = r.path[:len(r.path)-1]
}

// key is the path as errors name it.
func (r *report) key() string { return joined(r.path) }

func joined(path []string) string { return strings.ReplaceAll(strings.Join(path, "."), ".[", "[") }

// at notes an error in the value that is looked at, which stands at a place of its own.
func (r *report) at(p pos, format string, args ...any) {
	if len(r.errs) == maxErrors {
		r.more++
		return
	}
	r.errs = append(r.errs, &Error{
		File: r.file, Line: p.line, Column: p.column, Key: r.key(), Text: fmt.Sprintf(format, args...),
	})
}

// errorf notes an error in the value that is looked at, unless there is one already: a
// value that could not be read is not also missing.
func (r *report) errorf(format string, args ...any) {
	key := r.key()
	for _, e := range r.errs {
		if e.Key == key {
			return
		}
	}
	r.at(r.place(), format, args...)
}

// missing notes that there is no value, unless what should hold it could not be read.
func (r *report) missing(what string) {
	holder := joined(r.path[:len(r.path)-1])
	for _, e := range r.errs {
		if holder != "" && e.Key == holder {
			return
		}
	}
	r.errorf("it is missing: add %s", what)
}

// place is where the value that is looked at stands, or else what it is missing from.
func (r *report) place() (p pos) {
	n := r.root
	if n == nil {
		return p
	}
	p = n.pos
	for _, step := range r.path {
		var i int
		if _, err := fmt.Sscanf(step, "[%d]", &i); err == nil && n.kind == list {
			if i >= len(n.items) {
				return p
			}
			n = n.items[i]
			p = n.pos
			continue
		}
		kv := n.get(step)
		if kv == nil {
			return p
		}
		n, p = kv.value, kv.pos
	}
	if n.kind == list || n.kind == object {
		return p // its key, not its first line
	}
	return n.pos
}

// err is all that was noted.
func (r *report) err() error {
	if len(r.errs) == 0 {
		return nil
	}
	slices.SortStableFunc(r.errs, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if r.more > 0 {
		r.errs = append(r.errs, &Error{File: r.file, Text: fmt.Sprintf("and %d errors more", r.more)})
	}
	return r.errs
}
