// Package probe finds out what the running kernel really does with a super-packet above 64 KiB:
// does it take the write, and does the packet reach the receiver? Releases differ, distributions
// carry patches, and a kernel that loses such a packet still accepts the write. Only a trial can
// tell.
//
// It tries in a network namespace that has no name and ends with the thread that
// made it, and leaves nothing behind. Where it cannot make one, it answers by the
// kernel's release and says so.
//
// # Units
//
// Lengths are bytes and exclude the virtio-net header.
package probe
