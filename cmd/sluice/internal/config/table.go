package config

import (
	"fmt"
	"slices"
	"strings"
)

// key is one line of a table: everything about one key of a T.
type key[T any] struct {
	name  string
	arg   string // the value's placeholder in help; empty if the key is not an argument
	help  string
	kinds []Kind // of ports that have it; empty means all
	needs Need   // what a change of it needs
	must  bool   // there is no default

	reset  func(*T) // sets the default
	read   func(*report, *node, *T)
	check  func(*report, *T) // only its value
	print  func(*T) *node    // nil if it is the default
	diff   func(d *differ, old, new *T)
	schema func() *node
}

// bind makes a table line from a field and the form of its values.
func bind[T, V any](k key[T], f form[V], def V, field func(*T) *V) key[T] {
	usual := f.print(def).spell()
	spell := func(v V) string {
		s := f.print(v).spell()
		if s == usual && f.check(def) != nil {
			return "unset"
		}
		return s
	}
	k.reset = func(t *T) { *field(t) = def }
	k.read = func(r *report, n *node, t *T) {
		v, err := f.read(n)
		if err == nil {
			err = f.check(v)
		}
		if err != nil {
			r.errorf("%v", err)
			return
		}
		*field(t) = v
	}
	k.check = func(r *report, t *T) {
		n := f.print(*field(t))
		if n.spell() == usual {
			if k.must {
				r.missing(k.help)
			}
			return
		}
		if err := f.check(*field(t)); err != nil {
			r.errorf("%v", err)
		}
	}
	k.print = func(t *T) *node {
		n := f.print(*field(t))
		if n.spell() == usual {
			return nil
		}
		return n
	}
	k.diff = func(d *differ, old, new *T) {
		if a, b := spell(*field(old)), spell(*field(new)); a != b {
			d.changed(k.name, a, b, k.needs)
		}
	}
	k.schema = func() *node {
		n := f.schema()
		n.add("description", scalar(text, k.describe()))
		if f.check(def) == nil {
			n.add("default", f.print(def))
		}
		return n
	}
	return k
}

// describe is the help, preceded by the kinds of ports that have the key.
func (k *key[T]) describe() string {
	if len(k.kinds) == 0 {
		return k.help
	}
	var kinds []string
	for _, kind := range k.kinds {
		kinds = append(kinds, string(kind))
	}
	return strings.Join(kinds, ", ") + ": " + k.help
}

// section makes a table line for a part that has its own table.
func section[T, S any](name, help string, keys []key[S], field func(*T) *S) key[T] {
	return key[T]{
		name: name, help: help,
		reset: func(t *T) { reset(keys, field(t)) },
		read:  func(r *report, n *node, t *T) { readObject(r, n, keys, field(t)) },
		check: func(r *report, t *T) { checkObject(r, keys, field(t)) },
		print: func(t *T) *node {
			if n := printObject(keys, field(t)); len(n.pairs) > 0 {
				return n
			}
			return nil
		},
		diff: func(d *differ, old, new *T) {
			part := differ{kind: name}
			diffObject(&part, keys, field(old), field(new))
			d.changes = append(d.changes, part.changes...)
		},
		schema: func() *node { return objectSchema(help, keys, nil) },
	}
}

// group makes a table line for parts of one kind: a map by name, or a list if they have no names.
type group[T, E any] struct {
	name, help string
	what       string // one of them
	keys       []key[E]
	field      func(*T) *[]E
	title      func(*E) *string // its name; nil if it has none
	label      func(*E) string  // what distinguishes it from the others
	note       func(*E) string  // what a change shows for a new one
	needs      Need             // what adding or removing one needs
	rules      []*node          // of the schema, for keys that depend on each other
}

func (g group[T, E]) fresh() (e E) {
	reset(g.keys, &e)
	return e
}

func (g group[T, E]) key() key[T] {
	return key[T]{
		name: g.name, help: g.help,
		reset:  func(t *T) { *g.field(t) = nil },
		read:   g.read,
		check:  g.check,
		print:  g.print,
		diff:   g.diff,
		schema: g.schema,
	}
}

func (g group[T, E]) read(r *report, n *node, t *T) {
	all := g.field(t)
	if g.title == nil {
		if n.kind != list {
			r.errorf("%v", want(n, "a list"))
			return
		}
		for i, item := range n.items {
			e := g.fresh()
			r.in(fmt.Sprintf("[%d]", i), func() { readObject(r, item, g.keys, &e) })
			*all = append(*all, e)
		}
		return
	}
	if n.kind != object {
		r.errorf("%v", want(n, "a map of "+g.name+" by name"))
		return
	}
	seen := map[string]pos{}
	for _, p := range n.pairs {
		r.in(p.key, func() {
			if first, ok := seen[p.key]; ok {
				r.at(p.pos, "there is another %s of this name in line %d: give each its own", g.what, first.line)
				return
			}
			seen[p.key] = p.pos
			e := g.fresh()
			*g.title(&e) = p.key
			readObject(r, p.value, g.keys, &e)
			*all = append(*all, e)
		})
	}
}

func (g group[T, E]) check(r *report, t *T) {
	all := *g.field(t)
	seen := map[string]bool{}
	for i := range all {
		e := &all[i]
		step := fmt.Sprintf("[%d]", i)
		if g.title != nil {
			step = *g.title(e)
		}
		r.in(step, func() {
			if g.title != nil {
				if err := names.check(step); err != nil {
					r.errorf("%v", err)
				}
			}
			if label := g.label(e); seen[label] {
				r.errorf("there are two of %s: give each its own", label)
			} else {
				seen[label] = true
			}
			checkObject(r, g.keys, e)
		})
	}
}

func (g group[T, E]) print(t *T) *node {
	all := *g.field(t)
	if len(all) == 0 {
		return nil
	}
	n := &node{kind: list}
	if g.title != nil {
		n.kind = object
	}
	for i := range all {
		one := printObject(g.keys, &all[i])
		if g.title != nil {
			n.add(*g.title(&all[i]), one)
		} else {
			n.items = append(n.items, one)
		}
	}
	return n
}

func (g group[T, E]) schema() *node {
	one := objectSchema("", g.keys, g.rules)
	if g.title == nil {
		n := listSchema(one)
		n.add("description", scalar(text, g.help))
		return n
	}
	n := keyword("type", scalar(text, "object"))
	n.add("description", scalar(text, g.help))
	n.add("propertyNames", names.schema())
	n.add("additionalProperties", one)
	return n
}

func reset[T any](keys []key[T], t *T) {
	for i := range keys {
		keys[i].reset(t)
	}
}

// find is the line with that name.
func find[T any](keys []key[T], name string) *key[T] {
	i := slices.IndexFunc(keys, func(k key[T]) bool { return k.name == name })
	if i < 0 {
		return nil
	}
	return &keys[i]
}

// readObject reads a map by its table. A wrong value leaves the default.
func readObject[T any](r *report, n *node, keys []key[T], t *T) {
	if n.kind != object {
		r.errorf("%v", want(n, "a map of keys"))
		return
	}
	seen := map[string]bool{}
	for _, p := range n.pairs {
		k := find(keys, p.key)
		switch {
		case k == nil:
			r.in(p.key, func() { r.at(p.pos, "no such key%s", hint(keys, p.key)) })
		case seen[p.key]:
			r.in(p.key, func() { r.at(p.pos, "the key is given twice: leave one out") })
		default:
			r.in(p.key, func() { k.read(r, p.value, t) })
		}
		seen[p.key] = true
	}
}

// hint suggests the key that was meant, or lists the keys.
func hint[T any](keys []key[T], wrong string) string {
	best, distance := "", max(2, len(wrong)/3)+1
	var all []string
	for i := range keys {
		name := keys[i].name
		all = append(all, name)
		d := edits(wrong, name)
		if len(wrong) > 2 && (strings.HasPrefix(name, wrong) || strings.HasPrefix(wrong, name)) {
			d = min(d, 1)
		}
		if d < distance && d < len(name) {
			best, distance = name, d
		}
	}
	if best != "" {
		return ": did you mean " + best + "?"
	}
	if s := strings.Join(all, ", "); len(s) <= 80 {
		return ": the keys are " + s
	}
	return ": `sluice config schema` lists them"
}

// edits is the Levenshtein distance of two words.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		left := row[0]
		row[0] = i + 1
		for j := range len(b) {
			up := row[j+1]
			d := min(up, row[j]) + 1
			if a[i] == b[j] {
				d = min(d, left)
			} else {
				d = min(d, left+1)
			}
			left, row[j+1] = up, d
		}
	}
	return row[len(b)]
}

func checkObject[T any](r *report, keys []key[T], t *T) {
	for i := range keys {
		r.in(keys[i].name, func() { keys[i].check(r, t) })
	}
}

// printObject is a map of what differs from the defaults.
func printObject[T any](keys []key[T], t *T) *node {
	n := &node{kind: object}
	for i := range keys {
		n.add(keys[i].name, keys[i].print(t))
	}
	return n
}
