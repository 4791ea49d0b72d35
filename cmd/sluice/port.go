package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"sluice/cmd/sluice/internal/config"
	"sluice/cmd/sluice/internal/control"
)

const portLong = `Add, remove and change ports of a running switch. Other ports lose no frame.`

const portExample = `  sluice port add c=tap:tC,mtu=9000
  sluice port set c gso_max_size=65536 oversize=segment
  sluice port del c`

func newPortCommand() *cobra.Command {
	return family("port", "Add, remove and change ports of a running switch", portLong, portExample,
		newPortAddCommand(), newPortDelCommand(), newPortSetCommand())
}

const portAddLong = `Add a port to a running switch. If its device cannot be had, it is added as
well: it is down, says why, and comes up when the device can be had.

`

const portAddExample = `  sluice port add c=tap:tC
  sluice port add d=packet:eth1,gso_max_size=65536 --name lab`

func newPortAddCommand() *cobra.Command {
	var t target
	c := &cobra.Command{
		Use:               "add NAME=KIND:DEVICE[,key=value...]",
		Short:             "Add a port",
		Long:              portAddLong + portHelp,
		Example:           portAddExample,
		Args:              exactArgs(1, "want one NAME=KIND:DEVICE[,key=value...]"),
		ValidArgsFunction: completeNewPort,
		RunE: func(c *cobra.Command, args []string) error {
			p, err := config.ParsePort(args[0])
			if errs := (config.Errors)(nil); errors.As(err, &errs) {
				for _, e := range errs {
					e.File = args[0]
				}
			}
			if err != nil {
				return usageError{err}
			}
			a, err := t.client().AddPort(c.Context(), p)
			if err != nil {
				return err
			}
			defer t.warnDown(c, p.Name)
			return t.applied(c, a)
		},
	}
	t.flags(c)
	return c
}

const portDelLong = `Remove ports from a running switch, one after the other. What Sluice created
goes with its port; its counters stay in the sums of the summary.`

const portDelExample = `  sluice port del c
  sluice port del c d --name lab`

func newPortDelCommand() *cobra.Command {
	var t target
	c := &cobra.Command{
		Use:               "del NAME...",
		Short:             "Remove ports",
		Long:              portDelLong,
		Example:           portDelExample,
		Args:              someArgs(1, "want the NAME of a port"),
		ValidArgsFunction: t.completePorts,
		RunE: func(c *cobra.Command, args []string) error {
			all := control.Applied{Changes: []control.Change{}}
			var failed error
			for _, name := range args {
				var a control.Applied
				if a, failed = t.client().RemovePort(c.Context(), name); failed != nil {
					break
				}
				all.Revision = a.Revision
				all.Changes = append(all.Changes, a.Changes...)
			}
			if failed != nil && all.Revision == 0 {
				return failed
			}
			return errors.Join(t.applied(c, all), failed)
		},
	}
	t.flags(c)
	return c
}

const portSetLong = `Change keys of a port of a running switch. An empty value is the default. Most
keys count from the next batch of frames on; kind, device, netns, lower and
queues make the port let go of its device and attach anew.

`

const portSetExample = `  sluice port set b gso_max_size=65536
  sluice port set b gso_max_size= oversize=segment`

func newPortSetCommand() *cobra.Command {
	var t target
	c := &cobra.Command{
		Use:               "set NAME key=value...",
		Short:             "Change keys of a port",
		Long:              portSetLong + portHelp,
		Example:           portSetExample,
		Args:              someArgs(2, "want the NAME of a port, and key=value"),
		ValidArgsFunction: t.completePort,
		RunE: func(c *cobra.Command, args []string) error {
			settings := map[string]*string{}
			for _, arg := range args[1:] {
				key, value, ok := strings.Cut(arg, "=")
				_, twice := settings[key]
				switch {
				case !ok || key == "":
					return usageError{fmt.Errorf("%q is not key=value; lists are joined by +, such as trunks=10+20-30", arg)}
				case twice:
					return usageError{fmt.Errorf("%s is given twice: leave one out", key)}
				}
				settings[key] = nil
				if value != "" {
					settings[key] = &value
				}
			}
			a, err := t.client().SetPort(c.Context(), args[0], settings)
			if err != nil {
				return err
			}
			defer t.warnDown(c, args[0])
			return t.applied(c, a)
		},
	}
	t.flags(c)
	return c
}
