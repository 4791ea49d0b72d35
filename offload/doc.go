// Package offload does in software what a frame's receiver was told to do in
// hardware: it cuts a super-packet into smaller super-packets (Resegment) or into
// wire-size frames (Segment), completes a checksum (Complete), and changes the
// form in which IPv6 says that a packet is longer than 64 KiB (Reform).
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
// A frame with a GSO type that is cut, or that is one segment, gets a new checksum
// seed: from its addresses, its protocol and the length of each piece. What its
// checksum field held does not count, as senders differ in what they leave there: the
// sum with the length or without, or 0. Here the kernel is the model only for a right
// field, of which both make the same. It sets the field where no checksum is asked
// for, and so do drivers of network cards that cut, whatever was asked for; but
// tcp_gso_segment and __udp_gso_segment adjust a field that is there, and of a wrong
// one they make wrong checksums.
//
// Nothing else is repaired. A finished checksum is not looked at, a frame without GSO
// type is summed over the field that it has, and a wrong one stays wrong.
//
// # Units
//
// As in package vnet: lengths are bytes and ints, offsets count from the Ethernet
// header. Sums are those of RFC 1071, not complemented.
//
// # Ownership
//
// Frames that are made borrow their Head from the Batch that they are appended
// to, where it may be edited, and their Body from the frame that they are made
// from. The bytes of a received frame are never written to.
//
// # Concurrency
//
// A Segmenter has one owner. The functions keep no state.
//
// # Trust
//
// Frames were accepted by vnet.Frame.Check and, where a vnet.Packet is asked for,
// by vnet.Parse. Nothing is checked twice.
package offload
