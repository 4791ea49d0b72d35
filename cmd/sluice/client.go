package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/cmd/sluice/internal/config"
	"sluice/cmd/sluice/internal/control"
	"sluice/cmd/sluice/internal/keeper"
)

// controlVariable of the environment stands for --control.
const controlVariable = "SLUICE_CONTROL"

// target is which running switch a command talks to, and how it prints.
type target struct {
	name    string
	control string
	json    bool
}

// flags adds the flags that all such commands have.
func (t *target) flags(c *cobra.Command) {
	c.Flags().StringVar(&t.name, "name", "", "the switch's `NAME` (default: that of /run/sluice.sock)")
	c.Flags().StringVar(&t.control, "control", "",
		"`PATH` of the switch's control socket (default: $"+controlVariable+", or by --name)")
	c.Flags().BoolVar(&t.json, "json", false, "print JSON")
	_ = c.RegisterFlagCompletionFunc("name", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return control.Names(), cobra.ShellCompDirectiveNoFileComp
	})
}

func (t *target) client() *control.Client {
	path := t.control
	if path == "" && t.name == "" {
		path = os.Getenv(controlVariable)
	}
	return control.NewClient(cmp.Or(path, control.Path(t.name)))
}

// printJSON prints v.
func printJSON(w io.Writer, v any) error {
	text, err := control.Encode(v, "  ")
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// applied prints what an edit changed.
func (t *target) applied(c *cobra.Command, a control.Applied) error {
	if t.json {
		return printJSON(c.OutOrStdout(), a)
	}
	var b strings.Builder
	for _, change := range a.Changes {
		b.WriteString(change.Text + "\n")
	}
	if len(a.Changes) == 0 {
		b.WriteString("nothing changes\n")
	}
	_, err := io.WriteString(c.OutOrStdout(), b.String())
	return err
}

// warnDown tells, on standard error, which of the ports are down: an edit that asks for what
// cannot be had is no error.
func (t *target) warnDown(c *cobra.Command, ports ...string) {
	s, err := t.client().Show(c.Context())
	if err != nil {
		return // the edit was made
	}
	for _, p := range s.Ports {
		if p.Why != "" && slices.Contains(ports, p.Name) {
			fmt.Fprintf(c.ErrOrStderr(), "port %s is down: %s\n", p.Name, p.Why)
		}
	}
}

// someArgs is a usage error for less than so many arguments.
func someArgs(n int, want string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < n {
			return usageError{fmt.Errorf("%s: %s: `%s --help` has examples", c.CommandPath(), want, c.CommandPath())}
		}
		return nil
	}
}

// exactArgs is a usage error for another number of arguments.
func exactArgs(n int, want string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > n {
			return usageError{fmt.Errorf("%s: argument %q is out of place: %s", c.CommandPath(), args[n], want)}
		}
		return someArgs(n, want)(c, args)
	}
}

// family is a command that has only commands.
func family(use, short, long, example string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example, Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return usageError{fmt.Errorf("no command given: `%s --help` lists them", c.CommandPath())}
		},
	}
	c.AddCommand(commands...)
	return c
}

// completionLimit is how long the switch may take to say what there is to complete.
const completionLimit = 500 * time.Millisecond

// ports are the ports of the running switch, for completion, but for those in has.
func (t *target) ports(has []string) (all []string) {
	ctx, cancel := context.WithTimeout(context.Background(), completionLimit)
	defer cancel()
	s, err := t.client().Show(ctx)
	if err != nil {
		return nil
	}
	for _, p := range s.Ports {
		if !slices.Contains(has, p.Name) {
			all = append(all, cobra.CompletionWithDesc(p.Name, p.Kind+" "+p.Device))
		}
	}
	return all
}

// completePorts completes arguments that are ports.
func (t *target) completePorts(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return t.ports(args), cobra.ShellCompDirectiveNoFileComp
}

// completePort completes a first argument that is a port, and what it has behind.
func (t *target) completePort(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return t.ports(nil), cobra.ShellCompDirectiveNoFileComp
	}
	return completeSetting("", word)
}

// completeSetting completes key=value of a port behind what is there already.
func completeSetting(before, word string) (all []string, how cobra.ShellCompDirective) {
	key, _, hasKey := strings.Cut(word, "=")
	for _, k := range config.PortKeys() {
		switch {
		case !hasKey:
			all = append(all, cobra.CompletionWithDesc(before+k.Name+"=", k.Help))
			how = cobra.ShellCompDirectiveNoSpace
		case k.Name == key:
			for _, v := range k.Values {
				all = append(all, before+key+"="+v)
			}
		}
	}
	return all, how | cobra.ShellCompDirectiveNoFileComp
}

// completeNewPort completes NAME=KIND:DEVICE[,key=value...].
func completeNewPort(_ *cobra.Command, args []string, word string) (all []string, how cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	name, rest, ok := strings.Cut(word, "=")
	switch comma := strings.LastIndexByte(word, ','); {
	case comma >= 0:
		return completeSetting(word[:comma+1], word[comma+1:])
	case ok && !strings.Contains(rest, ":"):
		for _, k := range config.Kinds() {
			all = append(all, name+"="+string(k)+":")
		}
	}
	return all, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}

// nothing completes nothing: not even files.
func nothing(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// chosen are the ports of that name, or all if none is named.
func chosen[T any](all []T, names []string, name func(*T) string) ([]T, error) {
	if len(names) == 0 {
		return all, nil
	}
	var some []T
	for _, n := range names {
		i := slices.IndexFunc(all, func(t T) bool { return name(&t) == n })
		if i < 0 {
			return nil, &keeper.UnknownPortError{Name: n}
		}
		some = append(some, all[i])
	}
	return some, nil
}
