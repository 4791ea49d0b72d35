package dataplane

import (
	"fmt"
	"slices"

	"sluice/vnet"
)

// VLANMode is how a port handles VLAN tags. The rules are Open vSwitch's (ovs-vswitchd.conf.db(5),
// "VLAN Configuration"; ofproto/ofproto-dpif-xlate.c), with its default vlan-limit of 1: only the
// outer tag counts, with TPID 0x8100 or 0x88a8, and everything after it is payload. A tag with VID
// 0, a priority tag, counts as no tag. If the outer tag is removed, the inner one remains: a sender
// of double-tagged frames in the VLAN that a trunk strips can send into any VLAN behind it, as with
// every switch.
type VLANMode uint8

// VLAN modes.
const (
	// VLANTrunk carries Trunks, or every VLAN. An untagged frame is in VLAN 0, which is carried
	// like any other. Frames leave tagged, except those of VLAN 0.
	VLANTrunk VLANMode = iota
	// VLANAccess carries the VLAN Tag, untagged in both directions. A frame with a VID, even this
	// one, is dropped.
	VLANAccess
	// VLANNativeUntagged is a trunk whose untagged frames, in both directions, are in the VLAN Tag.
	// It always carries this VLAN, and never VLAN 0.
	VLANNativeUntagged
	// VLANNativeTagged is the same, but frames of the VLAN Tag leave tagged.
	VLANNativeTagged
)

// Open vSwitch's names (column vlan_mode of table Port).
var vlanModeNames = [...]string{"trunk", "access", "native-untagged", "native-tagged"}

func (m VLANMode) String() string { return vlanModeNames[m] }

// ParseVLANMode is the inverse of String.
func ParseVLANMode(s string) (VLANMode, bool) {
	i := slices.Index(vlanModeNames[:], s)
	return VLANMode(max(i, 0)), i >= 0
}

// maxVID is the greatest VLAN ID that fits in a tag. IEEE 802.1Q reserves it, Open vSwitch does
// not.
const maxVID = 4095

// VLANSet is a set of VLAN IDs, 0 to 4095. The zero value is empty.
type VLANSet [(maxVID + 1) / 64]uint64

// Add puts a VLAN into the set.
func (s *VLANSet) Add(vid uint16) { s[vid%(maxVID+1)/64] |= 1 << (vid % 64) }

// Has reports whether a VLAN is in the set.
func (s *VLANSet) Has(vid uint16) bool { return s[vid%(maxVID+1)/64]>>(vid%64)&1 != 0 }

// VLAN is a port's VLAN configuration. The zero value is a trunk of every VLAN.
type VLAN struct {
	Mode   VLANMode
	Tag    uint16  // the access or native VLAN; not used by VLANTrunk
	Trunks VLANSet // what a trunk carries, native ones too; empty: every VLAN
}

func (v *VLAN) check() error {
	switch {
	case int(v.Mode) >= len(vlanModeNames):
		return fmt.Errorf("VLAN mode %d does not exist", v.Mode)
	case v.Tag > maxVID:
		return fmt.Errorf("VLAN %d: %d is the greatest", v.Tag, maxVID)
	}
	return nil
}

// vlanRules are a VLAN configuration as rules for each frame. They are immutable.
type vlanRules struct {
	all      bool    // every VLAN is carried: the sets are not used
	untagged bool    // frames without a VID may come in
	pvid     uint16  // and are in this VLAN
	strips   uint16  // the VLAN whose frames leave without a tag; noVLAN if there is none
	tags     VLANSet // VIDs, not 0, that may come in
	carries  VLANSet // VLANs that go out
}

// noVLAN is no VLAN's ID.
const noVLAN = maxVID + 1

// rules follow bundle_set (ofproto/ofproto-dpif.c) and input_vid_is_valid,
// xbundle_includes_vlan and xvlan_output_translate (ofproto/ofproto-dpif-xlate.c).
func (v *VLAN) rules() *vlanRules {
	r := &vlanRules{strips: noVLAN}
	if v.Mode == VLANAccess {
		r.untagged, r.pvid, r.strips = true, v.Tag, v.Tag
		r.carries.Add(v.Tag)
		return r
	}
	r.carries = v.Trunks
	r.all = v.Trunks == VLANSet{}
	if v.Mode == VLANNativeUntagged || v.Mode == VLANNativeTagged {
		r.pvid = v.Tag
		if v.Mode == VLANNativeUntagged {
			r.strips = v.Tag
		}
		if v.Tag != 0 {
			if r.all {
				r.all = false
				for i := range r.carries {
					r.carries[i] = ^uint64(0)
				}
			}
			r.carries.Add(v.Tag)
			r.carries[0] &^= 1 // VLAN 0
		}
		r.untagged = true
	} else {
		r.untagged = r.all || r.carries.Has(0)
	}
	r.tags = r.carries
	return r
}

// carry reports whether frames of the VLAN may leave.
func (r *vlanRules) carry(vid uint16) bool { return r.all || r.carries.Has(vid) }

// admit determines the VLAN of s, which came in through a port with rules r, or says why it is
// dropped. It changes only s.
func (s *subject) admit(r *vlanRules) vnet.Drop {
	s.vid = s.l2.VID()
	switch {
	case s.vid != 0:
		if !r.all && !r.tags.Has(s.vid) {
			return vnet.DropVLAN
		}
	case !r.untagged, s.len < vnet.EthLen+vnet.VLANLen && s.l2.CutOff():
		return vnet.DropVLAN
	default:
		s.vid = r.pvid
	}
	return vnet.Keep
}

// edit is the edit of the tag of s if it leaves through a port with rules r. The priority stays, if
// necessary in a priority tag. Without a priority and a VLAN, a frame is sent without a tag
// (xvlan_put, with the default priority-tags=never). A tag that changes loses its DEI, which Open
// vSwitch does not carry.
func (s *subject) edit(r *vlanRules) vnet.TagEdit {
	const pcp = 0xe000
	bare := s.vid == r.strips
	tci := s.vid | s.l2.TCI&pcp
	switch {
	case s.l2.Tags == 0:
		if s.vid != 0 && !bare {
			return vnet.TagEdit{Op: vnet.TagPush, TCI: s.vid}
		}
	case bare || tci == 0:
		return vnet.TagEdit{Op: vnet.TagPop}
	case s.vid != s.l2.VID():
		return vnet.TagEdit{Op: vnet.TagSet, TCI: tci}
	}
	return vnet.TagEdit{}
}
