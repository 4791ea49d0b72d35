// Package accept asks the running kernel what becomes of a super-packet above
// 64 KiB: written to a TAP, sent through a packet socket to a veth that takes it and
// to one that takes 64 KiB, written to a macvtap; over IPv4, and over IPv6 in each
// form. Then it has `sluice run` carry TCP over the same devices, and notes the
// greatest frames that came in and went out.
//
// The test compares the answers with what was measured on such kernels, so that one
// that differs is found, on this machine and in the guests of package kernels. What
// is not the test is the report that it writes for that package.
//
// # How it asks
//
//	frame -> tunio's transmitter -> device -> receiving netdev -> raw socket
//
// The raw socket sees what passed the IP layer's receive side. The payload has a
// pattern: a frame has arrived when all its bytes have, each in its place, in one
// packet (whole) or in several that the kernel has cut it into (cut).
//
// # Units
//
// Lengths are bytes and count from the Ethernet header.
package accept
