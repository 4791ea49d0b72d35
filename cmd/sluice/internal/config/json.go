package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"unicode/utf8"
)

// MaxDocument is how long a document may be, in bytes: some thousand ports. The YAML parser's time
// is quadratic in the keys of a map: half a minute in the worst case.
const MaxDocument = 256 << 10

// ParseJSON reads a switch from JSON, as strictly as ParseYAML reads a file. Its error is of type
// Errors.
func ParseJSON(data []byte) (Switch, error) {
	r := &report{}
	return r.document(data, r.json)
}

// document reads and checks a switch.
func (r *report) document(data []byte, parse func([]byte) *node) (Switch, error) {
	s := Default()
	switch bad := firstInvalid(data); {
	case len(data) > MaxDocument:
		r.errorf("it is longer than %d bytes", MaxDocument)
	case bad >= 0:
		r.at(newLines(data).at(bad), "the text is not UTF-8")
	default:
		r.root = parse(data)
	}
	if r.root != nil {
		readObject(r, r.root, switchKeys, &s)
		r.whole(&s)
	}
	if err := r.err(); err != nil {
		return Switch{}, err
	}
	return s, nil
}

// firstInvalid is the offset of the first byte that is not UTF-8, or -1.
func firstInvalid(data []byte) int {
	for i := 0; i < len(data); {
		c, n := utf8.DecodeRune(data[i:])
		if c == utf8.RuneError && n <= 1 {
			return i
		}
		i += n
	}
	return -1
}

// json parses data, or records why it cannot.
func (r *report) json(data []byte) *node {
	l := newLines(data)
	// The token decoder accepts some misplaced commas and colons.
	var raw json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		offset := len(data)
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			offset = int(max(syntax.Offset-1, 0))
		}
		r.at(l.at(offset), "%v", err)
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	n, err := jsonNode(d, data, l)
	if err != nil && err != io.EOF {
		r.errorf("%v", err)
		return nil
	}
	return n
}

// jsonNode reads the next value.
func jsonNode(d *json.Decoder, data []byte, l lines) (*node, error) {
	at := start(d, data)
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	n := &node{pos: l.at(at)}
	switch t := t.(type) {
	case nil:
		n.kind = null
	case bool:
		n.kind, n.text = boolean, fmt.Sprint(t)
	case string:
		n.kind, n.text = text, t
	case json.Number:
		n.kind, n.text = number, t.String()
	case json.Delim:
		n.kind = list
		if t == '{' {
			n.kind = object
		}
		for d.More() {
			p := pair{pos: l.at(start(d, data))}
			if n.kind == object {
				key, err := d.Token()
				if err != nil {
					return nil, err
				}
				p.key = key.(string)
			}
			if p.value, err = jsonNode(d, data, l); err != nil {
				return nil, err
			}
			if n.kind == object {
				n.pairs = append(n.pairs, p)
			} else {
				n.items = append(n.items, p.value)
			}
		}
		if _, err := d.Token(); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// start is the offset of the decoder's next token.
func start(d *json.Decoder, data []byte) int {
	at := int(d.InputOffset())
	return at + len(data[at:]) - len(bytes.TrimLeft(data[at:], " \t\r\n,:"))
}

// lines are the offsets at which the lines of a document begin.
type lines struct {
	data  []byte
	begin []int
}

func newLines(data []byte) lines {
	l := lines{data: data, begin: []int{0}}
	for i, c := range data {
		if c == '\n' {
			l.begin = append(l.begin, i+1)
		}
	}
	return l
}

// at is the place of an offset; columns count characters.
func (l lines) at(offset int) pos {
	line := sort.SearchInts(l.begin, offset+1)
	return pos{line, 1 + utf8.RuneCount(l.data[l.begin[line-1]:offset])}
}

// MarshalJSON returns the switch as JSON, without defaults. ParseJSON reads it back.
func (s Switch) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	writeJSON(&b, printObject(switchKeys, &s), "")
	return b.Bytes(), nil
}

// writeJSON writes a value with the given indentation.
func writeJSON(b *bytes.Buffer, n *node, indent string) {
	sequence := func(open, end string, length int, one func(i int)) {
		b.WriteString(open)
		for i := range length {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString("\n" + indent + "  ")
			one(i)
		}
		if length > 0 {
			b.WriteString("\n" + indent)
		}
		b.WriteString(end)
	}
	switch n.kind {
	case object:
		sequence("{", "}", len(n.pairs), func(i int) {
			b.WriteString(quote(n.pairs[i].key) + ": ")
			writeJSON(b, n.pairs[i].value, indent+"  ")
		})
	case list:
		sequence("[", "]", len(n.items), func(i int) { writeJSON(b, n.items[i], indent+"  ") })
	case text, untyped:
		b.WriteString(quote(n.text))
	default:
		b.WriteString(n.text)
	}
}

// quote is text in double quotes, as JSON and YAML have it.
func quote(s string) string {
	b, _ := json.Marshal(s) // it never fails for a string
	return string(b)
}
