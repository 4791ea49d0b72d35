// Package run is `sluice run`: it opens the devices that the command line names,
// puts them under the ports of a switch, and keeps the two together while devices
// go down, come back, are deleted, created again, or change what they take.
//
// # How a port follows its device
//
// A port goes by the name of its device until it has one, and by the netdev's index from
// then on: find says which netdev that is now. Every port has one function, follow, that
// looks at the device and makes the port agree with it: attach what has appeared, release
// what is gone, make again what Sluice had made, set up or down, pass on new limits, leave
// the host's own stack what it has a use for. It is called at start, whenever netlink or a
// worker says that something happened, and once a second, since changes of sizes and
// addresses make no event that is listened for. It asks what is, and never what happened;
// so events may come late, twice, or not at all.
//
// # Ownership
//
// A port holds its netdev (link.Hold) before it does anything to it: no other switch, nor
// another port of this one, has it meanwhile. What Sluice created it removes, also when it
// fails half-way, and creates again when somebody deletes it; what it changed on other
// netdevs it puts back unless somebody else has changed it since.
//
// # Concurrency
//
// One goroutine owns all ports. Watchers and workers only wake it.
package run
