package config

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// ParseYAML reads a switch from a file's text. name is the file's name for errors. Its error is of
// type Errors. An empty file is a switch without ports.
func ParseYAML(name string, data []byte) (Switch, error) {
	r := &report{file: name}
	return r.document(data, r.yaml)
}

// maxNesting bounds how deep braces, brackets and dashes may nest; a document needs four.
const maxNesting = 16

// yaml parses data, or records why it cannot.
func (r *report) yaml(data []byte) *node {
	tokens := lexer.Tokenize(string(data))
	if t, why := costly(tokens); t != nil {
		r.at(place(t), "%s", why)
		return nil
	}
	f, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		p, msg := pos{1, 1}, err.Error()
		if syntax := (*yaml.SyntaxError)(nil); errors.As(err, &syntax) {
			msg = syntax.Message
			if syntax.Token != nil {
				p = place(syntax.Token)
			}
		}
		r.at(p, "%s", msg)
		return nil
	}
	var bodies []ast.Node
	for _, d := range f.Docs {
		if d.Body != nil {
			bodies = append(bodies, d.Body)
		}
	}
	switch len(bodies) {
	case 0:
		return &node{kind: object, pos: pos{1, 1}}
	case 1:
		return r.yamlNode(bodies[0])
	}
	r.at(place(bodies[1].GetToken()), "there is a second document: a file has one")
	return nil
}

// costly finds something that is wrong anyway, and for which the parser would need quadratic time
// (v1.19.2: minutes for the longest document). It returns its first token and what is wrong, or
// nil.
func costly(tokens token.Tokens) (*token.Token, string) {
	flow, dashes, colons, empty, line := 0, 0, 0, 0, 0
	for i, t := range tokens {
		if t.Position.Line != line {
			dashes, colons, line = 0, 0, t.Position.Line
		}
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			flow++
		case token.MappingEndType, token.SequenceEndType:
			flow--
		case token.SequenceEntryType, token.MappingKeyType, token.TagType, token.AnchorType:
			dashes++
		case token.MappingValueType:
			if flow == 0 {
				colons++
			}
		}
		if bare(tokens, i) {
			empty++
		}
		switch {
		case flow > maxNesting || dashes > maxNesting:
			return t, fmt.Sprintf("values are nested more than %d deep", maxNesting)
		case colons > 1:
			return t, "there is a second colon in the line: put the value in quotes, or the key on a line of its own"
		case empty > maxErrors:
			return t, fmt.Sprintf("more than %d keys have no value", maxErrors)
		}
	}
	return nil, ""
}

// bare reports whether token i, the colon of a key or the dash of an item, has no value.
func bare(tokens token.Tokens, i int) bool {
	t := tokens[i]
	column := t.Position.Column
	switch {
	case t.Type == token.MappingValueType && i > 0:
		column = tokens[i-1].Position.Column
	case t.Type != token.SequenceEntryType:
		return false
	}
	if i+1 == len(tokens) {
		return true
	}
	next := tokens[i+1]
	return next.Position.Line > t.Position.Line && next.Position.Column <= column &&
		(next.Type != token.SequenceEntryType || t.Type == token.SequenceEntryType)
}

func place(t *token.Token) pos { return pos{t.Position.Line, t.Position.Column} }

// yamlNode converts n to a node. Anything without a counterpart is recorded as an error, and
// becomes null.
func (r *report) yamlNode(n ast.Node) *node {
	if n == nil {
		return &node{}
	}
	t := n.GetToken()
	out := &node{text: t.Value, pos: place(t)}
	switch n := n.(type) {
	case *ast.NullNode:
		out.kind = null
	case *ast.BoolNode:
		out.kind = boolean
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		out.kind = number
	case *ast.StringNode:
		out.kind = text
	case *ast.LiteralNode:
		out.kind, out.text = text, n.Value.Value
	case *ast.SequenceNode:
		out.kind = list
		for _, item := range n.Values {
			out.items = append(out.items, r.yamlNode(item))
		}
	case *ast.MappingNode:
		out.kind = object
		for _, v := range n.Values {
			r.yamlPair(out, v)
		}
	case *ast.MappingValueNode:
		out.kind = object
		r.yamlPair(out, n)
	default:
		r.at(out.pos, "anchors, aliases and type tags are not supported: write the value itself")
	}
	if len(out.pairs) > 0 && out.pairs[0].pos.line > 0 && t.Type != token.MappingStartType {
		out.pos = out.pairs[0].pos // otherwise it is the colon's
	}
	return out
}

func (r *report) yamlPair(out *node, v *ast.MappingValueNode) {
	t := v.Key.GetToken()
	switch v.Key.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
	default:
		r.at(place(t), "a key is a word: merge keys, anchors and others are not supported")
		return
	}
	out.pairs = append(out.pairs, pair{key: t.Value, pos: place(t)})
	p := &out.pairs[len(out.pairs)-1]
	r.in(p.key, func() { p.value = r.yamlNode(v.Value) })
	if p.value.kind == null {
		p.value.pos = p.pos // nothing after the key has a place
	}
}

// MarshalYAML returns the switch as a file, without defaults, in the order of the tables. ParseYAML
// reads it back.
func (s Switch) MarshalYAML() ([]byte, error) {
	n := printObject(switchKeys, &s)
	if len(n.pairs) == 0 {
		return []byte("{}\n"), nil
	}
	var b bytes.Buffer
	writeYAML(&b, n, "")
	return b.Bytes(), nil
}

// writeYAML writes the keys of a map, each on its own lines.
func writeYAML(b *bytes.Buffer, n *node, indent string) {
	for _, p := range n.pairs {
		b.WriteString(indent + plain(p.key) + ":")
		v := p.value
		switch {
		case v.kind == object && len(v.pairs) > 0:
			b.WriteByte('\n')
			writeYAML(b, v, indent+"  ")
		case v.kind == list && slices.ContainsFunc(v.items, func(i *node) bool { return i.kind == object }):
			b.WriteByte('\n')
			for _, item := range v.items {
				b.WriteString(indent + "  - " + inline(item) + "\n")
			}
		default:
			b.WriteString(" " + inline(v) + "\n")
		}
	}
}

// inline is a value on one line.
func inline(n *node) string {
	var all []string
	switch n.kind {
	case object:
		for _, p := range n.pairs {
			all = append(all, plain(p.key)+": "+inline(p.value))
		}
		return "{" + strings.Join(all, ", ") + "}"
	case list:
		for _, item := range n.items {
			all = append(all, inline(item))
		}
		return "[" + strings.Join(all, ", ") + "]"
	case text, untyped:
		return plain(n.text)
	}
	return n.text
}

var (
	// plainText is text that needs no quotes in any version of YAML, except words with a special
	// meaning.
	plainText = regexp.MustCompile(`^([A-Za-z/][A-Za-z0-9._/-]*|[0-9]+-[0-9]+)$`)
	yamlWords = []string{"true", "false", "yes", "no", "on", "off", "y", "n", "null"}
)

// plain is text, in quotes where it needs them.
func plain(s string) string {
	if plainText.MatchString(s) && !slices.Contains(yamlWords, strings.ToLower(s)) {
		return s
	}
	return quote(s)
}
