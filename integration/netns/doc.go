// Package netns is a laboratory of network namespaces: hosts, cables and a
// bridge made of Linux's own parts, real TCP between them, and what tells
// afterwards whether that TCP was well. Tests and `sluice bench` use it.
//
//	lab := netns.New("bridge")
//	defer lab.Close()
//	a, sw, b := lab.Namespace("a"), lab.Namespace("sw"), lab.Namespace("b")
//	lab.Veth(a, "eth0", sw, "vA", netns.Link{GSO: 389120})
//	lab.Veth(b, "eth0", sw, "vB", netns.Link{})
//	sw.Bridge("br0", "vA", "vB")
//	a.Address("eth0", "10.0.0.1/24")
//	b.Address("eth0", "10.0.0.2/24")
//	if err := lab.Err(); err != nil { ... }
//	result, err := lab.Iperf(ctx, a, b, "10.0.0.2", netns.Load{Seconds: 3})
//
// Nothing outside the namespaces is changed, but that /run/netns becomes a shared
// mount, as the first `ip netns add` makes it. Names in it carry the process id of
// their maker; they are visible to `ip netns exec` and to `netns=` of a port.
//
// # Errors
//
// Methods that build keep the laboratory's first error, after which they do
// nothing, so that a topology reads as one; Err returns it. Methods that
// run something return their own error.
//
// # Ownership
//
// Close ends every process that was started in the laboratory, removes every
// namespace, and with these every device. It may be called at any time, from
// any goroutine, more than once. Children die with their maker. What a killed
// process could not remove, temporary directories too, the next New in any process
// of the same user does. It goes by a locked file in os.TempDir, never by a name
// alone: what has no such file, or one whose lock is held, is another's.
//
// # Concurrency
//
// Each namespace has one thread that lives in it; Do runs a function there, one
// at a time. Everything else may be called from any goroutine.
//
// The package needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN) and iproute2; it
// never imports testing: netnstest adapts it to tests.
package netns
