// Command sluice is a userspace Ethernet switch for Linux that carries BIG TCP.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes are a contract.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// usageError is a command line that cannot be carried out as it stands.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func main() { os.Exit(Main(os.Args[1:])) }

// Main runs one command line and returns its exit code.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:           "sluice",
		Short:         "A userspace Ethernet switch for Linux that carries BIG TCP",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return usageError{errors.New("no command given: `sluice --help` lists them")}
		},
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; `%s --help` lists the flags", err, c.CommandPath())}
	})
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newRunCommand(), newBenchCommand())
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	fmt.Fprintln(os.Stderr, "sluice:", err)
	if usage := (usageError{}); errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}
