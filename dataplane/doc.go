// Package dataplane is the switch: ports, the forwarding database, the workers that move frames,
// and their counters. It makes no system call: descriptors are behind Queue and Transmitter, which
// know what an errno means. This package decides what to do about it.
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
// A worker reads a batch of frames and runs it to completion. Each frame is checked once, its VLAN
// is determined, its source is learnt in that VLAN, and its destination is looked up there; unknown
// and group destinations are flooded to the ports that carry the VLAN (VLANMode has the rules). For
// each egress, decide says what happens to the frame there: it passes unchanged, is cut into chunks
// or segments, has its checksum completed or its BIG TCP form changed, or is dropped. A separate
// step carries this out: it appends frames to the worker's batch for that egress. No payload is
// copied: a cut frame is new headers in scratch memory and references into the received frame. A
// batch for an egress is written when it holds 512 KiB, when its scratch is full, and when the
// worker's batch ends.
//
// If a frame leaves with a different VLAN tag, the tag is edited first, on the super-packet, and
// decide works on the edited frame. Here too the headers are copied and the payload is referenced,
// once for all egresses with the same edit. Between trunks only an empty tag is edited, one with
// VID 0 and priority 0.
//
// A write that the kernel refuses never loses a frame silently. If there is no memory for a frame,
// it is halved, then cut to 64 KiB, and tried again. If a queueing discipline has no room for it,
// it is lost with the rest of its flow in the batch, but other flows go on. If it is too long, the
// port learns its greatest write. If the kernel does not take its GSO type, it leaves as segments.
// Anything else is a drop with a reason. Only frames that parse completely count against a port's
// GSO abilities, so a malformed frame harms only its sender.
//
// Through a layer-2 loop, flooded frames come in again and circulate, and addresses are learnt at
// the wrong ports. When addresses move as often as this makes them move, the database is cleared.
// While signs of the loop continue, and for a minute longer, flooded frames are remembered for a
// moment, by a hash. A frame that comes in at another port, or often at the same one, is dropped
// before its source is learnt. In the first two seconds, when some frames still circulate, nothing
// is learnt from group frames. Without a loop nothing is remembered.
//
// # Conservation
//
// Counters obey two laws whenever no batch is in flight. Over all ports, rx.frames
// + rx.copies = tx.offered + ingress drops. For each port, offered + (chunks -
// resegmented) + (segments - segmented) - merged = tx.frames + egress drops + held.
//
// # Units
//
// As in package vnet: lengths are bytes of a frame, the virtio-net header excluded. Counters count
// frames, or bytes where their name says so. Time is in Ticks, which are seconds.
//
// # Ownership
//
// The switch borrows queues between Attach and Detach. Whoever opened them closes them, after
// Detach has returned.
//
// # Concurrency
//
// What workers share is an immutable snapshot behind an atomic pointer, and the forwarding
// database, which they only read in the steady state. Counters have one writer. Everything that
// changes the switch takes Switch.mu; Attach, Detach, Remove, Port.Configure, SetUp and Halt also
// wait for each other. Detach returns when every worker has passed a batch boundary or is parked in
// ReadBatch, and then no worker uses the port's descriptors.
//
// # Trust
//
// Frames are hostile until vnet.Frame.Check accepted them. No frame stops a
// worker: only a queue's error does.
package dataplane
