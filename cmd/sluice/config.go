package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"sluice/cmd/sluice/internal/config"
)

const configLong = `Look at what a switch is: at its file, without running it, or at a running one.

The file is YAML. ` + "`sluice run -c FILE`" + ` runs the switch, and ` + "`sluice reload`" + ` has
it read the file again.`

const configExample = `  sluice config check sluice.yaml
  sluice config show > sluice.yaml
  sluice config schema > sluice.schema.json`

func newConfigCommand() *cobra.Command {
	return family("config", "Check a switch's file, print a running one's, or the schema", configLong, configExample,
		newConfigCheckCommand(), newConfigShowCommand(), newConfigSchemaCommand())
}

const configCheckLong = `Tell what is wrong with a file: each error on a line, FILE:LINE:COLUMN: what,
on standard error. Exit code 0 means that ` + "`sluice run -c FILE`" + ` would try it;
whether its devices are there is not looked at.`

func newConfigCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "check FILE",
		Short:   "Tell what is wrong with a file; - is standard input",
		Long:    configCheckLong,
		Example: "  sluice config check sluice.yaml",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("%s takes one FILE, and %d are given", c.CommandPath(), len(args))}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			s, err := readConfig(args[0], c.InOrStdin())
			if errs := (config.Errors)(nil); errors.As(err, &errs) {
				fmt.Fprintln(c.ErrOrStderr(), errs)
				return fmt.Errorf("%s has %s", args[0], count(len(errs), "error"))
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s: ok: %s\n", args[0], count(len(s.Ports), "port"))
			return err
		},
	}
}

const configShowLong = `Print the configuration of a running switch as a file, or with --json as JSON:
what differs from the defaults. ` + "`sluice run -c`" + ` of it makes the same switch.`

func newConfigShowCommand() *cobra.Command {
	var t target
	c := &cobra.Command{
		Use:               "show",
		Short:             "Print the configuration of a running switch as a file",
		Long:              configShowLong,
		Example:           "  sluice config show > sluice.yaml",
		Args:              noArgs,
		ValidArgsFunction: nothing,
		RunE: func(c *cobra.Command, _ []string) error {
			text, err := t.client().Config(c.Context(), t.json)
			if err == nil {
				_, err = c.OutOrStdout().Write(text)
			}
			return err
		},
	}
	t.flags(c)
	return c
}

func newConfigSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the file's JSON Schema, by which editors complete and check",
		Args:  noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := c.OutOrStdout().Write(config.Schema())
			return err
		},
	}
}

// count is a number of things.
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// readConfig reads a switch from a file; - is standard input.
func readConfig(name string, stdin io.Reader) (config.Switch, error) {
	in := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return config.Switch{}, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, config.MaxDocument+1))
	if err != nil {
		return config.Switch{}, err
	}
	return config.ParseYAML(name, data)
}
