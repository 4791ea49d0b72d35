package config

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"sluice/vnet"
)

// form says what the values of a key look like, in documents and in the schema.
type form[V any] interface {
	read(n *node) (V, error) // the inverse of print; does not check
	check(v V) error         // what is wrong with a value, and what would be right
	print(v V) *node
	schema() *node // the keywords that describe it
}

// listSeparator separates the items of a list on the command line, where a comma
// separates keys.
const listSeparator = "+"

const maxVLAN = 4095 // the greatest that a tag can hold (IEEE 802.1Q, 9.6)

// want is the error for a value of another kind.
func want(n *node, what string) error {
	switch n.kind {
	case null:
		return fmt.Errorf("there is no value: want %s", what)
	case text, untyped:
		return fmt.Errorf("%q is not %s", n.text, what)
	case number, boolean:
		return fmt.Errorf("%s is not %s", n.text, what)
	}
	return fmt.Errorf("%s is not %s", n.kind, what)
}

// integer is a whole number without a sign or leading zeros, since these might mean another base.
func integer(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && strconv.Itoa(n) == s
}

// numbers is a range of whole numbers.
type numbers struct{ low, high int }

func (f numbers) read(n *node) (int, error) {
	v, ok := integer(n.text)
	switch {
	case n.kind == text && ok:
		return 0, fmt.Errorf("%q is text: want the number without quotes", n.text)
	case n.kind != number && n.kind != untyped || !ok:
		return 0, want(n, f.what())
	}
	return v, nil
}

func (f numbers) check(v int) error {
	if v < f.low || v > f.high {
		return fmt.Errorf("%d is not %s", v, f.what())
	}
	return nil
}

func (f numbers) what() string { return fmt.Sprintf("a number from %d to %d", f.low, f.high) }

func (f numbers) print(v int) *node { return scalar(number, strconv.Itoa(v)) }

func (f numbers) schema() *node {
	n := keyword("type", scalar(text, "integer"))
	n.add("minimum", f.print(f.low))
	n.add("maximum", f.print(f.high))
	return n
}

// words is one of a few words.
type words[V comparable] struct {
	what string // the noun of an error; may be empty
	all  []V
}

func (f words[V]) read(n *node) (v V, err error) {
	for _, v := range f.all {
		if (n.kind == text || n.kind == untyped) && n.text == fmt.Sprint(v) {
			return v, nil
		}
	}
	return v, f.wrong(n)
}

func (f words[V]) check(v V) error {
	if !slices.Contains(f.all, v) {
		return f.wrong(f.print(v))
	}
	return nil
}

func (f words[V]) wrong(n *node) error {
	if f.what != "" && (n.kind == text || n.kind == untyped) {
		return fmt.Errorf("no such %s %q: use %s", f.what, n.text, f.either())
	}
	return want(n, f.either())
}

func (f words[V]) print(v V) *node { return scalar(text, fmt.Sprint(v)) }

// either is "a, b or c".
func (f words[V]) either() string {
	var all []string
	for _, v := range f.all {
		all = append(all, fmt.Sprint(v))
	}
	last := len(all) - 1
	return strings.Join(all[:last], ", ") + " or " + all[last]
}

func (f words[V]) schema() *node {
	all := &node{kind: list}
	for _, v := range f.all {
		all.items = append(all.items, f.print(v))
	}
	return keyword("enum", all)
}

// flag is true or false.
type flag struct{}

func (f flag) read(n *node) (bool, error) {
	if n.kind != boolean && n.kind != untyped || n.text != "true" && n.text != "false" {
		return false, want(n, "true or false")
	}
	return n.text == "true", nil
}

func (f flag) check(bool) error   { return nil }
func (f flag) print(v bool) *node { return scalar(boolean, strconv.FormatBool(v)) }
func (f flag) schema() *node      { return keyword("type", scalar(text, "boolean")) }

// texts is text: a name, a path, an address.
type texts struct {
	what    string         // the noun of an error
	most    int            // bytes
	pattern *regexp.Regexp // what it must match, also valid in ECMA 262 for schemas
	like    string         // what the pattern requires, in words
	also    func(string) error
}

func (f texts) read(n *node) (string, error) {
	switch n.kind {
	case text, untyped:
		return n.text, nil
	case number, boolean:
		return "", fmt.Errorf("%s is %s: want a %s, so put it in quotes", n.text, n.kind, f.what)
	}
	return "", want(n, "a "+f.what)
}

func (f texts) check(v string) error {
	switch {
	case v == "":
		return fmt.Errorf("the %s is empty", f.what)
	case len(v) > f.most:
		return fmt.Errorf("%s %q has %d bytes, and at most %d are allowed", f.what, v, len(v), f.most)
	case !f.pattern.MatchString(v) || strings.ContainsFunc(v, unprintable):
		return fmt.Errorf("%s %q: want %s", f.what, v, f.like)
	case f.also != nil:
		return f.also(v)
	}
	return nil
}

// unprintable reports the runes that no text may contain, including that for invalid UTF-8.
func unprintable(c rune) bool { return c == unicode.ReplacementChar || !unicode.IsPrint(c) }

func (f texts) print(v string) *node { return scalar(text, v) }

func (f texts) schema() *node {
	n := keyword("type", scalar(text, "string"))
	n.add("maxLength", scalar(number, strconv.Itoa(f.most)))
	n.add("pattern", scalar(text, f.pattern.String()))
	return n
}

var (
	// names are the names of ports, mirrors and switches. They are used without quotes in
	// arguments, URL paths and metric labels.
	names = texts{
		what: "name", most: 63,
		pattern: regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]*$`),
		like:    "letters, digits and . _ @ -, a letter or digit first",
	}
	// netdevs are names of netdevs: dev_valid_name in net/core/dev.c, without the comma, which
	// separates keys on the command line, and without the % of a pattern.
	netdevs = texts{
		what: "device name", most: 127, // ALTIFNAMSIZ less its NUL (include/uapi/linux/if.h): it may be an altname
		pattern: regexp.MustCompile(`^[^ /:%,]+$`),
		like:    "a name that a netdev can have",
		also: func(v string) error {
			if v == "." || v == ".." {
				return fmt.Errorf("%q is not a name that a netdev can have", v)
			}
			return nil
		},
	}
	namespaces = texts{
		what: "namespace", most: 4095, // PATH_MAX less its NUL (include/uapi/linux/limits.h)
		pattern: regexp.MustCompile(`^[^ ,]+$`),
		like:    "a name that `ip netns` knows, or a path, without spaces and commas",
	}
	sockets = texts{
		what: "socket path", most: 107, // sun_path less its NUL (include/uapi/linux/un.h)
		pattern: regexp.MustCompile(`^(/|none$)`),
		like:    "an absolute path, or none",
		also: func(v string) error {
			if path.Clean(v) != v {
				return fmt.Errorf("socket path %q: want %s", v, path.Clean(v))
			}
			return nil
		},
	}
	groups = texts{
		what: "group name", most: 32, // as useradd(8) has it
		pattern: regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`),
		like:    "a name that `getent group` knows",
	}
	addresses = texts{
		what: "listen address", most: 255 + 6, // a host name and :65535
		pattern: regexp.MustCompile(`^([A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\]):[0-9]+$`),
		like:    "[HOST]:PORT, such as :9100 or 127.0.0.1:9100",
		also: func(v string) error {
			n, ok := integer(v[strings.LastIndexByte(v, ':')+1:])
			if !ok || n < 1 || n > 65535 {
				return fmt.Errorf("listen address %q: want a port from 1 to 65535", v)
			}
			return nil
		},
	}
)

// tags is one VLAN.
type tags struct{}

var vlanNumbers = numbers{0, maxVLAN}

func (f tags) read(n *node) (Tag, error) {
	v, err := vlans{}.read(n)
	return Tag{VLAN: v, Set: err == nil}, err
}

func (f tags) check(v Tag) error {
	if !v.Set {
		return fmt.Errorf("there is no VLAN: want %s", vlanNumbers.what())
	}
	return vlanNumbers.check(int(v.VLAN))
}

func (f tags) print(v Tag) *node {
	if !v.Set {
		return &node{}
	}
	return vlans{}.print(v.VLAN)
}

func (f tags) schema() *node { return vlanNumbers.schema() }

// vlans is one VLAN that is always set.
type vlans struct{}

func (f vlans) read(n *node) (uint16, error) {
	v, err := vlanNumbers.read(n)
	if err == nil {
		err = vlanNumbers.check(v)
	}
	if err != nil {
		return 0, err
	}
	return uint16(v), nil
}

func (f vlans) check(v uint16) error { return vlanNumbers.check(int(v)) }
func (f vlans) print(v uint16) *node { return vlanNumbers.print(int(v)) }
func (f vlans) schema() *node        { return vlanNumbers.schema() }

// items are the items of a list. The command line joins them with a plus sign.
func items(n *node, like string) ([]*node, error) {
	switch n.kind {
	case list:
		return n.items, nil
	case untyped:
		var all []*node
		for _, s := range strings.Split(n.text, listSeparator) {
			all = append(all, scalar(untyped, s))
		}
		return all, nil
	}
	return nil, want(n, "a list, such as "+like)
}

// vlanSets is a set of VLANs.
type vlanSets struct{}

const rangesLike = "[10, 20-30]"

func (f vlanSets) read(n *node) (v VLANs, err error) {
	all, err := items(n, rangesLike)
	if err != nil {
		return v, err
	}
	for _, item := range all {
		low, high, isRange := strings.Cut(item.text, "-")
		if !isRange {
			high = low
		}
		l, ok := integer(low)
		h, ok2 := integer(high)
		scalarKind := item.kind == untyped || item.kind == number && !isRange || item.kind == text && isRange
		if !scalarKind || !ok || !ok2 || l < 0 || l > h || h > maxVLAN {
			return VLANs{}, want(item, fmt.Sprintf("a VLAN from 0 to %d, or a range of them such as 20-30", maxVLAN))
		}
		v.Add(uint16(l), uint16(h))
	}
	if v == (VLANs{}) {
		return v, f.check(v)
	}
	return v, nil
}

func (f vlanSets) check(v VLANs) error {
	if v == (VLANs{}) {
		return fmt.Errorf("the list is empty: leave it out to carry all VLANs")
	}
	return nil
}

func (f vlanSets) print(v VLANs) *node {
	n := &node{kind: list}
	for _, s := range v.ranges() {
		kind := number
		if strings.Contains(s, "-") {
			kind = text
		}
		n.items = append(n.items, scalar(kind, s))
	}
	return n
}

func (f vlanSets) schema() *node {
	spans := keyword("type", scalar(text, "string"))
	spans.add("pattern", scalar(text, `^[0-9]+-[0-9]+$`))
	n := listSchema(keyword("anyOf", &node{kind: list, items: []*node{vlanNumbers.schema(), spans}}))
	n.add("minItems", scalar(number, "1"))
	return n
}

// portLists is some ports.
type portLists struct{}

func (f portLists) read(n *node) (v []string, err error) {
	all, err := items(n, "[a, b]")
	if err != nil {
		return nil, err
	}
	for _, item := range all {
		name, err := names.read(item)
		if err != nil {
			return nil, err
		}
		v = append(v, name)
	}
	if len(v) == 0 {
		return nil, f.check(v)
	}
	return v, nil
}

func (f portLists) check(v []string) error {
	if len(v) == 0 {
		return fmt.Errorf("the list is empty: leave it out for all ports")
	}
	for i, name := range v {
		if slices.Contains(v[:i], name) {
			return fmt.Errorf("port %s is named twice", name)
		}
	}
	return nil
}

func (f portLists) print(v []string) *node {
	n := &node{kind: list}
	for _, name := range v {
		n.items = append(n.items, scalar(text, name))
	}
	return n
}

func (f portLists) schema() *node {
	n := listSchema(names.schema())
	n.add("minItems", scalar(number, "1"))
	n.add("uniqueItems", scalar(boolean, "true"))
	return n
}

// macs is the address of one host.
type macs struct{}

var macPattern = regexp.MustCompile(`^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$`)

const macWhat = "the MAC address of a host, such as 52:54:00:00:00:0a"

func (f macs) read(n *node) (vnet.MAC, error) {
	if n.kind != text && n.kind != untyped || !macPattern.MatchString(n.text) {
		return 0, want(n, macWhat)
	}
	v, err := strconv.ParseUint(strings.ReplaceAll(n.text, ":", ""), 16, 48)
	return vnet.MAC(v), err
}

func (f macs) check(v vnet.MAC) error {
	if v == 0 || v.Group() || v>>48 != 0 {
		return want(f.print(v), macWhat)
	}
	return nil
}

func (f macs) print(v vnet.MAC) *node { return scalar(text, v.String()) }

func (f macs) schema() *node {
	n := keyword("type", scalar(text, "string"))
	n.add("pattern", scalar(text, macPattern.String()))
	return n
}
