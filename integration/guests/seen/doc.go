// Package seen describes what a guest's NIC delivered. It is the format in which the program in the
// guest reports to the test outside.
//
// # Units
//
// Lengths are bytes from the Ethernet header on.
package seen
