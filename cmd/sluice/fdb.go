package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"sluice/cmd/sluice/internal/config"
	"sluice/cmd/sluice/internal/control"
)

const fdbLong = `Look at the forwarding database of a running switch: which MAC address of which
VLAN is behind which port. VLAN 0 is that of untagged frames.`

const fdbExample = `  sluice fdb show --port a
  sluice fdb add 52:54:00:00:00:0a a --vlan 10
  sluice fdb del 52:54:00:00:00:0a --vlan 10
  sluice fdb flush --port a`

func newFDBCommand() *cobra.Command {
	return family("fdb", "Look at and edit the forwarding database of a running switch", fdbLong, fdbExample,
		newFDBShowCommand(), newFDBFlushCommand(), newFDBAddCommand(), newFDBDelCommand())
}

// part is which part of the forwarding database a command is about.
type part struct {
	port string
	vlan uint16
}

func (p *part) flags(c *cobra.Command, t *target) {
	c.Flags().StringVar(&p.port, "port", "", "only addresses behind this `PORT`")
	c.Flags().Uint16Var(&p.vlan, "vlan", 0, "only addresses of this `VLAN`")
	_ = c.RegisterFlagCompletionFunc("port", t.completePorts)
}

const fdbShowLong = `List the addresses that the forwarding database knows: the seconds since each
was heard of (up to ten too many), or that it is static.`

func newFDBShowCommand() *cobra.Command {
	var t target
	var p part
	c := &cobra.Command{
		Use:               "show",
		Short:             "List the addresses",
		Long:              fdbShowLong,
		Example:           "  sluice fdb show\n  sluice fdb show --port a --vlan 10 --json",
		Args:              noArgs,
		ValidArgsFunction: nothing,
		RunE: func(c *cobra.Command, _ []string) error {
			vlan := -1
			if c.Flags().Changed("vlan") {
				vlan = int(p.vlan)
			}
			f, err := t.client().FDB(c.Context(), p.port, vlan)
			if err != nil {
				return err
			}
			if t.json {
				return printJSON(c.OutOrStdout(), f)
			}
			rows := [][]string{{"VLAN", "MAC", "PORT", "AGE"}}
			for _, e := range f.Entries {
				age := fmt.Sprintf("%d s", e.Age)
				if e.Static {
					age = "static"
				}
				rows = append(rows, []string{fmt.Sprint(e.VLAN), e.MAC, e.Port, age})
			}
			return table(c.OutOrStdout(), "r", rows)
		},
	}
	t.flags(c)
	p.flags(c, &t)
	return c
}

const fdbFlushLong = `Forget learnt addresses: all, or those behind a port or of a VLAN. Static ones
stay. Frames for an address that is not known are flooded until it is heard of
again.`

func newFDBFlushCommand() *cobra.Command {
	var t target
	var p part
	c := &cobra.Command{
		Use:               "flush",
		Short:             "Forget learnt addresses",
		Long:              fdbFlushLong,
		Example:           "  sluice fdb flush\n  sluice fdb flush --port a",
		Args:              noArgs,
		ValidArgsFunction: nothing,
		RunE: func(c *cobra.Command, _ []string) error {
			what := control.Flush{Port: p.port}
			if c.Flags().Changed("vlan") {
				what.VLAN = &p.vlan
			}
			f, err := t.client().Flush(c.Context(), what)
			if err != nil {
				return err
			}
			if t.json {
				return printJSON(c.OutOrStdout(), f)
			}
			things := "addresses are"
			if f.Entries == 1 {
				things = "address is"
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%d %s forgotten\n", f.Entries, things)
			return err
		},
	}
	t.flags(c)
	p.flags(c, &t)
	return c
}

const fdbAddLong = `Add a static address: it does not age and does not move. One that is there
already moves to the port. It is part of the configuration, as
` + "`sluice config show`" + ` prints it.`

func newFDBAddCommand() *cobra.Command {
	var t target
	var vlan uint16
	c := &cobra.Command{
		Use:     "add MAC PORT",
		Short:   "Add a static address",
		Long:    fdbAddLong,
		Example: "  sluice fdb add 52:54:00:00:00:0a a\n  sluice fdb add 52:54:00:00:00:0a a --vlan 10",
		Args:    exactArgs(2, "want a MAC address and a PORT"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return t.ports(nil), cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			mac, err := config.ParseMAC(args[0])
			if err != nil {
				return usageError{err}
			}
			a, err := t.client().AddEntry(c.Context(), config.Entry{VLAN: vlan, MAC: mac, Port: args[1]})
			if err != nil {
				return err
			}
			return t.applied(c, a)
		},
	}
	t.flags(c)
	c.Flags().Uint16Var(&vlan, "vlan", 0, "its `VLAN`; 0 is that of untagged frames")
	return c
}

const fdbDelLong = "Remove a static address. `sluice fdb flush` forgets learnt ones."

func newFDBDelCommand() *cobra.Command {
	var t target
	var vlan uint16
	c := &cobra.Command{
		Use:               "del MAC",
		Short:             "Remove a static address",
		Long:              fdbDelLong,
		Example:           "  sluice fdb del 52:54:00:00:00:0a --vlan 10",
		Args:              exactArgs(1, "want a MAC address"),
		ValidArgsFunction: nothing,
		RunE: func(c *cobra.Command, args []string) error {
			mac, err := config.ParseMAC(args[0])
			if err != nil {
				return usageError{err}
			}
			a, err := t.client().RemoveEntry(c.Context(), vlan, mac)
			if err != nil {
				return err
			}
			return t.applied(c, a)
		},
	}
	t.flags(c)
	c.Flags().Uint16Var(&vlan, "vlan", 0, "its `VLAN`; 0 is that of untagged frames")
	return c
}
