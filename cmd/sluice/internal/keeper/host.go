package keeper

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"sluice/cmd/sluice/internal/config"
	"sluice/tunio/link"
)

// hide keeps what a packet port's netdev receives from the host's own stack, as long as
// that does not cut the host off from something it uses.
func (p *port) hide(f *link.Facts) error {
	if p.spec.Kind != config.Packet || p.spec.Host == config.HostKeep {
		return nil
	}
	use := ""
	if p.spec.Host == config.HostAuto {
		uses, err := p.ns.hostUses()
		if err != nil {
			return err
		}
		use = uses[f.Index]
	}
	if use != "" {
		p.unhide()
		if use != p.hostUse {
			p.log.Warn("the host's own stack sees the frames too, since the netdev " + use +
				": host=drop keeps them from it, host=keep silences this")
		}
		p.hostUse = use
		return nil
	}
	if p.host != nil || p.exposed {
		return nil
	}
	var host io.Closer
	err := p.ns.ns.Do(func() (err error) {
		host, err = link.HostDrop(f.Index)
		return err
	})
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		p.exposed = true
		p.warnOnce("the host's own stack sees the frames too: " + err.Error())
		return nil
	case err != nil:
		return fmt.Errorf("%w; try: sudo, or host=keep, which does without", err)
	}
	if p.hostUse != "" {
		p.log.Info("the host's own stack sees the frames no longer")
	}
	p.host, p.hostUse = host, ""
	return nil
}

// hideAgain is hide while the switch runs, when a failure is no reason to end.
func (p *port) hideAgain(f *link.Facts) {
	err := p.hide(f)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
		p.warnOnce("the host's own stack sees the frames too: " + err.Error())
	}
}

func (p *port) unhide() {
	if p.host != nil {
		p.host.Close()
		p.host = nil
	}
}
