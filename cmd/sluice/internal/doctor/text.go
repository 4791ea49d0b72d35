package doctor

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// columns is the width of the text.
const columns = 80

// Colourful reports whether what is written to f may be coloured: it is a terminal, and
// NO_COLOR is not set (https://no-color.org).
func Colourful(f *os.File) bool {
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// WriteText writes the report for a person.
func (r *Report) WriteText(w io.Writer, colour bool) error {
	t := &text{colour: colour}
	t.line("Linux %s, examined in %.1f s", r.Kernel.Release, r.Seconds)
	t.line("")
	r.table(t)
	t.group("Rights", r.of(rights, nil))
	t.group("Port kinds", r.of(kinds, nil))
	for i := range r.Netdevs {
		d := &r.Netdevs[i]
		t.line("")
		t.line("Netdev %s", d.Name)
		d.facts(t)
		for _, f := range r.of(netdevs, &d.Name) {
			f.Object = "" // it is in the heading
			t.finding(f)
		}
	}
	none := ""
	if all := r.of(netdevs, &none); len(all) > 0 {
		t.group("All netdevs", all)
	}
	notes := 0
	for _, f := range r.Findings {
		if f.Mark == Note {
			notes++
		}
	}
	t.line("")
	t.line("%s, %s.", count(r.Problems, "problem"), count(notes, "note"))
	_, err := io.WriteString(w, t.b.String())
	return err
}

func count(n int, what string) string {
	switch n {
	case 0:
		return "No " + what + "s"
	case 1:
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// of returns the findings of a group, only of one object unless it is nil.
func (r *Report) of(group string, object *string) (all []Finding) {
	for _, f := range r.Findings {
		if f.Group == group && (object == nil || f.Object == *object) {
			all = append(all, f)
		}
	}
	return all
}

// table is what each kind of port carries.
func (r *Report) table(t *text) {
	t.line("%-22s %8s %8s %-6s %8s %8s", "Longest super-packet", "out IPv4", "IPv6", "(form)", "in IPv4", "IPv6")
	for _, name := range []string{"tap", "packet", "macvtap"} {
		k := r.Kinds[name]
		in4, in6 := "?", "?"
		if k.Tried != nil {
			in4, in6 = fmt.Sprint(k.Tried.In.IPv4), fmt.Sprint(k.Tried.In.IPv6)
		}
		t.line("  %-20s %8d %8d %-6s %8s %8s", name, k.MaxOut.IPv4, k.MaxOut.IPv6, k.IPv6Form, in4, in6)
	}
	t.line("Bytes from the Ethernet header on. In: what a switch reads, out: what it sends.")
}

// facts describes a netdev, without a judgement.
func (d *Netdev) facts(t *text) {
	if !d.Found {
		return
	}
	state := []string{fmt.Sprintf("index %d", d.Index), fmt.Sprintf("mtu %d", d.MTU)}
	if d.Kind != "" {
		state = append([]string{d.Kind}, state...)
	}
	for _, f := range []struct {
		on   bool
		text string
	}{{d.Up, "up"}, {d.Carrier, "carrier"}, {d.Master != "", "port of " + d.Master}, {d.XDP != "", d.XDP}} {
		if f.on {
			state = append(state, f.text)
		}
	}
	for _, list := range []struct {
		title string
		items []string
	}{{"altnames ", d.AltNames}, {"", d.Addresses}, {"qdisc ", d.Qdiscs}} {
		if len(list.items) > 0 {
			state = append(state, list.title+strings.Join(list.items, " "))
		}
	}
	t.wrapped("  ", strings.Join(state, ", "))
	s := &d.Sizes
	t.wrapped("  ", fmt.Sprintf("gso_max_size %d, gso_ipv4_max_size %d (at most %d), gso_max_segs %d (at most %d), "+
		"gro_max_size %d, gro_ipv4_max_size %d",
		s.GSOMaxSize, s.GSOIPv4MaxSize, s.TSOMaxSize, s.GSOMaxSegs, s.TSOMaxSegs, s.GROMaxSize, s.GROIPv4MaxSize))
	for _, kind := range []string{"packet", "tap", "macvtap"} {
		if p, ok := d.Ports[kind]; ok {
			t.wrapped("  ", fmt.Sprintf("a %s port on it sends super-packets of up to %d bytes of IPv4, %d of IPv6",
				kind, p.MaxOut.IPv4, p.MaxOut.IPv6))
		}
	}
}

// text is the text so far, in lines that fit a terminal.
type text struct {
	b      strings.Builder
	colour bool
}

func (t *text) line(format string, a ...any) {
	t.b.WriteString(strings.Map(printable, fmt.Sprintf(format, a...)) + "\n")
}

// printable replaces control characters, which a netdev's name may contain.
func printable(c rune) rune {
	if unicode.IsPrint(c) {
		return c
	}
	return '?'
}

func (t *text) group(title string, findings []Finding) {
	t.line("")
	t.line("%s", title)
	for _, f := range findings {
		t.finding(f)
	}
}

var colours = map[Mark]string{OK: "\x1b[32m", Note: "\x1b[33m", Problem: "\x1b[31m"}

const (
	markWidth = len("  problem  ")
	indent    = "           "
)

func (t *text) finding(f Finding) {
	mark := fmt.Sprintf("%-*s", markWidth-2, f.Mark)
	if t.colour {
		mark = colours[f.Mark] + mark + "\x1b[0m"
	}
	said := f.Text
	if f.Object != "" && f.Group != rights {
		said = f.Object + ": " + said
	}
	if f.Means != "" {
		said += "; " + f.Means
	}
	t.b.WriteString("  " + mark)
	for i, l := range wrap(said, columns-markWidth) {
		if i > 0 {
			t.b.WriteString(indent)
		}
		t.line("%s", l)
	}
	// A command that continues on the next line can still be copied.
	t.try(f.Mend, ` \`)
	t.try(f.Advice, "")
}

// try adds something to try, if there is any. Lines that continue end with more.
func (t *text) try(what, more string) {
	if what == "" {
		return
	}
	lines := wrap("try: "+what, columns-markWidth-len(more))
	for i, l := range lines {
		if i < len(lines)-1 {
			l += more
		}
		t.line("%s", indent+l)
	}
}

func (t *text) wrapped(prefix, said string) {
	for _, l := range wrap(said, columns-len(prefix)) {
		t.line("%s", prefix+l)
	}
}

// wrap breaks a text into lines of at most so many columns, between words. A longer word is cut.
func wrap(said string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(said) {
		for utf8.RuneCountInString(word) > width {
			if line != "" {
				lines, line = append(lines, line), ""
			}
			runes := []rune(word)
			lines, word = append(lines, string(runes[:width])), string(runes[width:])
		}
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	return append(lines, line)
}
