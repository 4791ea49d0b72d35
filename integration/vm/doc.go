// Package vm builds labs of virtual machines: guests under QEMU, with other kernels than this
// machine's, in which tests run commands.
//
//	lab := vm.New(t)
//	a := lab.Guest("6.12", vm.In(ns), vm.NIC{Tap: "tapA", Offloads: "guest_tso4=off"})
//	b := lab.Guest(vm.Newest, vm.In(ns), vm.NIC{Tap: "tapB"})
//	a.Run("ip", "addr", "add", "10.0.0.1/24", "dev", "eth0")
//
// A guest's file system is in its memory: dash, busybox, iproute2 (with bridge, tc, ss), iperf3,
// ethtool, tcpdump, dnsmasq, setpriv, sysctl and fuser, all in /usr/bin, and what the test adds.
// Kernels are Debian's cloud kernels; modprobe finds networking modules. Package debian fetches
// everything, QEMU included, into the user's cache; the first use needs the Debian archive.
//
// Guests run with KVM if it really works, which is tried once and remembered in the cache.
// Otherwise they are emulated, and no speed measured in them means anything.
//
// # Errors
//
// The package never imports testing; T is what it needs of a test. Methods of a guest that return
// no error stop the test on one. New and Guest skip it if QEMU or the kernel is not available. With
// SLUICE_REQUIRE=1 they fail it instead, except for the kernels of MayBeGone.
//
// # Ownership
//
// Guests end with their test. They also die with the test's process, however it ends. What a killed
// process left, the next New removes. After a failure a guest's console is kept, and its path is
// logged.
//
// QEMU makes the tap that a NIC names, in the namespace of In. It is configured and up, and goes
// with QEMU.
//
// # Time
//
// Guest returns as soon as the taps exist, so several guests boot at the same time; the first
// command waits until its guest is up. A command that exceeds its limit is killed. If it does not
// end, the guest is considered hung and is killed too.
//
// # Concurrency
//
// Commands of a guest may run at the same time. Methods that stop the test may be
// called from its goroutine only, those that start, end or reboot a guest from
// one goroutine at a time.
package vm
