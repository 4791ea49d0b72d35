// Package debian fetches what guests are made of, by name, from the Debian archive into a cache:
// kernels, and a userland with QEMU. It installs nothing and needs no privilege.
//
// apt does the work, including the check of signatures, with a private state. The archive's address
// and keys come from the machine's own sources. Only the suites are different: those of Suites,
// whatever release the machine runs. Programs of the userland run with its own loader and
// libraries, so that they do not mix with the machine's.
//
// # The cache
//
// It is under the user's cache directory, or $SLUICE_VM_CACHE, and may be deleted whenever it is
// not in use. Processes may share it: a lock keeps them from filling it at the same time, and
// everything under its final name is complete.
//
//	apt/              lists and configuration, read again after a week
//	kernels/RELEASE/  vmlinuz, lib/modules/RELEASE with modules as plain .ko
//	userland-HASH/    the unpacked packages; HASH is of their names
//
// # Errors
//
// ErrUnavailable is the error for anything that is not available here, for whatever reason. The
// error is a *NoKernelError for a series of kernels that the archive does not have, or not
// completely.
package debian
