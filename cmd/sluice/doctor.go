package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"

	"github.com/spf13/cobra"

	"sluice/cmd/sluice/internal/doctor"
)

const doctorLong = `Find out what this kernel and the named netdevs really do, by doing it.

Ports of each kind (tap, packet, macvtap) are opened in a network namespace that
is gone a moment later, and frames of up to 512 KiB written and read. Of each
NETDEV it tells the sizes, the offloads, who else uses it, and what a port on it
would take. Named netdevs are only looked at: nothing is sent or changed there.

Each finding says what it means, and the command that mends it:
  ok       it works
  note     it works, but does less or other than one might expect
  problem  it stands in the way: a port cannot be opened, or nothing passes it

Exit codes: 0 no problem, 1 a problem was found or the examination failed, 2
wrong usage. Without root it tells what it can, and what it cannot find out.`

const doctorExample = `  sluice doctor
  sluice doctor eth0 tapA
  ip netns exec B sluice doctor tB
  sluice doctor --json | jq '.kinds.packet.max_out'`

func newDoctorCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "doctor [--json] [NETDEV...]",
		Short:   "Find out what this kernel and these devices really do",
		Long:    doctorLong,
		Example: doctorExample,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var names []string
			devs, _ := net.Interfaces()
			for _, d := range devs {
				names = append(names, d.Name)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		DisableFlagsInUseLine: true,
		RunE: func(c *cobra.Command, names []string) error {
			for _, name := range names {
				if name == "" {
					return usageError{fmt.Errorf("%s: a netdev has a name", c.CommandPath())}
				}
			}
			r := doctor.Run(version(), names)
			var err error
			if asJSON {
				e := json.NewEncoder(os.Stdout)
				e.SetIndent("", "  ")
				e.SetEscapeHTML(false)
				err = e.Encode(r)
			} else {
				err = r.WriteText(os.Stdout, doctor.Colourful(os.Stdout))
			}
			if err == nil && r.Problems > 0 {
				err = fmt.Errorf("doctor: problems found: %d", r.Problems)
			}
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	return c
}
