// Package offload does in software what a frame's receiver was told to do in hardware: it cuts a
// super-packet into smaller super-packets (Resegment) or into wire-size frames (Segment), completes
// a checksum (Complete), and changes the form in which IPv6 marks a packet as longer than 64 KiB
// (Reform).
//
// It makes no system call, copies no payload, and allocates nothing.
//
// The kernel is the model throughout: tcp_gso_segment (net/ipv4/tcp_offload.c),
// __udp_gso_segment (net/ipv4/udp_offload.c), inet_gso_segment
// (net/ipv4/af_inet.c), ipv6_gso_segment (net/ipv6/ip6_offload.c) and
// skb_checksum_help (net/core/dev.c), as of Linux 6.18. Segmenting the chunks of
// a super-packet gives what segmenting the super-packet itself gives.
//
// # Checksums
//
// A frame with a GSO type that is cut, or that is one segment, gets a new checksum seed: from its
// addresses, its protocol and the length of each piece. The old content of the checksum field is
// ignored, because senders differ in what they leave there: the sum with the length, without it, or
// 0. The kernel is the model only for a correct field, where the results are equal. It sets the
// field where no checksum is asked for, and drivers of network cards that cut always set it. But
// tcp_gso_segment and __udp_gso_segment adjust an existing field, and turn a wrong one into wrong
// checksums.
//
// Nothing else is repaired. A finished checksum is not looked at. In a frame without GSO type the
// seed in the field is used as it is. A wrong checksum stays wrong.
//
// # Units
//
// As in package vnet: lengths are bytes and ints, offsets count from the Ethernet
// header. Sums are those of RFC 1071, not complemented.
//
// # Ownership
//
// A new frame borrows its Head from the Batch that it is appended to, where it may be edited, and
// its Body from the frame that it was made from. The bytes of a received frame are never written
// to.
//
// # Concurrency
//
// A Segmenter has one owner. The functions keep no state.
//
// # Trust
//
// Frames must have passed vnet.Frame.Check and, where a function takes a vnet.Packet, vnet.Parse.
// Nothing is checked twice.
package offload
