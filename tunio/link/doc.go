// Package link knows the netdevs: what netlink and ethtool say about them, which
// limits an egress through one has, and how to make, change, move and watch one.
//
// It moves no frames and decides no policy: which sizes to ask for, when to read
// again and what to say about it are the caller's business. Nothing that it changes
// outlives the caller's wish: a Change can be put back, and a host drop goes with
// the process.
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
