// Package bench reproduces the mixed-capability cases of BIG TCP and measures
// them: a sender that makes super-packets of up to 389120 bytes, and an egress
// that takes 64 KiB.
//
// Each sample builds its own lab of three namespaces, so that nothing (TCP metrics, neighbours,
// forwarding entries) remains from another case:
//
//	 sender            switch               receiver
//	[ eth0 ]-veth-[ vA   ...   vB ]-veth-[ eth0 ]    packet-to-packet, bridge
//	[ eth0 ]-veth-[ vA   ...            tap0    ]    packet-to-tap
//
// In the middle is `sluice run`, or a Linux bridge over the same veths, which is the baseline.
// Rounds are interleaved (every case once, then every case again, backwards), so that a machine
// that slows down or speeds up affects all cases alike. Every write of the sender has
// netns.IperfWrite bytes, and sender and receiver have one CPU each, the same in every case (see
// bindingOf).
//
// # Honesty
//
// Every sample shows, by the greatest frame in and out, that it was the case it is called. One that
// was not is reported as skipped, with the reason, never as a number. The limits that the switch
// itself reports show what a kernel cannot do, not the kernel's version.
//
// If the bridge is ahead the report says so in the same words as for Sluice. It compares all cases
// that can be compared, with the range of their samples.
//
// # Units
//
// Rates are Gbit/s of TCP payload that the receiver counted. Sizes are bytes of
// a frame, Ethernet header included.
package bench
