package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"sluice/cmd/sluice/internal/portspec"
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
  sluice run -p a=packet:tapA -p b=packet:tapB`

const portHelp = "a `PORT`: " + `NAME=KIND:DEVICE[,key=value...]; give -p once for each port.
KIND is tap (created if missing), packet (an existing netdev) or macvtap
(an existing one, or created over lower=NETDEV). Keys:
  netns=NAME           tap: the namespace it lives in
  lower=NETDEV         macvtap: the netdev it is created over
  mtu=N                set on what Sluice creates; elsewhere it bounds the port
  queues=N             receive queues, one worker each (default 1)
  gso_max_size=N       super-packets sent are shorter than this
  gso_ipv4_max_size=N  the same, for IPv4
  gso_max_segs=N       and stand for at most this many segments
  oversize=HOW         what becomes of a longer super-packet: resegment (default:
                       the fewest chunks that fit), segment (MSS-size packets) or
                       pass (the kernel gets it whole)
  offload=WHAT         auto (default), full, csum or none: what the receiver takes
  host=HOW             packet: does the host's own stack see the frames too: drop
                       (no) or keep (yes); by default it does while the netdev has
                       an address, is a bridge's port or carries another netdev
  reserved=HOW         what becomes of frames for 01:80:c2:00:00:0x (LLDP, LACP,
                       STP, 802.1X) that come in at the port: drop, or forward to
                       every other port, but for PAUSE; default: as --reserved`

func newRunCommand() *cobra.Command {
	var args []string
	var file, reserved string
	c := &cobra.Command{
		Use:     "run -p NAME=KIND:DEVICE[,key=value...] -p ...",
		Short:   "Switch frames between ports until SIGINT, SIGTERM or SIGHUP",
		Long:    runLong,
		Example: runExample,
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ports, err := parsePorts(args, reserved)
			if err != nil {
				return usageError{err}
			}
			return runSwitch(c, ports, file)
		},
	}
	c.Flags().StringArrayVarP(&args, "port", "p", nil, portHelp)
	c.Flags().StringVar(&reserved, "reserved", string(portspec.ReservedDrop), "`HOW` ports without a key reserved= have it: drop or forward")
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

// parsePorts reads the -p arguments and checks them against each other. reserved is what
// ports have that do not say.
func parsePorts(args []string, reserved string) ([]portspec.Port, error) {
	usual, err := portspec.ParseReserved("--reserved", reserved)
	if err != nil {
		return nil, err
	}
	if len(args) == 0 {
		return nil, errors.New("no port given: use -p NAME=KIND:DEVICE, for example -p a=packet:veth0")
	}
	var ports []portspec.Port
	for _, arg := range args {
		p, err := portspec.Parse(arg)
		if err != nil {
			return nil, err
		}
		for _, o := range ports {
			switch {
			case o.Name == p.Name:
				return nil, fmt.Errorf("-p %s: there are two ports %s: give each its own name", arg, p.Name)
			case o.Device == p.Device && o.Netns == p.Netns:
				return nil, fmt.Errorf("-p %s: device %s is under port %s already", arg, p.Device, o.Name)
			}
		}
		p.Reserved = cmp.Or(p.Reserved, usual)
		ports = append(ports, p)
	}
	return ports, nil
}

func runSwitch(c *cobra.Command, ports []portspec.Port, file string) error {
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
