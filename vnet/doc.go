// Package vnet is the vocabulary of the dataplane: the virtio-net header that precedes every frame,
// the frame, a batch of frames, the limits of an egress, the reasons to drop a frame, and the one
// check and the one parse of untrusted bytes.
//
// It opens nothing and imports only the standard library, so everything else
// may import it.
//
// # Units
//
// Lengths are bytes and ints. Offsets count from the first byte of the Ethernet
// header, never from the virtio-net header. A frame's length includes its VLAN
// tags and excludes the virtio-net header.
//
// # Ownership
//
// A Frame borrows Head and Body from the queue that filled its Batch, until that queue's next
// ReadBatch. A cut or completed Frame borrows its Head from the Batch that holds it, until that
// batch's Reset, and its Body from the frame that it was cut from. A received frame is never
// written to: all egresses of a flooded frame share it.
//
// # Concurrency
//
// Nothing here is safe for concurrent use; a Batch has one owner.
//
// # Trust
//
// A Header and the bytes behind it are hostile until Frame.Check accepted them;
// protocol headers are hostile until Parse accepted them. Code behind the two
// indexes freely.
package vnet
