package keeper

import (
	"fmt"

	"sluice/cmd/sluice/internal/config"
)

// unbuilt is the error of a desired state that asks for what no switch can do yet.
func unbuilt(want config.Switch) error {
	say := func(what string) error {
		return fmt.Errorf("%s: this version cannot do that yet: leave it out", what)
	}
	switch {
	case len(want.Mirrors) > 0:
		return say("mirrors")
	case want.Metrics != "":
		return say("metrics")
	}
	for _, p := range want.Ports {
		if p.Loop == config.LoopShut {
			return say("port " + p.Name + ": loop=shut")
		}
	}
	return nil
}
