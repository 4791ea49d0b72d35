// Package vm is a laboratory of virtual machines: guests with other kernels than
// this machine's, under QEMU, that tests run commands in.
//
//	lab := vm.New(t)
//	a := lab.Guest("6.12", vm.In(ns), vm.NIC{Tap: "tapA", Offloads: "guest_tso4=off"})
//	b := lab.Guest(vm.Newest, vm.In(ns), vm.NIC{Tap: "tapB"})
//	a.Run("ip", "addr", "add", "10.0.0.1/24", "dev", "eth0")
//
// A guest's file system is in its memory: dash, busybox, iproute2 (with bridge, tc, ss),
// iperf3, ethtool, tcpdump, dnsmasq, setpriv, sysctl and fuser, all in /usr/bin, and
// what the test adds. Kernels are Debian's for clouds; modprobe finds networking modules.
// Package debian gets all of it, QEMU too, into the user's cache; the first use needs
// the Debian archive.
//
// Guests run with KVM where it really starts one, which is tried once and then
// remembered in the cache, else emulated: no speed measured in one means anything.
//
// # Errors
//
// The package never imports testing; what it needs of a test is T. Methods of a
// guest without an error stop the test. New and Guest skip it where QEMU or the
// kernel cannot be had; with SLUICE_REQUIRE=1 they fail it instead, except for the
// kernels of MayBeGone.
//
// # Ownership
//
// With the test end its guests. They die with the test's process, whatever ends
// that; what a killed one could not remove, the next New removes. A guest's console
// is kept, and its path said, when the test has failed.
//
// A tap that a NIC names is made by QEMU in the namespace of In, set up and up, and
// goes with it.
//
// # Time
//
// Guest returns as soon as the taps are there, so several guests boot at once; the
// first command waits until its guest is up. A command that takes longer than its
// limit is killed; a guest that does not even do that is taken for hung and killed
// too.
//
// # Concurrency
//
// Commands of a guest may run at the same time. Methods that stop the test may be
// called from its goroutine only, those that start, end or reboot a guest from
// one goroutine at a time.
package vm
