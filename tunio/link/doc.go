// Package link reads and changes netdevs: what netlink and ethtool say about them, the limits of an
// egress through one, and how to make, change, move and watch one.
//
// It moves no frames and decides no policy: the caller decides which sizes to ask for, when to read
// again and what to log. The caller can undo every change: a Change can be put back, and a host
// drop ends with the process.
//
// # Units
//
// Sizes are bytes, Ethernet header and tags included, as the kernel compares them
// (gso_features_check in net/core/dev.c); an MTU counts from the IP header on.
//
// # Ownership
//
// A Namespace holds a descriptor and two netlink sockets. Each of them alone keeps
// the network namespace alive after `ip netns del`, netdevs included: close it when
// it is no longer Alive, and close its Watchers first.
//
// # Concurrency
//
// A Namespace may be used by several goroutines at once, until Close. Do and
// everything built on it leaves no thread behind in another namespace.
//
// # Errors
//
// Errors read `operation object: cause`. os.ErrNotExist, os.ErrExist,
// os.ErrPermission and errors.ErrUnsupported are reachable with errors.Is.
package link
