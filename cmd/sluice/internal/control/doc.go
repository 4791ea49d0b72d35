// Package control is how a running switch is steered and looked into: HTTP and JSON over a
// unix socket, and the client that the commands use.
//
// Its handlers do two things: they edit the desired state, and they read the books. What
// follows from an edit is the keeper's business. The interface is described by
// openapi.json, which the socket serves as /v1/openapi.json.
//
// # Who may
//
// The socket has mode 0660 and belongs to a group, if there is one. The kernel tells who a
// peer is (SO_PEERCRED): root, the switch's own user and the group's members are served,
// others are refused with 403, also where the file's mode would let them in.
//
// # Bounds
//
// A client can hold up nobody but itself. The length of a request, the time that it may
// take to come, the time that each write of an answer may take, and the number of
// connections are bounded. Handlers run the switch's own code only through calls that wait
// for no client.
//
// # Concurrency
//
// Handlers run at the same time; the Switch behind them puts edits in order.
//
// # Trust
//
// Bodies, paths and headers are hostile until the parsers of package config accepted them.
package control
