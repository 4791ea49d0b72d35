// Package guests tests Sluice between virtual machines: each has a virtio-net device on
// a tap of the host, and the taps are packet ports of one switch.
//
//	guest a - virtio-net - QEMU - tapA - [packet, packet] - tapB - QEMU - virtio-net - guest b
//
// The guest's driver negotiates with QEMU what it can take, QEMU sets the tap's offloads
// accordingly (TUNSETOFFLOAD), and Sluice reads the port's limits from them. The tests check two
// rules: a guest never gets what it did not negotiate, and it gets whole what it can take. In the
// guest, Command peer moves data whose contents are verified, and reports what the driver
// delivered.
//
// `go test` runs what needs two guests once. -full runs everything, which takes about 6 minutes
// where guests are emulated: `go test ./integration/guests -full -v -timeout 40m`.
package guests
