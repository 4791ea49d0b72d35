// Package initramfs writes the file system that a guest boots into: programs with the shared
// libraries that they need, kernel modules with their dependencies, and other files. It runs no
// program and needs no privilege: owners and modes exist only in the archive.
//
// The archive is the kernel's "newc" form of cpio
// (Documentation/driver-api/early-userspace/buffer-format.rst), not compressed: for an emulated
// guest, unpacking costs more than reading.
package initramfs
