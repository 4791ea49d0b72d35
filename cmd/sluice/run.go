package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"sluice/cmd/sluice/internal/config"
	"sluice/cmd/sluice/internal/confine"
	"sluice/cmd/sluice/internal/control"
	"sluice/cmd/sluice/internal/keeper"
)

const runLong = `Switch frames between ports until SIGINT or SIGTERM. SIGHUP has the switch read
its file again, and ends one that has no file.

It needs root, or these capabilities: CAP_NET_RAW for packet ports,
CAP_NET_ADMIN for tap and macvtap ports and to raise a netdev's limits,
CAP_NET_ADMIN and CAP_BPF for host=drop, CAP_SYS_ADMIN for netns= and to probe
the kernel. Without the last it goes by the kernel's release.

From the start it gives up most system calls, and once every port is attached
all other capabilities. With --lock it gives up all capabilities, and opens no
device any more. A port that cannot be had at the start is an error then, new
ports and changes that need a device opened again are refused, and a port whose
device was deleted or moved away stays down. At its end, sizes that it raised
and macvtaps that it made stay. All else works: ports go down and up with their
devices, limits are followed, other keys can be set.`

const runExample = `  # two namespaces' veths, the second behind a 64 KiB limit
  sluice run -p a=packet:vA -p b=packet:vB,gso_max_size=65536

  # a veth and a TAP that Sluice creates in namespace B
  sluice run -p a=packet:vA -p b=tap:tB,netns=B --summary out.json

  # two virtual machines' taps
  sluice run -p a=packet:tapA -p b=packet:tapB

  # what a file says, and one port more
  sluice run -c sluice.yaml -p c=tap:tC`

// portHelp is how a port is spelled.
var portHelp = `KIND is tap (created if missing), packet (an existing netdev) or macvtap (an
existing one, or created over lower=NETDEV). Keys of a port:
` + config.PortHelp()

// runFlags are what `sluice run` was asked to do.
type runFlags struct {
	file     string // of the configuration
	ports    []string
	reserved string
	summary  string
	name     string
	control  string
	lock     bool
	probe    string // file of what `sluice probe` found
}

func newRunCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:     "run [-c FILE] -p NAME=KIND:DEVICE[,key=value...] -p ...",
		Short:   "Switch frames between ports until SIGINT or SIGTERM",
		Long:    runLong + "\n\n" + portHelp,
		Example: runExample,
		Args:    noArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return runSwitch(c, f) },
	}
	c.Flags().StringVarP(&f.file, "config", "c", "", "the switch is what this YAML `FILE` says (- is standard input); -p adds ports to it")
	c.Flags().StringArrayVarP(&f.ports, "port", "p", nil, "a `PORT`, NAME=KIND:DEVICE[,key=value...]; give -p once for each")
	c.Flags().StringVar(&f.reserved, "reserved", "", "`HOW` ports without a key reserved= have it: drop (default) or forward")
	c.Flags().StringVar(&f.summary, "summary", "", "write the ports' state and counters to this `FILE`, as JSON, at the end and on SIGUSR1; - is standard output, behind ready")
	c.Flags().StringVar(&f.name, "name", "", "the switch's `NAME`, for its control socket /run/sluice-NAME.sock (default: /run/sluice.sock)")
	c.Flags().StringVar(&f.control, "control", "", "`PATH` of the control socket, or none")
	c.Flags().BoolVar(&f.lock, "lock", false, "open no device any more once every port is attached, and keep no privilege")
	c.Flags().StringVar(&f.probe, "probe", "", "go by what \"sluice probe `FILE`\" found, and do not probe the kernel")
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
	if file == "" && len(want.Ports) == 0 {
		return want, usageError{errors.New("no port given: use -p NAME=KIND:DEVICE, for example -p a=packet:veth0")}
	}
	return want, nil
}

// load makes the desired state of the flags. It may be called again, to reload.
func (f *runFlags) load(stdin io.Reader) (config.Switch, error) {
	want, err := desired(f.file, f.reserved, f.ports, stdin)
	if err != nil {
		return want, err
	}
	want.Name = cmp.Or(f.name, want.Name)
	want.Control.Socket = cmp.Or(f.control, want.Control.Socket)
	if err := want.Validate(); err != nil {
		return want, usageError{fmt.Errorf("--%w", err)} // what the file says was checked before
	}
	return want, nil
}

// reload is load while the switch runs. It reads regular files alone: the open of a FIFO
// waits for a writer, and what has a number under /dev/fd may by now be another descriptor.
func (f *runFlags) reload() (config.Switch, error) {
	info, err := os.Stat(f.file)
	if err != nil {
		return config.Switch{}, err
	}
	if !info.Mode().IsRegular() {
		return config.Switch{}, fmt.Errorf("%s is no regular file, and is read at the start alone: "+
			"`sluice config show` prints the configuration for one that is", f.file)
	}
	return f.load(nil)
}

func runSwitch(c *cobra.Command, f runFlags) error {
	want, err := f.load(c.InOrStdin())
	if err != nil {
		return err
	}
	found, err := readProbe(f.probe)
	if err != nil {
		return err
	}
	out, err := openOutput("--summary", f.summary)
	if err != nil {
		return err
	}
	// Whoever reads the log may go away. That must not end the switch, above all not
	// before it has removed what it made: such writes just fail.
	signal.Ignore(syscall.SIGPIPE)
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := confine.Start(); err != nil {
		log.Warn(err.Error())
	}
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	told := manager{log: log}
	k := keeper.New(keeper.Options{
		Config: want,
		Strict: f.file == "" || f.lock, // what a locked switch does not get at once it never gets
		Log:    log,
		Probe:  found,
		Lock:   f.lock,
		Ready: func() error {
			if err := giveUp(f.lock, log); err != nil {
				return err
			}
			fmt.Println("ready")
			told.ready()
			return nil
		},
	})
	var tasks sync.WaitGroup
	server := &control.Server{Switch: k, Version: version(), Log: log}
	if f.file != "" && f.file != "-" {
		server.Load = f.reload
		tasks.Go(func() { reloads(ctx, server, told, log) })
	} else {
		ctx, cancel = hangup(ctx)
		defer cancel()
	}
	l, err := listen(want.Control, want.Name, f.name != "" || f.control != "", log)
	if err != nil {
		return out.close(errors.Join(err, out.discard()))
	}
	if l != nil {
		tasks.Go(func() {
			if err := server.Serve(ctx, l); err != nil {
				log.Warn(err.Error())
			}
		})
	}
	tasks.Go(func() { answers(ctx, k, out, log) })
	tasks.Go(func() { <-ctx.Done(); told.stopping() })
	sum, err := k.Run(ctx)
	cancel()
	tasks.Wait()
	if sum != nil {
		err = errors.Join(err, out.write(sum))
	} else {
		err = errors.Join(err, out.discard())
	}
	return out.close(err)
}

// listen makes the control socket, unless the service manager has made one. One that nobody
// asked for is no reason not to run: it may be another switch's, or /run may be closed to
// this user.
func listen(c config.Control, name string, asked bool, log *slog.Logger) (*control.Listener, error) {
	if l, err := handed(); l != nil || err != nil {
		return l, err
	}
	if c.Socket == "none" {
		return nil, nil
	}
	l, err := control.Listen(cmp.Or(c.Socket, control.Path(name)), c.Group)
	if err != nil && !asked && c == (config.Control{}) {
		log.Warn("the switch runs without a control socket: " + err.Error())
		return nil, nil
	}
	return l, err
}

// reloads reads the file again on each SIGHUP.
func reloads(ctx context.Context, s *control.Server, told manager, log *slog.Logger) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
		}
		told.reloading()
		err := s.Reload(ctx)
		if err != nil {
			log.Warn("SIGHUP changes nothing: " + err.Error())
		}
		told.reloaded(err)
	}
}

// answers writes the summary on each SIGUSR1.
func answers(ctx context.Context, k *keeper.Keeper, out output, log *slog.Logger) {
	ask := make(chan os.Signal, 1)
	signal.Notify(ask, syscall.SIGUSR1)
	defer signal.Stop(ask)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ask:
		}
		if out.file == nil {
			log.Warn("SIGUSR1 asks for a summary, and there is no --summary FILE to write it to")
			continue
		}
		s, err := k.Summary(ctx)
		if err == nil {
			err = out.write(s)
		}
		switch {
		case err == nil:
			log.Info("the summary is written", "file", out.name())
		case ctx.Err() == nil:
			log.Warn(err.Error())
		}
	}
}
