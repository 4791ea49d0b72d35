// Package accept tests what the running kernel does with a super-packet above 64 KiB: written to a
// TAP, sent through a packet socket to a veth that takes it and to one that takes 64 KiB, written
// to a macvtap; over IPv4, and over IPv6 in each form. Then `sluice run` carries TCP over the same
// devices, and the greatest frames in and out are recorded.
//
// The test compares the results with what was measured on such kernels, so that a kernel that
// differs is found, on this machine and in the guests of package kernels. Outside its tests, the
// package holds only the report that they write for that package.
//
// # How it asks
//
//	frame -> tunio's transmitter -> device -> receiving netdev -> raw socket
//
// The raw socket sees what passed the IP layer's receive side. The payload has a pattern: a frame
// has arrived when all its bytes have, each in its place, in one packet (whole) or in several, if
// the kernel cut it (cut).
//
// # Units
//
// Lengths are bytes and count from the Ethernet header.
package accept
