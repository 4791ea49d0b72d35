package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"sluice/cmd/sluice/internal/control"
)

const statsLong = `Print the counters of a running switch's ports, or with --watch their rates,
until Ctrl-C. On a terminal the rates are refreshed in place, and drops are red
unless NO_COLOR is set. CUT counts super-packets that were cut, DROPS what the
switch and the kernel dropped. --json has every counter, with --watch an object
on each line.`

const statsExample = `  sluice stats
  sluice stats a b --watch
  sluice stats --watch=5
  sluice stats --json | jq '.ports[] | {name, drops}'`

func newStatsCommand() *cobra.Command {
	var t target
	var every float64
	c := &cobra.Command{
		Use:               "stats [PORT...]",
		Short:             "Print the counters or the rates of a running switch's ports",
		Long:              statsLong,
		Example:           statsExample,
		ValidArgsFunction: t.completePorts,
		RunE: func(c *cobra.Command, args []string) error {
			ask := func() (control.Stats, error) {
				s, err := t.client().Stats(c.Context())
				if err == nil {
					s.Ports, err = chosen(s.Ports, args, func(p *control.Counts) string { return p.Name })
				}
				return s, err
			}
			w := c.OutOrStdout()
			if c.Flags().Changed("watch") {
				if every < 0.1 || every > 3600 {
					return usageError{fmt.Errorf("--watch=%v: want 0.1 to 3600 seconds", every)}
				}
				return watch(c, ask, time.Duration(every*float64(time.Second)), t.json)
			}
			s, err := ask()
			switch {
			case err != nil:
				return err
			case t.json:
				return printJSON(w, s)
			}
			return printStats(w, s)
		},
	}
	t.flags(c)
	c.Flags().Float64Var(&every, "watch", 0, "print rates every `SECONDS`")
	c.Flags().Lookup("watch").NoOptDefVal = "1"
	return c
}

func printStats(w io.Writer, s control.Stats) error {
	rows := [][]string{{"PORT", "RX FRAMES", "RX BYTES", "TX FRAMES", "TX BYTES", "CUT", "DROPS"}}
	var why []string
	for _, p := range s.Ports {
		row := []string{p.Name}
		for _, n := range []uint64{p.RX.Frames, p.RX.Bytes, p.TX.Frames, p.TX.Bytes, cuts(p), drops(p)} {
			row = append(row, short(float64(n)))
		}
		rows = append(rows, row)
		if drops(p) > 0 {
			why = append(why, fmt.Sprintf("port %s dropped: %s\n", p.Name, dropped(p)))
		}
	}
	if err := table(w, "lrrrrrr", rows); err != nil {
		return err
	}
	return remarks(w, why)
}

// cuts is how many super-packets were cut.
func cuts(p control.Counts) uint64 { return p.TX.Resegmented + p.TX.Segmented }

// drops is how many frames the switch and the kernel dropped.
func drops(p control.Counts) uint64 {
	n := p.KernelDrops
	for _, side := range []map[string]uint64{p.Drops.Ingress, p.Drops.Egress} {
		for _, v := range side {
			n += v
		}
	}
	return n
}

// watch prints rates until the command is interrupted.
func watch(c *cobra.Command, ask func() (control.Stats, error), every time.Duration, asJSON bool) error {
	w := c.OutOrStdout()
	was, err := ask()
	if err != nil {
		return err
	}
	s := screen{w: w}
	if f, ok := w.(*os.File); ok {
		_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
		s.terminal = err == nil
		s.file = f
	}
	s.colour = s.terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-c.Context().Done():
			return nil
		case <-tick.C:
		}
		is, err := ask()
		switch {
		case c.Context().Err() != nil:
			return nil
		case err != nil:
			return err
		case asJSON:
			text, err := control.Encode(is, "")
			if err == nil {
				_, err = w.Write(text)
			}
			if err != nil {
				return err
			}
			continue
		}
		if err := s.draw(rates(was, is)); err != nil {
			return err
		}
		was = is
	}
}

// rate is what a port did in a second.
type rate struct {
	port  string
	cells [6]float64 // as head has them; the last is drops
}

// head is that of the rates, which fit 80 columns.
const head = "%-17s %9s %9s %9s %9s %8s %8s"

// rates are those between two moments. A port that is new did nothing.
func rates(was, is control.Stats) (all []rate) {
	before := map[string]control.Counts{}
	for _, p := range was.Ports {
		before[p.Name] = p
	}
	seconds := is.Time.Sub(was.Time).Seconds()
	for _, p := range is.Ports {
		r := rate{port: p.Name}
		if q, ok := before[p.Name]; ok && seconds > 0 {
			for i, x := range [...][2]uint64{
				{8 * q.RX.Bytes, 8 * p.RX.Bytes}, {q.RX.Frames, p.RX.Frames},
				{8 * q.TX.Bytes, 8 * p.TX.Bytes}, {q.TX.Frames, p.TX.Frames},
				{cuts(q), cuts(p)}, {drops(q), drops(p)},
			} {
				if x[1] > x[0] { // else the port was removed, and added again
					r.cells[i] = float64(x[1]-x[0]) / seconds
				}
			}
		}
		all = append(all, r)
	}
	return all
}

// screen is where rates are drawn, on a terminal over those of before.
type screen struct {
	w        io.Writer
	file     *os.File
	terminal bool
	colour   bool
	lines    int // drawn before
}

func (s *screen) draw(all []rate) error {
	lines := []string{fmt.Sprintf(head, "PORT", "RX bit/s", "frames/s", "TX bit/s", "frames/s", "cut/s", "drops/s")}
	for _, r := range all {
		name := r.port
		if s.terminal && utf8.RuneCountInString(name) > 17 {
			name = name[:16] + "~" // names are ASCII
		}
		var cells [6]string
		for i, v := range r.cells {
			cells[i] = short(v)
		}
		line := fmt.Sprintf(head, name, cells[0], cells[1], cells[2], cells[3], cells[4], cells[5])
		if s.colour && r.cells[5] > 0 {
			line = line[:len(line)-8] + "\x1b[31m" + line[len(line)-8:] + "\x1b[0m"
		}
		lines = append(lines, line)
	}
	if !s.terminal {
		_, err := io.WriteString(s.w, strings.Join(lines, "\n")+"\n\n")
		return err
	}
	// What scrolls off the top cannot be drawn over.
	size, err := unix.IoctlGetWinsize(int(s.file.Fd()), unix.TIOCGWINSZ)
	if err == nil && size.Row > 2 && len(lines) >= int(size.Row) {
		rest := len(lines) - int(size.Row) + 2
		lines = append(lines[:len(lines)-rest], fmt.Sprintf("and %d more", rest))
	}
	var b strings.Builder
	if s.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.lines)
	}
	for _, line := range lines {
		b.WriteString(line + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	s.lines = len(lines)
	_, err = io.WriteString(s.w, b.String())
	return err
}
