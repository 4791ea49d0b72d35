// Package vnettest builds frames for tests: super-packets as a sender's kernel
// hands them over, and the wire packets that they stand for.
//
// It is written for plainness: every header is laid out byte by byte and every
// checksum is summed byte by byte, in code that shares nothing with what is
// tested. It allocates as it likes and panics on a Spec that makes no sense.
//
// # Units
//
// As in package vnet: lengths are bytes, offsets count from the Ethernet header.
//
// # Ownership
//
// A frame that is built here owns its memory.
package vnettest
