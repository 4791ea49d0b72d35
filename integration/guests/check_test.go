package guests

import (
	"strings"
	"testing"

	"sluice/dataplane/summary"
)

// lease has one guest get an address from another with DHCP. The client checks the UDP
// checksum itself, from a packet socket.
func lease(server, client *guest) {
	server.t.Helper()
	daemon := server.Background("dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--port=0",
		"--user=root", "--leasefile-ro", "--interface=eth0", "--bind-dynamic",
		"--dhcp-authoritative", "--dhcp-range=10.0.0.100,10.0.0.199")
	defer daemon.Kill()
	const script = "/tmp/bound" // run by udhcpc with what has happened
	client.WriteFile(script, []byte("#!/bin/sh\ntest $1 != bound || echo $ip\n"), 0o755)
	out, err := client.Try("udhcpc", "-f", "-i", "eth0", "-n", "-q",
		"-t", "20", "-T", "1", "-s", script)
	if err != nil || !strings.Contains(out.Stdout, "10.0.0.1") {
		client.t.Errorf("no lease: %v\n%s%s", err, out.Stdout, out.Stderr)
	}
}

// lossless fails the test if a port, or the kernel behind it, dropped a frame.
func lossless(t *testing.T, p summary.Port) {
	t.Helper()
	overflown := p.Drops.Egress["full"] + p.KernelDrops
	if overflown > 0 {
		t.Errorf("port %s: %d dropped for lack of room", p.Name, overflown)
	}
	faultless(t, p)
}

// faultless fails the test if a port dropped a frame for another reason than that its
// guest did not read fast enough, which segments at the pace of super-packets may bring
// about: TCP repairs that.
func faultless(t *testing.T, p summary.Port) {
	t.Helper()
	for _, drops := range []map[string]uint64{p.Drops.Ingress, p.Drops.Egress} {
		for reason, n := range drops {
			if n > 0 && reason != "full" {
				t.Errorf("port %s: %d dropped: %s", p.Name, n, reason)
			}
		}
	}
}

// corrupt fails the test if a guest received anything corrupt.
func corrupt(t *testing.T, b *bed) {
	t.Helper()
	for _, g := range b.guests {
		for line := range strings.Lines(g.Run("cat", "/proc/net/snmp6")) {
			f := strings.Fields(line)
			bad := f[0] == "Ip6InHdrErrors" || f[0] == "Udp6InCsumErrors"
			if bad && f[1] != "0" {
				t.Errorf("guest %s: %s", g.name, line)
			}
		}
		// Pairs of lines: names, and their values.
		rows := strings.Split(g.Run("cat", "/proc/net/snmp"), "\n")
		for i := 0; i+1 < len(rows); i += 2 {
			names, values := strings.Fields(rows[i]), strings.Fields(rows[i+1])
			for j, name := range names {
				bad := name == "InCsumErrors" || name == "InHdrErrors"
				if bad && values[j] != "0" {
					t.Errorf("guest %s: %s%s is %s", g.name, names[0], name, values[j])
				}
			}
		}
	}
}
