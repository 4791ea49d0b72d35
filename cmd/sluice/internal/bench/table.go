package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// noisy is the coefficient of variation above which the report warns.
const noisy = 0.15

// even is how far two medians may differ, as a fraction of the smaller, before one of them is
// called ahead.
const even = 0.05

// columns are the comparisons of a bridge and a switch, by the bridge's cases.
var columns = []struct{ title, bridge string }{
	{"64 KiB everywhere", bridgeLegacy},
	{fmt.Sprintf("%d everywhere", bigSize), bridgeBig},
	{fmt.Sprintf("%d into 64 KiB", bigSize), bridgeMixed},
}

// rows are what carries the stream, with its case for each column; empty means none.
var rows = []struct {
	title, path string
	cases       [3]string
}{
	{"Linux bridge, veth to veth", Bridge, [3]string{bridgeLegacy, bridgeBig, bridgeMixed}},
	{"Sluice, packet to packet", PacketToPacket, [3]string{legacy, big, mixedResegment}},
	{"Sluice, packet to tap", PacketToTap, [3]string{legacy, big, mixedResegment}},
	{"Sluice, packet to packet, `oversize=segment`", PacketToPacket, [3]string{2: mixedSegment}},
	{"Sluice, packet to tap, `oversize=segment`", PacketToTap, [3]string{2: mixedSegment}},
}

// standing says who is ahead, from a switch's median divided by the bridge's.
type standing int

const (
	bridgeAhead standing = iota
	sluiceAhead
	neither
)

// inTable and inVerdict are the words for each standing.
var (
	inTable   = [...]string{"bridge ahead", "Sluice ahead", "even"}
	inVerdict = [...]string{"The bridge is ahead", "Sluice is ahead", "Even"}
)

func standingOf(q float64) standing {
	switch {
	case q*(1+even) < 1:
		return bridgeAhead
	case q > 1+even:
		return sluiceAhead
	}
	return neither
}

// against compares a switch's case with the bridge in the same lab. It is empty for the bridge
// itself, and if either was not measured.
func (r *Report) against(c *Case) string {
	for _, row := range rows {
		i := slices.Index(row.cases[:], c.Case)
		if row.path != c.Path || i < 0 || c.Path == Bridge {
			continue
		}
		if q, ok := r.ratio(c.Path, c.Case, columns[i].bridge, c.Family); ok {
			return fmt.Sprintf("**%.2f: %s**", q, inTable[standingOf(q)])
		}
	}
	return ""
}

// conditions says in a sentence what was measured, and with what.
func (r *Report) conditions() string {
	s := &r.Settings
	iperf := "iperf3"
	if v := r.Versions[iperf]; v != "" {
		iperf += " " + v
	}
	return fmt.Sprintf("Linux %s, %d CPUs, %s: one TCP stream, writes of %d MiB (iperf3 -l %[4]dM), "+
		"congestion control %s, MTU %d; %d interleaved rounds of %d s; sender bound to CPU %d, "+
		"receiver to CPU %d.",
		r.Kernel, r.CPUs, iperf, s.WriteSize>>20, s.CongestionControl, s.MTU, s.Rounds, s.Seconds,
		s.SenderCPU, s.ReceiverCPU)
}

// WriteTable writes the report for a reader; the last paragraph says what it
// shows.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%-16s  %-15s  %-6s  %7s  %7s  %7s  %5s  %11s  %7s  %7s  %s\n", r.conditions(),
		"path", "case", "family", "Gbit/s", "least", "most", "CV %", "retransmits", "max in", "max out",
		"times the bridge's")
	for i := range r.Cases {
		c := &r.Cases[i]
		line := fmt.Sprintf("%-16s  %-15s  %-6s  skipped", c.Path, c.Case, c.Family)
		if c.Skipped == "" {
			line = fmt.Sprintf("%-16s  %-15s  %-6s  %7.2f  %7.2f  %7.2f  %5.1f  %11d  %7d  %7d  %s",
				c.Path, c.Case, c.Family, c.Median, slices.Min(c.Samples), slices.Max(c.Samples),
				100*c.CV, c.Retransmits, c.MaxIn, c.MaxOut, r.against(c))
		}
		fmt.Fprintln(&b, strings.TrimRight(line, " "))
	}
	fmt.Fprintf(&b, "\n%-50s", "ratio of medians")
	for _, f := range families {
		fmt.Fprintf(&b, "  %6s", f.name)
	}
	for _, row := range ratioRows {
		fmt.Fprintf(&b, "\n%-50s", ratioName(row.path, row.over, row.under))
		for _, f := range families {
			if v, ok := r.ratio(row.path, row.over, row.under, f.name); ok {
				fmt.Fprintf(&b, "  %6.2f", v)
			} else {
				fmt.Fprintf(&b, "  %6s", "-")
			}
		}
	}
	fmt.Fprintf(&b, "\n\n%s\n", strings.Join(r.Verdict(), "\n"))
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteMarkdown writes the report as the README shows it.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nGbit/s: the median, the smallest and the greatest sample, and **how many times the "+
		"bridge's median** it is.\n\n|", r.conditions())
	for _, c := range columns {
		fmt.Fprintf(&b, " | %s", c.title)
	}
	fmt.Fprintf(&b, " |\n|---%s|\n", strings.Repeat("|---", len(columns)))
	for _, f := range families {
		for _, row := range rows {
			var cells string
			measured := false
			for _, name := range row.cases {
				cell := ""
				if c := r.find(row.path, name, f.name); c != nil {
					cell, measured = r.cell(c), true
				}
				cells += " | " + cell
			}
			if measured {
				fmt.Fprintf(&b, "| %s: %s%s |\n", familyTitle(f.name), row.title, cells)
			}
		}
	}
	fmt.Fprintf(&b, "\n- %s\n", strings.Join(r.Verdict(), "\n- "))
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) cell(c *Case) string {
	if len(c.Samples) == 0 {
		return "-"
	}
	s := fmt.Sprintf("%.1f (%.1f-%.1f)", c.Median, slices.Min(c.Samples), slices.Max(c.Samples))
	if a := r.against(c); a != "" {
		s += " " + a
	}
	return s
}

func familyTitle(family string) string {
	return map[string]string{"ipv4": "IPv4", "ipv6": "IPv6"}[family]
}

// Verdict says what the medians show, in the same words for and against Sluice: a sentence for each
// family and standing, and one for what is missing.
func (r *Report) Verdict() []string {
	var sentences []string
	for _, f := range families {
		if s := r.regression(f.name); s != "" {
			sentences = append(sentences, s)
		}
		for st, words := range inVerdict {
			if s := r.standings(f.name, standing(st)); s != "" {
				sentences = append(sentences, fmt.Sprintf("**%s** over %s: %s.", words, familyTitle(f.name), s))
			}
		}
	}
	if sentences == nil {
		sentences = []string{"There is nothing to compare: no case was measured over the Linux bridge as well."}
	}
	for _, c := range r.Cases {
		if c.Skipped != "" {
			sentences = append(sentences,
				fmt.Sprintf("Skipped: %s, %s, %s: %s.", c.Path, c.Case, c.Family, c.Skipped))
		}
	}
	if n := r.noisy(); n > 0 {
		sentences = append(sentences, fmt.Sprintf(
			"Samples vary by more than %.0f %% in %d of %d cases: measure again on a quieter machine, "+
				"or with more rounds.", 100*noisy, n, len(r.Cases)))
	}
	return sentences
}

// regression is what BIG TCP into a 64 KiB egress costs without Sluice.
func (r *Report) regression(family string) string {
	mixed, plain := r.median(Bridge, bridgeMixed, family), r.median(Bridge, bridgeLegacy, family)
	if mixed == 0 || plain == 0 {
		return ""
	}
	return fmt.Sprintf("%s: over the Linux bridge a BIG TCP sender into a 64 KiB egress reaches %.1f Gbit/s, "+
		"%.2f times the %.1f without BIG TCP.", familyTitle(family), mixed, mixed/plain, plain)
}

// standings lists the cases in which a family's standing is st, each as a multiple of the bridge's
// throughput.
func (r *Report) standings(family string, st standing) string {
	var list []string
	for i, column := range columns {
		var cells []string
		for _, row := range rows[1:] { // without the bridge itself
			q, ok := r.ratio(row.path, row.cases[i], column.bridge, family)
			if ok && standingOf(q) == st {
				cells = append(cells, fmt.Sprintf("%s %.2f", strings.TrimPrefix(row.title, "Sluice, "), q))
			}
		}
		if cells != nil {
			list = append(list, fmt.Sprintf("%s (%s)", column.title, strings.Join(cells, "; ")))
		}
	}
	return strings.Join(list, ", ")
}

func (r *Report) noisy() (n int) {
	for _, c := range r.Cases {
		if c.CV > noisy {
			n++
		}
	}
	return n
}
