package keeper

import (
	"cmp"

	"sluice/cmd/sluice/internal/config"
	"sluice/dataplane"
)

var vlanModes = map[config.VLANMode]dataplane.VLANMode{
	config.Access:         dataplane.VLANAccess,
	config.Trunk:          dataplane.VLANTrunk,
	config.NativeUntagged: dataplane.VLANNativeUntagged,
	config.NativeTagged:   dataplane.VLANNativeTagged,
}

// portConfig is what the switch needs to know of a port.
func (k *Keeper) portConfig(p *config.Port) dataplane.PortConfig {
	return dataplane.PortConfig{
		Name:     p.Name,
		Oversize: p.Oversize,
		VLAN: dataplane.VLAN{
			Mode: vlanModes[p.Mode()], Tag: p.Tag.VLAN, Trunks: dataplane.VLANSet(p.Trunks),
		},
		Isolated:        p.Isolated,
		MACLimit:        p.MACLimit,
		StormLimit:      p.Storm,
		ForwardReserved: cmp.Or(p.Reserved, k.want.Reserved) == config.ReservedForward,
	}
}

// switchConfig is what the switch needs to know that is of no port.
func (k *Keeper) switchConfig() dataplane.Config {
	return dataplane.Config{Ageing: dataplane.Tick(k.want.FDB.Ageing), MACLimit: k.want.FDB.MACLimit}
}

// entries makes the static addresses of the forwarding database those that are wanted. One
// that cannot be had, since its port does not carry its VLAN, is told of and left out.
func (k *Keeper) entries() {
	type address struct {
		vlan uint16
		mac  string
	}
	wanted := map[address]config.Entry{}
	for _, e := range k.want.FDB.Static {
		wanted[address{e.VLAN, e.MAC.String()}] = e
	}
	for _, e := range k.sw.Entries() {
		if !e.Static || e.Port == nil {
			continue
		}
		at := address{e.VID, e.MAC.String()}
		if w, ok := wanted[at]; ok && w.Port == e.Port.Name() {
			delete(wanted, at)
			continue
		}
		k.sw.DelEntry(e.VID, e.MAC)
	}
	for _, e := range wanted {
		p := k.named(e.Port)
		if p == nil {
			continue
		}
		if err := k.sw.AddEntry(e.VLAN, e.MAC, p.sw); err != nil {
			p.warnOnce("a static address is not in force: " + err.Error())
		}
	}
}
