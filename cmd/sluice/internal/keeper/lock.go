package keeper

import (
	"errors"
	"fmt"

	"sluice/cmd/sluice/internal/config"
)

// errLocked is why a locked switch opens no device.
var errLocked = errors.New("the switch is locked (--lock): it opens no device any more; restart it")

// seal says goodbye to what the privileges were good for, before they go. What was changed
// on other netdevs, and what was made and does not end with its descriptors, stays behind.
func (k *Keeper) seal() {
	if !k.lock {
		return
	}
	for _, p := range k.ports {
		switch {
		case len(p.changes) > 0:
			p.log.Warn("the sizes of the netdev were raised, and a locked switch cannot put them back at its end: " +
				"raise them before it starts, with `ip link set`")
		case p.made != 0 && p.spec.Kind == config.Macvtap:
			p.log.Warn("the macvtap was made, and a locked switch cannot remove it at its end: " +
				"`ip link del " + p.netdev + "` does")
		}
	}
	k.locked = true
}

// refuses is the error of a change that a locked switch cannot make, or nil.
func (k *Keeper) refuses(c config.Change) error {
	if !k.locked || c.Needs != config.Reattach || c.Op == config.Removed {
		return nil
	}
	return fmt.Errorf("%s: %w", c, errLocked)
}
