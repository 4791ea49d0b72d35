// Package seen is what a guest's NIC handed over, in the words in which the program
// in the guest tells it to the test outside.
//
// # Units
//
// Lengths are bytes from the Ethernet header on.
package seen
