package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"sluice/tunio/probe"
)

const probeLong = `Try what the running kernel takes of super-packets above 64 KiB, as "sluice run"
does at its start, and write it to FILE, for "sluice run --probe FILE". It needs
CAP_SYS_ADMIN and CAP_NET_ADMIN, which a switch without ports in namespaces can
then do without.`

// newProbeCommand is for services. People have doctor.
func newProbeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "probe FILE",
		Short:   "Try what the kernel takes, for a switch that may not",
		Long:    probeLong,
		Example: "  sluice probe /run/sluice/probe.json",
		Hidden:  true,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("%s takes one FILE, and %d are given", c.CommandPath(), len(args))}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return writeProbe(args[0], probe.Run()) },
	}
}

// writeProbe writes what was found in place of what the file held, at once: several services
// may start at a time.
func writeProbe(name string, r probe.Result) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	err = json.NewEncoder(f).Encode(r)
	// For everybody, whatever the umask: there is no secret in it.
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// readProbe reads what the command has written; nil without a name.
func readProbe(name string) (*probe.Result, error) {
	if name == "" {
		return nil, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("--probe: %w; `sluice probe %s` writes it", err, name)
	}
	var r probe.Result
	if err = json.Unmarshal(text, &r); err == nil {
		err = r.Check()
	}
	if err != nil {
		return nil, fmt.Errorf("--probe %s: %w; `sluice probe %s` writes it again", name, err, name)
	}
	return &r, nil
}
