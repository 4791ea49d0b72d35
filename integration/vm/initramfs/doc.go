// Package initramfs writes the file system that a guest boots into: programs with
// the shared libraries that they need, kernel modules with those that they depend
// on, and whatever else is put in. It runs no program and needs no privilege: owner
// and modes exist only in the archive.
//
// The archive is the kernel's "newc" form of cpio
// (Documentation/driver-api/early-userspace/buffer-format.rst), not compressed:
// unpacking costs an emulated guest more than reading.
package initramfs
