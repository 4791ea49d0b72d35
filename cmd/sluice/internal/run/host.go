package run

import (
	"errors"
	"fmt"
	"io"

	"sluice/cmd/sluice/internal/portspec"
	"sluice/tunio/link"
)

// hide keeps what the netdev receives from the host's own stack, as long as that does
// not cut the host off from something it uses.
func (p *port) hide(f *link.Facts) error {
	uses, err := p.hostUses(f)
	if err != nil {
		return err
	}
	if uses != "" {
		p.unhide()
		p.warnOnce("the host's own stack sees the frames too, since the netdev " + uses +
			": host=drop keeps them from it, host=keep silences this")
		return nil
	}
	if p.spec.Host == portspec.HostKeep || p.host != nil || p.exposed {
		return nil
	}
	var host io.Closer
	err = p.ns.ns.Do(func() (err error) {
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
	p.host = host
	return nil
}

// hostUses is what the host needs the frames for where the command line leaves it to
// Sluice whether it gets them, or nothing.
func (p *port) hostUses(f *link.Facts) (string, error) {
	if p.spec.Host != portspec.HostAuto {
		return "", nil
	}
	if f.Master != 0 {
		master := "a bridge or bond"
		if m, err := p.ns.ns.GetIndex(f.Master); err == nil {
			master = m.Name
		}
		return "is a port of " + master + ", which forwards them as well", nil
	}
	address, err := p.ns.ns.HasAddress(f)
	if address {
		return "has an address", err
	}
	return "", err
}

func (p *port) unhide() {
	if p.host != nil {
		p.host.Close()
		p.host = nil
	}
}
