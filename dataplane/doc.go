// Package dataplane is the switch: ports, the forwarding database, the workers
// that move frames, and their counters. It makes no system call: descriptors are
// behind Queue and Transmitter, and what an errno means is their business; what
// to do about it is decided here.
//
// # Theory of operation
//
//	            one worker per receive queue, its thread locked
//	         .----------------------------------------------------.
//	Queue -> | ReadBatch -> check -> learn -> decide -> do -> flush | -> Transmitter
//	         '----------------------------------------------------'      one per worker
//	                |         |        |        |                        and port
//	              vnet       vnet     FDB    snapshot
//
// A worker reads a batch of frames and runs it to completion. Each frame is
// checked once, its VLAN is settled, its source is learnt in that VLAN, and its
// destination looked up there; unknown and group destinations are flooded to the
// ports that carry the VLAN (VLANMode has the rules). For each egress, decide says
// what becomes of the frame there: it passes as it is, is cut into chunks or
// segments, has its checksum completed or its BIG TCP form changed, or is dropped.
// Doing is apart from deciding: it appends frames to the worker's batch for that
// egress. Nothing is copied: a cut frame is new headers in scratch memory and
// references into the received one. A batch for an egress is written when it holds
// 512 KiB, when its scratch is full, and when the worker's batch ends.
//
// Where a frame leaves with another VLAN tag than it came with, the tag is edited
// first, on the super-packet, and decide judges the frame as it leaves. Again the
// headers are copied and the payload is referenced, once for all egresses that want
// the same edit. Between trunks no tag is edited, but one that says nothing: a VID
// and a priority of 0.
//
// A write that the kernel refuses loses nothing in silence. A frame for which
// there is no memory is halved, then cut to 64 KiB, and tried again; one that a
// queueing discipline has no room for is lost with what follows of its flow, not the
// rest of the batch; one that is too long teaches the port its greatest write; one
// whose GSO type the kernel does not take leaves as segments; whatever remains is a
// drop with a reason. Only frames that parse in full count against a port's GSO
// abilities, so that a malformed frame is its sender's own loss.
//
// Through a layer-2 loop, flooded frames come in again, circulate, and have addresses
// learnt where nobody is. When addresses move as often as that makes them, the database
// starts anew, and for as long as the loop shows, and a minute more, flooded frames are
// remembered for a moment, by a hash: one that comes in at another port, or often at the
// same, is dropped before its source is learnt. Of group frames nothing is learnt in the first
// two seconds, when some still circulate. Without a loop nothing is remembered.
//
// # Conservation
//
// Counters obey two laws whenever no batch is in flight. Over all ports, rx.frames
// + rx.copies = tx.offered + ingress drops. For each port, offered + (chunks -
// resegmented) + (segments - segmented) - merged = tx.frames + egress drops + held.
//
// # Units
//
// As in package vnet: lengths are bytes of a frame, the virtio-net header excluded.
// Counters count frames, or bytes where their name says so. Time is a Tick, a
// second.
//
// # Ownership
//
// The switch borrows queues between Attach and Detach; who opened them closes
// them, after Detach has returned.
//
// # Concurrency
//
// What workers share is an immutable snapshot behind an atomic pointer, and the
// forwarding database, which they only read in the steady state. Counters have one
// writer. Everything that changes the switch takes Switch.mu; Attach, Detach, Remove,
// Port.Configure, SetUp and Halt also wait for each other. Detach returns when every
// worker has passed a batch boundary or is parked in ReadBatch, so that nobody uses the
// port's descriptors any more.
//
// # Trust
//
// Frames are hostile until vnet.Frame.Check accepted them. No frame stops a
// worker: only a queue's error does.
package dataplane
