package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sluice/cmd/sluice/internal/bench"
)

const benchLong = `Reproduce the mixed-capability cases of BIG TCP and measure them.

Builds three network namespaces (sender, switch, receiver) and sends one TCP
stream through them with iperf3, IPv4 and IPv6, over a Linux bridge and over
Sluice into a veth and into a TAP:

  legacy           sender and egress 65536
  big              sender and egress 389120
  mixed-segment    sender 389120, egress 65536, cut to MSS packets
  mixed-resegment  sender 389120, egress 65536, cut to super-packets that fit
  bridge-*         the same over a Linux bridge

Every write of the sender is 1 MiB (iperf3 -l 1M). Sender and receiver are
bound to one CPU each, alike in every case. Cases are interleaved, every case
once a round. Who is ahead is shown in bold, the bridge or Sluice; within 5 %
nobody is. What this kernel cannot do is skipped, with the reason. Needs root,
iperf3 and iproute2; leaves nothing behind.`

const benchExample = `  sluice bench --quick
  sluice bench --rounds 9 --json result.json
  sluice bench --markdown
  sluice bench --path bridge --congestion cubic`

// Lengths of a measurement, where the flags do not say.
const (
	benchRounds, benchSeconds = 5, 3
	quickRounds, quickSeconds = 3, 1
)

func newBenchCommand() *cobra.Command {
	var (
		config   bench.Config
		quick    bool
		markdown bool
		file     string
	)
	c := &cobra.Command{
		Use:     "bench",
		Short:   "Reproduce and measure the mixed-capability cases",
		Long:    benchLong,
		Example: benchExample,
		Args: func(c *cobra.Command, args []string) error {
			if err := cobra.NoArgs(c, args); err != nil {
				return usageError{err}
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if quick && !c.Flags().Changed("rounds") {
				config.Rounds = quickRounds
			}
			if quick && !c.Flags().Changed("seconds") {
				config.Seconds = quickSeconds
			}
			if err := checkBench(&config); err != nil {
				return usageError{err}
			}
			if config.Binary, err = os.Executable(); err != nil {
				return fmt.Errorf("bench: find the sluice executable: %w", err)
			}
			config.Log = c.ErrOrStderr()
			out, err := openOutput("--json", file)
			if err != nil {
				return err
			}
			ctx, stop := hangup(c.Context())
			defer stop()
			report, err := bench.Run(ctx, config)
			if report != nil {
				write := report.WriteTable
				if markdown {
					write = report.WriteMarkdown
				}
				err = errors.Join(err, write(c.OutOrStdout()), out.write(report))
			} else {
				err = errors.Join(err, out.discard())
			}
			return out.close(err)
		},
	}
	f := c.Flags()
	f.BoolVar(&quick, "quick", false, fmt.Sprintf(
		"short: %d rounds of %d s unless --rounds or --seconds say otherwise", quickRounds, quickSeconds))
	f.StringVar(&file, "json", "", "also write the report to `FILE`, as JSON; - is standard output, behind the table")
	f.BoolVar(&markdown, "markdown", false, "print the table as Markdown, as the README has it")
	f.IntVar(&config.Rounds, "rounds", benchRounds, "`NUMBER` of samples of each case")
	f.IntVar(&config.Seconds, "seconds", benchSeconds, "length of a sample, in `SECONDS`")
	f.StringSliceVar(&config.Paths, "path", nil,
		"measure only this `PATH` ("+strings.Join(bench.Paths, ", ")+"); may be given again")
	f.StringVar(&config.Congestion, "congestion", "",
		"the sender's congestion control `NAME` (default: the system's)")
	return c
}

func checkBench(c *bench.Config) error {
	if c.Rounds < 1 {
		return fmt.Errorf("--rounds %d: at least 1", c.Rounds)
	}
	if c.Seconds < 1 {
		return fmt.Errorf("--seconds %d: at least 1", c.Seconds)
	}
	for _, path := range c.Paths {
		if !slices.Contains(bench.Paths, path) {
			return fmt.Errorf("--path %q: one of %s", path, strings.Join(bench.Paths, ", "))
		}
	}
	return nil
}
