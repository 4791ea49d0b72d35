package tunio

import (
	"encoding/binary"

	"sluice/vnet"
)

// tag is a VLAN tag that came out of band.
type tag struct {
	valid bool // there is one; its VID may be 0
	tpid  uint16
	tci   uint16
}

// insert puts the tag in front of the EtherType of the frame buf[at:] and returns the frame, which
// then begins at at-VLANLen: the addresses move forward, over the end of the header, which has been
// decoded into h. The offsets in h move with the bytes. It returns Keep unless csum_start no longer
// fits its field, which no real protocol header causes.
func (t tag) insert(buf []byte, at int, h *vnet.Header) ([]byte, vnet.Drop) {
	const addresses = 12
	f := buf[at-vnet.VLANLen:]
	if len(buf)-at < vnet.EthLen {
		return buf[at:], vnet.DropRunt
	}
	copy(f, buf[at:at+addresses])
	binary.BigEndian.PutUint16(f[addresses:], t.tpid)
	binary.BigEndian.PutUint16(f[addresses+2:], t.tci)
	const most = 1<<16 - 1 - vnet.VLANLen
	if h.Flags&vnet.NeedsCsum != 0 {
		if h.CsumStart > most {
			return f, vnet.DropBadCsum
		}
		h.CsumStart += vnet.VLANLen
	}
	if h.HdrLen != 0 { // 0: not given, as always without a GSO type
		h.HdrLen = min(h.HdrLen, most) + vnet.VLANLen
	}
	return f, vnet.Keep
}
