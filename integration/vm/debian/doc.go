// Package debian gets what guests are made of from the Debian archive, by name,
// into a cache: kernels, and a userland with QEMU in it. It installs nothing and
// needs no privilege.
//
// apt does the work, signatures included, with a state of its own. Where the
// archive is and which keys sign it is taken from the machine's own sources; only
// the suites are others: those of Suites, whatever release the machine runs.
// Programs of the userland are run with the userland's own loader and libraries,
// so that they do not mix with the machine's.
//
// # The cache
//
// It is under the user's cache directory, or $SLUICE_VM_CACHE, and may be deleted
// at any time that nobody uses it. Processes may share it: a lock keeps them from
// filling it at the same time, and what is in it under its final name is whole.
//
//	apt/              lists and configuration, read again after a week
//	kernels/RELEASE/  vmlinuz, lib/modules/RELEASE with modules as plain .ko
//	userland-HASH/    the unpacked packages; HASH is of their names
//
// # Errors
//
// What cannot be had here, for whatever reason, is ErrUnavailable. A series of
// kernels that the archive does not have, or not wholly, is a *NoKernelError.
package debian
