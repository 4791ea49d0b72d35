package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// node is a part of a document, independent of the spelling. The three spellings are read into
// nodes and written from them.
type node struct {
	kind  nodeKind
	text  string  // of a scalar
	items []*node // of a list
	pairs []pair  // of a map, in their order
	pos   pos     // zero if it comes from no document
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
	untyped          // text of the command line, of the kind that its key needs
	text
	number
	boolean
	list
	object
)

// String is the kind's name in errors.
func (k nodeKind) String() string {
	return [...]string{"nothing", "text", "text", "a number", "true or false", "a list", "a map"}[k]
}

func scalar(kind nodeKind, text string) *node { return &node{kind: kind, text: text} }

// spell is the value on one line, spelled as on the command line.
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

// add appends a key, unless its value is nil.
func (n *node) add(key string, value *node) {
	if value != nil {
		n.pairs = append(n.pairs, pair{key: key, value: value})
	}
}

// Error is one error in a value, with its place.
type Error struct {
	File         string // its name, or the argument; empty if there is neither
	Line, Column int    // from 1; 0 if there is no file
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

// maxErrors bounds how many errors a bad file prints.
const maxErrors = 50

// Errors are all errors, up to 50, in the order of the document.
type Errors []*Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// report collects the errors in a value.
type report struct {
	file string
	root *node    // the document; nil if there is none
	path []string // of the current value; an item of a list is [0]
	errs Errors
	more int // errors beyond maxErrors
}

// in makes a part of the value the current one while f runs.
func (r *report) in(step string, look func()) {
	r.path = append(r.path, step)
	look()
	r.path = r.path[:len(r.path)-1]
}

// key is the path as errors show it.
func (r *report) key() string { return joined(r.path) }

func joined(path []string) string { return strings.ReplaceAll(strings.Join(path, "."), ".[", "[") }

// at records an error in the current value, at the given place.
func (r *report) at(p pos, format string, args ...any) {
	if len(r.errs) == maxErrors {
		r.more++
		return
	}
	r.errs = append(r.errs, &Error{
		File: r.file, Line: p.line, Column: p.column, Key: r.key(), Text: fmt.Sprintf(format, args...),
	})
}

// errorf records an error in the current value, unless it already has one: a value that could not
// be read is not also missing.
func (r *report) errorf(format string, args ...any) {
	key := r.key()
	for _, e := range r.errs {
		if e.Key == key {
			return
		}
	}
	r.at(r.place(), format, args...)
}

// missing records that there is no value, unless its container could not be read.
func (r *report) missing(what string) {
	holder := joined(r.path[:len(r.path)-1])
	for _, e := range r.errs {
		if holder != "" && e.Key == holder {
			return
		}
	}
	r.errorf("it is missing: add %s", what)
}

// place is the place of the current value, or of the container that lacks it.
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

// err is everything that was recorded.
func (r *report) err() error {
	if len(r.errs) == 0 {
		return nil
	}
	slices.SortStableFunc(r.errs, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if r.more > 0 {
		r.errs = append(r.errs, &Error{File: r.file, Text: fmt.Sprintf("and %d more errors", r.more)})
	}
	return r.errs
}
