// Package guests tests Sluice between virtual machines: each has a virtio-net device on
// a tap of the host, and the taps are packet ports of one switch.
//
//	guest a - virtio-net - QEMU - tapA - [packet, packet] - tapB - QEMU - virtio-net - guest b
//
// The guest's driver negotiates with QEMU what it can take, QEMU makes it the tap's
// offloads (TUNSETOFFLOAD), and from there Sluice has the port's limits. What is to be
// true: what a guest did not negotiate it never gets, and what it can take it gets whole.
// In the guest, Command peer moves data whose contents are verified, and tells what the
// driver handed over.
//
// `go test` runs what needs two guests once. -full runs all of it, about 6 minutes
// where guests are emulated: `go test ./integration/guests -full -v -timeout 40m`.
package guests
