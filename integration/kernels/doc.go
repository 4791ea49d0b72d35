// Package kernels holds one test: the product's own tests of what the kernel does,
// inside a guest of each kernel that users run, and a table of what each kernel
// takes. It is off unless asked for:
//
//	go test ./integration/kernels -kernels -v                  (make kernels)
//	go test ./integration/kernels -kernels -series 6.1 -suites integration/kernels/accept -v
//
// # How it works
//
// The tests are built here, without the C library, and copied into the guest with
// the switch; there they run with SLUICE_REQUIRE=1, so that nothing is skipped for
// want of a privilege. Where kernels differ, the tests themselves say how.
//
// # Time
//
// Guests are emulated where the machine has no KVM: the whole takes about a quarter of
// an hour, one guest after the other, and no number in it is a claim of speed.
package kernels
