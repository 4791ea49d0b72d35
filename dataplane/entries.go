package dataplane

import (
	"cmp"
	"fmt"
	"slices"

	"sluice/vnet"
)

// Entry is an address that the switch knows.
type Entry struct {
	VID    uint16
	MAC    vnet.MAC
	Port   *Port
	Static bool // added, not learnt: see AddEntry
	// Age is how many seconds ago the address was last heard. It may be up to ten too high, since
	// an entry is not written for every frame. It is 0 for a static one.
	Age Tick
}

// Entries lists what the forwarding database knows, by VLAN and address.
func (s *Switch) Entries() []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := Tick(s.tick.Load())
	var all []Entry
	s.fdb.each(now, func(key, val uint64) {
		e := Entry{VID: keyVID(key), MAC: keyMAC(key), Port: s.ports[PortID(val)], Static: val&static != 0}
		if !e.Static {
			e.Age = age(val, now)
		}
		all = append(all, e)
	})
	slices.SortFunc(all, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.VID, b.VID), cmp.Compare(a.MAC, b.MAC))
	})
	return all
}

// AddEntry makes mac a static entry: it stays behind p, wherever it is heard, until DelEntry, or
// until p is removed or no longer carries the VLAN.
func (s *Switch) AddEntry(vid uint16, mac vnet.MAC, p *Port) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	fail := func(why string) error {
		return fmt.Errorf("add %s in VLAN %d behind port %s: %s", mac, vid, p.name, why)
	}
	switch {
	case vid > maxVID:
		return fail(fmt.Sprintf("%d is the greatest VLAN", maxVID))
	case mac == 0 || mac.Group() || mac>>48 != 0:
		return fail("it is not the address of one host")
	case s.ports[p.id] != p:
		return fail("the port was removed")
	case !p.vlan.carry(vid):
		return fail("the port does not carry the VLAN")
	case !s.fdb.Add(vid, mac, p.id, Tick(s.tick.Load())):
		return fail("static addresses fill the database: delete one")
	}
	return nil
}

// DelEntry removes an address, static or learnt, and reports whether it was known.
func (s *Switch) DelEntry(vid uint16, mac vnet.MAC) bool {
	return vid <= maxVID && s.fdb.removeIf(func(key, _ uint64) bool { return key == fdbKey(vid, mac) }) > 0
}

// Flush forgets what was learnt behind p, unless p is nil, in VLAN vid, unless vid is negative, and
// reports how many addresses these were. Static entries stay.
func (s *Switch) Flush(p *Port, vid int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p != nil && s.ports[p.id] != p {
		return 0 // it was removed, and its ID may be another's
	}
	return s.fdb.removeIf(func(key, val uint64) bool {
		return val&static == 0 && (p == nil || PortID(val) == p.id) && (vid < 0 || keyVID(key) == uint16(vid))
	})
}
