// Package keeper makes a switch and its devices agree with the desired state, again and
// again. It is the only writer of either: whoever wants something else edits the state.
//
// # Theory of operation
//
//	-p, file, SIGHUP, control socket           netlink, workers, the clock
//	              |                                      |
//	            Edit                                   wake
//	              v                                      v
//	       config.Switch  -- reconcile -->  ports  -- follow -->  devices, dataplane
//
// There is one value, and one goroutine that acts on it. An edit makes a new value of the
// present one. If the new one is valid and differs, it takes its place, and reconcile makes
// the list of ports what it says: it removes ports, adds ports, and gives changed ones their
// new keys. A key that needs other queues has its port attach anew; any other counts from
// the next batch of frames on. A port that the edit does not name is not touched at all.
//
// Each port has one function, follow, that looks at the device and makes the port agree with
// it: attach what has appeared, release what is gone, set up or down, pass on new limits,
// leave the host's own stack what it has a use for. It is called after every edit, whenever
// netlink or a worker says that something happened, and once a second, since changes of
// sizes and addresses make no event that is listened for. It asks what is, and never what
// happened; so events may come late, twice, or not at all.
//
// A port that cannot be had is down, says why, and is tried again once a second. It hinders
// no other port. Only at the start, and only with Options.Strict, it is an error.
//
// # The books
//
// What a port shows about itself comes from the place that acts on it: limits from the
// switch's snapshot, the reason to be down from follow, counters from the workers. The
// counters of a removed port are kept, added up, since the laws of conservation are about
// all frames that there were. Events are kept in a ring, and nobody waits for their readers.
//
// # Ownership
//
// What Sluice created it removes, also when it fails half-way; what it changed on other
// netdevs it puts back unless somebody else has changed it since.
//
// # Concurrency
//
// Run's goroutine owns everything but the events. The other methods hand it a function and
// wait until it has run. Such functions wait for no client and no other process; the kernel's
// answers to netlink requests are bounded in time.
package keeper
