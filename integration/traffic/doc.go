// Package traffic holds only tests: real TCP, and frames made by hand, through `sluice run`,
// between network namespaces and through every kind of port.
//
// What each file tests:
//
//	topology_test.go   do the cases from the field work, is nothing corrupt or lost
//	limits_test.go     do frames keep to the limits of their egress, as these change
//	gro_test.go        do the frames that GRO makes cross, and who loses what is lost
//	foreign_test.go    are frames as other senders make them sent on right, or not at all
//	vlan_test.go       do tags survive
//	tunnel_test.go     are super-packets in tunnels told from malformed ones, and is the remedy right
//	host_test.go       does the host's own stack stay out of it
//	lifecycle_test.go  does one device's fate stay its own port's
//	start_test.go      does it start, fail and end as the command line promises
//	config_test.go     is the file what the command line promises
//	control_test.go    can it be steered while it runs, and what does it say
//	readme_test.go     does README tell the truth about that
//	usage_test.go      what does it cost, idle and under load
//
// # Units
//
// As in package vnet: lengths are bytes, those of frames count from the Ethernet
// header.
//
// # Ownership
//
// Each test makes its own namespaces and runs its own switch, which ends with the test. Every
// switch that became ready must exit with 0 and report counters that obey the conservation laws.
//
// # Time
//
// No test asserts a speed or fails because the machine is slow: tests wait for conditions, for up
// to patience. Only a failing test waits that long.
package traffic
