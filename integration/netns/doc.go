// Package netns builds labs of network namespaces: hosts, cables and a bridge made of Linux's own
// parts, real TCP between them, and the counters and captures that show whether TCP was healthy.
// Tests and `sluice bench` use it.
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
// It changes nothing outside the namespaces, except that /run/netns becomes a shared mount, as the
// first `ip netns add` makes it. Names in it contain the process id of their maker. `ip netns exec`
// and `netns=` of a port can use them.
//
// # Errors
//
// Methods that build keep the lab's first error and do nothing after it, so that a topology reads
// without error handling. Err returns it. Methods that run something return their own error.
//
// # Ownership
//
// Close ends every process that was started in the lab and removes every namespace, and with it
// every device. It may be called at any time, from any goroutine, more than once. Child processes
// die with their maker. What a killed process left, temporary directories included, the next New in
// any process of the same user removes. It looks for a locked file in os.TempDir and never trusts a
// name alone: what has no such file, or one whose lock is held, is left alone.
//
// # Concurrency
//
// Each namespace has one thread that lives in it; Do runs a function there, one
// at a time. Everything else may be called from any goroutine.
//
// The package needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN) and iproute2. It never imports testing;
// netnstest adapts it to tests.
package netns
