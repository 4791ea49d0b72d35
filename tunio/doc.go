// Package tunio makes queues of file descriptors: taps, macvtaps, packet sockets.
// A Queue reads batches of frames, a Transmitter writes them, each frame with its
// virtio-net header.
//
// It knows what an errno means and what the kernel requires. It makes no decision about a frame,
// sets no link attribute, follows no netlink event and logs nothing.
//
// # Units
//
// As in package vnet. A queue's header length, 10 or 12 bytes, is a property of its descriptor.
// Headers are little-endian: packet sockets offer only the host's order, so big-endian hosts are
// not supported.
//
// # Ownership
//
// An Open function owns what it opened until it returns; then each Queue owns its descriptor and
// its arena until Close. Frames that ReadBatch returns lie in the arena, outside the Go heap: the
// next ReadBatch invalidates them, and touching them after Close is a segmentation fault. A
// Transmitter borrows its queue's descriptor. So call Close only after every worker that reads the
// queue or writes through one of its transmitters has stopped.
//
// # Concurrency
//
// ReadBatch has one caller at a time, and so has a Transmitter. Wake, KernelDrops and Gone may be
// called from anywhere at any time, also after Close.
//
// # Trust
//
// Frames and headers are handed on as they came: hostile until vnet's Frame.Check. Frames to write
// are trusted to have passed it. Of their headers only hdr_len, which sizes a kernel allocation, is
// bounded again.
//
// # When a device goes
//
// Measured on Linux 6.18:
//
//	          down                   deleted                 moved to another namespace
//	tap       read EAGAIN,           POLLERR and EBADFD      works on, once up again
//	          write EIO              for ever
//	packet    one ENETDOWN to the    the same, then read     as deleted
//	          first read or write,   EAGAIN and write ENXIO
//	          then read EAGAIN,      for ever; bound to
//	          write ENETDOWN         ifindex -1
//	macvtap   as if it were up       as if it were up;       works on, once up again
//	                                 TUNGETIFF says ENOLINK
//
// So a queue asks for the state of its device whenever a wait brought nothing, and never concludes
// it from silence. A write to a deleted macvtap succeeds: only its reader learns that it is gone.
package tunio
