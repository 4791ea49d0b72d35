package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"sluice/cmd/sluice/internal/config"
	"sluice/cmd/sluice/internal/run"
	"sluice/dataplane/summary"
)

const runLong = `Switch frames between ports until SIGINT, SIGTERM or SIGHUP.

It needs root, or these capabilities: CAP_NET_RAW for packet ports, CAP_NET_ADMIN
for tap and macvtap ports and to raise a netdev's limits, CAP_NET_ADMIN and CAP_BPF
for host=drop, CAP_SYS_ADMIN for netns= and to probe the kernel. Without the last it
goes by the kernel's release.`

const runExample = `  # two namespaces' veths, the second behind a 64 KiB limit
  sluice run -p a=packet:vA -p b=packet:vB,gso_max_size=65536

  # a veth and a TAP that Sluice creates in namespace B
  sluice run -p a=packet:vA -p b=tap:tB,netns=B --summary out.json

  # two virtual machines' taps
  sluice run -p a=packet:tapA -p b=packet:tapB

  # what a file says, and one port more
  sluice run -c sluice.yaml -p c=tap:tC`

var portHelp = "a `PORT`: " + `NAME=KIND:DEVICE[,key=value...]; give -p once for each port.
KIND is tap (created if missing), packet (an existing netdev) or macvtap
(an existing one, or created over lower=NETDEV). Keys:
` + config.PortHelp()

func newRunCommand() *cobra.Command {
	var args []string
	var from, file, reserved string
	c := &cobra.Command{
		Use:     "run [-c FILE] -p NAME=KIND:DEVICE[,key=value...] -p ...",
		Short:   "Switch frames between ports until SIGINT, SIGTERM or SIGHUP",
		Long:    runLong,
		Example: runExample,
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			want, err := desired(from, reserved, args, c.InOrStdin())
			if err != nil {
				return err
			}
			return runSwitch(c, want, file)
		},
	}
	c.Flags().StringVarP(&from, "config", "c", "", "the switch is what this YAML `FILE` says (- is standard input); -p adds ports to it")
	c.Flags().StringArrayVarP(&args, "port", "p", nil, portHelp)
	c.Flags().StringVar(&reserved, "reserved", "", "`HOW` ports without a key reserved= have it: drop (default) or forward")
	c.Flags().StringVar(&file, "summary", "", "write the ports' state and counters to this `FILE`, as JSON, at the end and on SIGUSR1; - is standard output, behind ready")
	return c
}

// noArgs is a usage error for arguments that are no flags.
func noArgs(c *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case c.HasSubCommands():
		return usageError{fmt.Errorf("no command %q: `%s --help` lists them", args[0], c.CommandPath())}
	}
	hint := ""
	if c.Flags().Lookup("port") != nil {
		hint = ", and each port needs its own -p"
	}
	return usageError{fmt.Errorf("%s: argument %q is out of place: `%s --help` lists the flags%s",
		c.CommandPath(), args[0], c.CommandPath(), hint)}
}

// desired is the switch that the file and the arguments ask for. Those of -p add ports: it
// is an error if the file has one of that name already. That of --reserved, if there is
// one, takes the place of the file's.
func desired(file, reserved string, args []string, stdin io.Reader) (want config.Switch, err error) {
	want = config.Default()
	if file != "" {
		if want, err = readConfig(file, stdin); err != nil {
			return want, err
		}
	}
	if reserved != "" {
		want.Reserved = config.Reserved(reserved)
		if err := want.Validate(); err != nil {
			return want, usageError{fmt.Errorf("--%w", err)}
		}
	}
	for _, arg := range args {
		p, err := config.ParsePort(arg)
		if err != nil {
			return want, usageError{err}
		}
		if want, err = want.AddPort(p); err != nil {
			return want, usageError{fmt.Errorf("-p %s: %w", arg, err)}
		}
	}
	switch {
	case len(want.Ports) > 0:
		return want, unbuilt(want)
	case file != "":
		return want, fmt.Errorf("%s has no ports: add one, for example ports: {a: {kind: packet, device: veth0}}", file)
	}
	return want, usageError{errors.New("no port given: use -p NAME=KIND:DEVICE, for example -p a=packet:veth0")}
}

// built are the keys that the switch does something with.
var built = []string{
	"netns", "lower", "mtu", "queues", "gso_max_size", "gso_ipv4_max_size", "gso_max_segs",
	"oversize", "offload", "host", "reserved",
}

// unbuilt is the error of a switch that needs what there is not yet.
func unbuilt(want config.Switch) error {
	bare := config.Default()
	bare.Name = want.Name
	for _, p := range want.Ports {
		bare.Ports = append(bare.Ports, config.DefaultPort(p.Name, p.Kind, p.Device))
	}
	for _, c := range config.Diff(bare, want) {
		if c.Op != config.Changed || !slices.Contains(built, c.Key) {
			return usageError{fmt.Errorf("this version cannot do that yet, leave it out: %s", c)}
		}
	}
	return nil
}

func runSwitch(c *cobra.Command, want config.Switch, file string) error {
	out, err := openOutput("--summary", file)
	if err != nil {
		return err
	}
	// Whoever reads the log may go away. That must not end the switch, above all not
	// before it has removed what it made: such writes just fail.
	signal.Ignore(syscall.SIGPIPE)
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ask := make(chan os.Signal, 1)
	signal.Notify(ask, syscall.SIGUSR1)
	answers, written := make(chan *summary.Summary, 1), make(chan struct{})
	go func() {
		defer close(written)
		for s := range answers {
			if err := out.write(s); err != nil {
				log.Warn(err.Error())
				continue
			}
			log.Info("the summary is written", "file", file)
		}
	}()
	ports := slices.Clone(want.Ports)
	for i := range ports {
		ports[i].Reserved = cmp.Or(ports[i].Reserved, want.Reserved)
	}
	sum, err := run.Run(c.Context(), run.Options{
		Ports: ports,
		Log:   log,
		Ready: func() { fmt.Println("ready") },
		Ask:   ask,
		Answer: func(s *summary.Summary) {
			if file == "" {
				log.Warn("SIGUSR1 asks for a summary, and there is no --summary FILE to write it to")
				return
			}
			select {
			case answers <- s:
			default: // the switch waits for no reader
				log.Warn("SIGUSR1 asks for a summary, and those before are not written yet", "file", file)
			}
		},
	})
	close(answers)
	<-written
	if sum != nil {
		err = errors.Join(err, out.write(sum))
	} else {
		err = errors.Join(err, out.discard())
	}
	return out.close(err)
}
