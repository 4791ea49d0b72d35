// Package oracle holds tests that compare package offload with Linux itself. It has no other code.
//
// # How the kernel answers
//
//	frame + virtio-net header -> tap - bridge - veth, offloads off -> capture
//
// A test writes a frame into the tap, and the bridge sends it out through the veth. The veth takes
// neither super-packets nor unfinished checksums, so the kernel cuts and completes
// (validate_xmit_skb). The capture comes after that, on the sending side, and sees the wire
// packets. There is no queue in between: when the write returns, all of the frame's packets are
// captured, in order, however many they are. The veth's other end is not used, since it loses
// packets of a burst of more than 1000. Between two frames the tap carries a marker.
//
// A segmenter ignores the lengths in IP headers; the receiving stack does not. So chunks also go to
// a host whose raw sockets get super-packets whole.
//
// # Where the kernel is no oracle
//
// The tests that leave such a case out say so too.
//
//   - IPv6 with a jumbo option behind two VLAN tags. Linux 5.19 to 6.19 remove the
//     option only where skb->protocol is IPv6, and behind two tags that is the inner
//     tag's. Every segment then keeps an option that is wrong for it.
//   - IPv6 with a jumbo option in front of anything but TCP: the same.
//   - IPv6 with a jumbo option on Linux 7.0 and later, which copy it into every
//     segment. The tests find that out by a trial.
//   - A super-packet of one segment with TCP options, which the kernel loses.
//   - A chunk of one segment with a TCP checksum of 0: the kernel writes 0 where it
//     cuts and 0xffff where it completes.
//   - A wrong checksum field in a super-packet: the kernel adjusts it, and so makes
//     wrong checksums. TestWrongSeedIsAsGoodAsARightOne shows what Sluice makes.
//   - A segment of more than 65535 bytes, which no MTU allows.
//   - SCTP checksums: a tap has no way to ask for a CRC32c.
//
// # Failures
//
// A failure names the first segment, offset and field that differ, and both sides are kept in a
// directory as pcap files.
package oracle
