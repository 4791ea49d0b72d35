// Package oracle holds the tests that ask Linux itself what package offload should
// do. It has no code of its own.
//
// # How the kernel answers
//
//	frame + virtio-net header -> tap - bridge - veth, offloads off -> capture
//
// The bridge sends what a test writes into the tap out through the veth, which
// takes neither super-packets nor unfinished checksums: the kernel cuts and
// completes (validate_xmit_skb), and the capture, behind that and on the sending
// side, sees the wire packets. There is no queue in between, so that all of a
// frame's packets are captured by the time its write returns, in order, however
// many they are; the veth's other end, where a burst of more than 1000 is cut
// short, is not looked at. Between two frames the tap carries a marker.
//
// A segmenter does not look at the lengths in IP headers; the receiving stack does.
// So chunks also go to a host whose raw sockets get super-packets whole.
//
// # What the kernel is no oracle for
//
// Each is also told where a test leaves it out.
//
//   - IPv6 with a jumbo option behind two VLAN tags. Linux 5.19 to 6.19 take the
//     option out only where skb->protocol is IPv6, and behind two tags that is the
//     inner tag's; every segment then keeps an option that is not true of it.
//   - IPv6 with a jumbo option in front of anything but TCP: the same.
//   - IPv6 with a jumbo option on Linux 7.0 and later, which copy it into every
//     segment. The tests find that out by trying.
//   - A super-packet of one segment with TCP options, which the kernel loses.
//   - A chunk of one segment with a TCP checksum of 0: the kernel writes 0 where it
//     cuts and 0xffff where it completes.
//   - A wrong checksum field in a super-packet: the kernel adjusts it, and makes wrong
//     checksums of it. TestWrongSeedIsAsGoodAsARightOne has what becomes of those.
//   - A segment that is longer than 65535 bytes, which no MTU lets pass.
//   - SCTP checksums: a tap has no way to ask for a CRC32c.
//
// # Failures
//
// A difference is told as the first segment, offset and field that differ, and
// both sides are left in a directory as pcap files.
package oracle
