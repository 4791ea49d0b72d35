// Package vnettest builds frames for tests: super-packets as a sender's kernel
// hands them over, and the wire packets that they stand for.
//
// It is deliberately simple: it lays out every header and sums every checksum byte by byte, and
// shares no code with what is tested. It allocates freely and panics on a Spec that makes no sense.
//
// # Units
//
// As in package vnet: lengths are bytes, offsets count from the Ethernet header.
//
// # Ownership
//
// A frame that is built here owns its memory.
package vnettest
