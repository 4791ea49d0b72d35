// Package wire is the protocol between a test and the init of its guest, spoken
// over a virtio-serial port.
//
// # Bytes
//
// Both ways go frames: the length of a head and of a body, four bytes each,
// little-endian; the head, a JSON Message; the body, any bytes. After every boot
// the guest first writes Preamble, which a reader looks for, since what the boot
// before had begun to write may still lie in front of it.
//
// # Conversation
//
//	guest                            host
//	hello, with the kernel's release
//	                                 run, with an id of the host's choice
//	out, any number
//	                                 kill, perhaps
//	exit
//	                                 put, data..., data with EOF
//	exit
//	                                 get
//	data...
//	exit
//	                                 halt
//	bye
//
// Conversations of different ids go on at the same time. Within one, nothing
// follows exit. After bye nothing follows but the next boot.
package wire
