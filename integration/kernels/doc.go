// Package kernels holds one test. It runs the product's own tests of what the kernel does, in a
// guest of each kernel that users run, and prints a table of what each kernel takes. It is off by
// default:
//
//	go test ./integration/kernels -kernels -v                  (make kernels)
//	go test ./integration/kernels -kernels -series 6.1 -suites integration/kernels/accept -v
//
// # How it works
//
// The tests are built here, without the C library, and copied into the guest with the switch. There
// they run with SLUICE_REQUIRE=1, so that a missing privilege is a failure, not a skip. Where
// kernels differ, the tests themselves say how.
//
// # Time
//
// Guests are emulated where the machine has no KVM. They run one after the other, which takes about
// a quarter of an hour in all. No number in the output is a claim about speed.
package kernels
