package vnet_test

import (
	"fmt"

	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// What was read from a TAP with virtio-net headers is checked once, before anything
// relies on it. A frame that is to be cut is parsed, too.
func ExampleFrame_Check() {
	// A TCP super-packet of 3 segments, as a sender's kernel hands it over.
	super := vnettest.Super(vnettest.Spec{
		Payload: make([]byte, 4000), GSOSize: 1448, Tags: []uint16{100}, TCPFlags: vnettest.ACK,
	})
	read := make([]byte, vnet.HeaderLen)
	super.Hdr.Encode(read)
	read = super.AppendTo(read)

	var f vnet.Frame
	f.Hdr.Decode(read)
	f.Head = read[vnet.HeaderLen:]
	var l2 vnet.L2
	fmt.Println(f.Check(&l2))
	fmt.Printf("%v to %v in VLAN %d, EtherType %#04x\n", l2.Src, l2.Dst, l2.VID(), l2.EtherType)
	var p vnet.Packet
	fmt.Println(vnet.Parse(&f, &l2, &p))
	fmt.Printf("TCP at %d, payload at %d of %d\n", p.L4, p.Payload, f.Len())

	f.Hdr.GSOSize = 0
	fmt.Println(f.Check(&l2))

	// Output:
	// keep
	// 02:00:5e:10:00:01 to 02:00:5e:10:00:02 in VLAN 100, EtherType 0x0800
	// keep
	// TCP at 38, payload at 58 of 4058
	// bad_gso
}
