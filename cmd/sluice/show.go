package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/cmd/sluice/internal/control"
	"sluice/cmd/sluice/internal/keeper"
)

const showLong = `Show a running switch: its ports, what each takes now, why a port is down, and
which pairs of ports do not fit: what one sends and the other does not take
whole.

With PORT it shows those ports alone, with all limits and who set each: the
port's key, the netdev, a probe of the kernel, or the kernel's refusal of more.`

const showExample = `  sluice show
  sluice show a b
  sluice show --json | jq '.ports[] | select(.up | not) | .why'`

func newShowCommand() *cobra.Command {
	var t target
	c := &cobra.Command{
		Use:               "show [PORT...]",
		Short:             "Show a running switch, its ports and their limits",
		Long:              showLong,
		Example:           showExample,
		ValidArgsFunction: t.completePorts,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := t.client().Show(c.Context())
			if err != nil {
				return err
			}
			s.Ports, err = chosen(s.Ports, args, func(p *keeper.PortState) string { return p.Name })
			if err != nil {
				return err
			}
			if len(args) > 0 {
				s.Pairs = slices.DeleteFunc(s.Pairs, func(p keeper.Pair) bool {
					return !slices.Contains(args, p.From) && !slices.Contains(args, p.To)
				})
			}
			w := c.OutOrStdout()
			switch {
			case t.json:
				return printJSON(w, s)
			case len(args) > 0:
				return showPorts(w, s)
			}
			return showSwitch(w, s)
		},
	}
	t.flags(c)
	return c
}

// showSwitch is the whole switch, a line for each port.
func showSwitch(w io.Writer, s control.Show) error {
	fmt.Fprintf(w, "switch %s: process %d, configuration %d, %d of %d addresses known\n\n",
		s.Name, s.PID, s.Revision, s.FDB.Entries, s.FDB.Size)
	rows := [][]string{{"PORT", "KIND", "DEVICE", "STATE", "SINCE", "MTU", "GSO", "GSO IPV4", "SEGS"}}
	for _, p := range s.Ports {
		row := []string{p.Name, p.Kind, p.Device, state(p), ago(time.Since(p.Since))}
		for _, n := range []int{p.Limits.MTU, p.Limits.GSOMaxSize, p.Limits.GSOIPv4MaxSize, p.Limits.GSOMaxSegs} {
			if n == 0 {
				row = append(row, "-")
			} else {
				row = append(row, fmt.Sprint(n))
			}
		}
		rows = append(rows, row)
	}
	if err := table(w, "llllrrrrr", rows); err != nil {
		return err
	}
	var notes []string
	for _, p := range s.Ports {
		if p.Why != "" {
			notes = append(notes, fmt.Sprintf("port %s is down: %s\n", p.Name, p.Why))
		}
	}
	return remarks(w, append(notes, misfits(s)...))
}

func state(p keeper.PortState) string {
	if p.Up {
		return "up"
	}
	return "down"
}

func misfits(s control.Show) (lines []string) {
	for _, p := range s.Pairs {
		lines = append(lines, p.Text+"\n")
	}
	return lines
}

// remarks are lines behind an empty one, if there are any.
func remarks(w io.Writer, lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	_, err := io.WriteString(w, "\n"+strings.Join(lines, ""))
	return err
}

// showPorts is all about each port.
func showPorts(w io.Writer, s control.Show) error {
	for i, p := range s.Ports {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "port %s: %s %s, %s for %s\n", p.Name, p.Kind, p.Device, state(p), ago(time.Since(p.Since)))
		if p.Netdev != "" {
			fmt.Fprintf(w, "  the netdev's own name is %s\n", p.Netdev)
		}
		if p.Why != "" {
			fmt.Fprintf(w, "  it is down: %s\n", p.Why)
		}
		l := p.Limits
		rows := [][]string{{"  LIMIT", "NOW", "SET BY"}}
		for _, x := range []struct {
			name string
			now  any
		}{
			{"mtu", l.MTU}, {"gso_max_size", l.GSOMaxSize}, {"gso_ipv4_max_size", l.GSOIPv4MaxSize},
			{"gso_max_segs", l.GSOMaxSegs}, {"csum", l.Csum}, {"tso4", l.TSO4}, {"tso6", l.TSO6}, {"uso", l.USO},
			{"ipv6_form", l.IPv6Form}, {"max_write", l.MaxWrite},
		} {
			rows = append(rows, []string{"  " + x.name, fmt.Sprint(x.now), string(p.Sources[x.name])})
		}
		if err := table(w, "lrl", rows); err != nil {
			return err
		}
		fmt.Fprintf(w, "  in: %d frames, %d bytes, the longest %d\n", p.RX.Frames, p.RX.Bytes, p.RX.MaxFrame)
		fmt.Fprintf(w, "  out: %d frames, %d bytes, the longest %d\n", p.TX.Frames, p.TX.Bytes, p.TX.MaxFrame)
		fmt.Fprintf(w, "  cut: %d super-packets to %d chunks, %d to %d segments\n",
			p.TX.Resegmented, p.TX.Chunks, p.TX.Segmented, p.TX.Segments)
		fmt.Fprintf(w, "  dropped: %s\n", dropped(control.Counts{Drops: p.Drops, KernelDrops: p.KernelDrops}))
	}
	return remarks(w, misfits(s))
}

// dropped is how many frames of a port were dropped, by reason.
func dropped(c control.Counts) string {
	var all []string
	for _, side := range []map[string]uint64{c.Drops.Ingress, c.Drops.Egress} {
		for _, reason := range slices.Sorted(maps.Keys(side)) {
			if side[reason] > 0 {
				all = append(all, fmt.Sprintf("%s %d", reason, side[reason]))
			}
		}
	}
	if c.KernelDrops > 0 {
		all = append(all, fmt.Sprintf("by the kernel %d", c.KernelDrops))
	}
	if all == nil {
		return "none"
	}
	return strings.Join(all, ", ")
}
