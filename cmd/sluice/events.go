package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"sluice/cmd/sluice/internal/control"
	"sluice/cmd/sluice/internal/keeper"
)

const eventsLong = `Print what happened to a running switch: ports that went up or down, limits
that changed, MAC addresses that flap, drop reasons seen for the first time,
and edits. Without --follow those that the switch remembers; with it those to
come. With --json each is a JSON object on a line of its own.`

const eventsExample = `  sluice events
  sluice events --follow --json
  sluice events --since 12 --follow   # those behind number 12, then new ones`

func newEventsCommand() *cobra.Command {
	var t target
	var follow bool
	var since uint64
	c := &cobra.Command{
		Use:               "events",
		Short:             "Print what happened to a running switch",
		Long:              eventsLong,
		Example:           eventsExample,
		Args:              noArgs,
		ValidArgsFunction: nothing,
		RunE: func(c *cobra.Command, _ []string) error {
			var from *uint64
			if c.Flags().Changed("since") {
				from = &since
			}
			var failed error
			err := t.client().Events(c.Context(), from, follow, func(e keeper.Event) bool {
				failed = t.printEvent(c.OutOrStdout(), e)
				return failed == nil
			})
			return errors.Join(err, failed)
		},
	}
	t.flags(c)
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with events as they happen")
	c.Flags().Uint64Var(&since, "since", 0, "only events behind this `NUMBER`")
	return c
}

func (t *target) printEvent(w io.Writer, e keeper.Event) error {
	if !t.json {
		_, err := fmt.Fprintf(w, "%4d %s %-14s %s\n", e.Seq, e.Time.Local().Format("15:04:05"), e.Kind, e.Text)
		return err
	}
	text, err := control.Encode(e, "")
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}
