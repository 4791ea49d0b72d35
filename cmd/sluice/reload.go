package main

import "github.com/spf13/cobra"

const reloadLong = `Have a switch that was started with -c read its file again, and print what that
changed. Ports that stay as they are lose no frame. A file with an error in it
changes nothing. SIGHUP does the same.`

const reloadExample = `  sluice reload --dry-run    # what would change
  sluice reload`

func newReloadCommand() *cobra.Command {
	var t target
	var dryRun bool
	c := &cobra.Command{
		Use:               "reload",
		Short:             "Have a running switch read its file again",
		Long:              reloadLong,
		Example:           reloadExample,
		Args:              noArgs,
		ValidArgsFunction: nothing,
		RunE: func(c *cobra.Command, _ []string) error {
			a, err := t.client().Reload(c.Context(), dryRun)
			if err != nil {
				return err
			}
			return t.applied(c, a)
		},
	}
	t.flags(c)
	c.Flags().BoolVar(&dryRun, "dry-run", false, "print what would change, and change nothing")
	return c
}
