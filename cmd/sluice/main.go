// Command sluice is a userspace Ethernet switch for Linux that carries BIG TCP.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
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
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	root := newRoot(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	const prefix = "sluice: "
	fmt.Fprintln(os.Stderr, prefix+strings.ReplaceAll(err.Error(), "\n", "\n"+prefix))
	if usage := (usageError{}); errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

// flagFault is an error about a flag without what strconv says, which is for programmers.
func flagFault(err error) string {
	var number *strconv.NumError
	if !errors.As(err, &number) {
		return err.Error()
	}
	want := map[string]string{
		"ParseBool": "want true or false", "ParseFloat": "want a number",
		"ParseInt": "want a whole number", "ParseUint": "want a whole number, 0 or greater",
	}[number.Func]
	if errors.Is(number, strconv.ErrRange) {
		want = "it is out of range"
	}
	return strings.Replace(err.Error(), number.Error(), want, 1)
}

// columns are those of the terminals that help is written for.
const columns = 80

// newRoot makes the command, with all its commands, for a command line.
func newRoot(args []string) *cobra.Command {
	root := &cobra.Command{
		Use:           "sluice",
		Short:         "A userspace Ethernet switch for Linux that carries BIG TCP",
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return usageError{errors.New("no command given: `sluice --help` lists them")}
		},
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%s; `%s --help` lists the flags", flagFault(err), c.CommandPath())}
	})
	root.AddCommand(newRunCommand(), newConfigCommand(), newPortCommand(), newShowCommand(), newStatsCommand(),
		newFDBCommand(), newEventsCommand(), newReloadCommand(), newBenchCommand(), newDoctorCommand())
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", columns)))
	root.AddCommand(newProbeCommand(), newManCommand(root)) // for services and packages
	root.SetArgs(args)
	// Cobra's own commands take any argument.
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd(args...)
	for _, c := range root.Commands() {
		switch c.Name() {
		case "completion":
			c.Args, c.RunE = noArgs, func(c *cobra.Command, _ []string) error { return c.Help() }
		case "help":
			c.Args = func(_ *cobra.Command, args []string) error {
				_, rest, err := root.Find(args)
				if err != nil {
					return usageError{err}
				}
				return noArgs(root, rest)
			}
		}
	}
	return root
}

// hangup makes SIGHUP end what ctx is for, as SIGTERM does, unless nohup had it ignored.
func hangup(ctx context.Context) (context.Context, context.CancelFunc) {
	if signal.Ignored(syscall.SIGHUP) {
		return context.WithCancel(ctx)
	}
	return signal.NotifyContext(ctx, syscall.SIGHUP)
}

// version is that of the module, which names the commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version
}
