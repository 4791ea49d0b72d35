// Package wire is the protocol between a test and the init of its guest, over a virtio-serial port.
//
// # Bytes
//
// Both sides send frames: the length of a head and of a body, four bytes each, little-endian; the
// head, a JSON Message; the body, any bytes. After every boot the guest first writes Preamble. A
// reader looks for it, since an unfinished frame of the previous boot may come before it.
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
// Conversations of different ids go on at the same time. Within one, nothing follows exit. After
// bye, only the next boot follows.
package wire
