package netns

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Counters are a namespace's protocol counters, named as nstat does: protocol
// and counter in one word ("TcpInCsumErrors", "IpInHdrErrors",
// "Ip6InHdrErrors", "TcpExtTCPBacklogDrop").
type Counters map[string]uint64

// Counters reads /proc/net's snmp, netstat and snmp6 in the namespace.
func (ns *Namespace) Counters() (Counters, error) {
	c := Counters{}
	err := ns.Do(func() error {
		// thread-self: /proc/net is the main thread's.
		for _, file := range []string{"snmp", "netstat"} {
			if err := c.readTable("/proc/thread-self/net/" + file); err != nil {
				return err
			}
		}
		return c.readPairs("/proc/thread-self/net/snmp6")
	})
	if err != nil {
		return nil, fmt.Errorf("netns: counters of %s: %w", ns.Name, err)
	}
	return c, nil
}

// readTable reads pairs of lines "Tcp: Name ..." and "Tcp: value ...".
func (c Counters) readTable(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(names) == 0 || names[0] != fields[0] {
			names = fields
			continue
		}
		if len(names) != len(fields) {
			return fmt.Errorf("%s: %d names, %d values", fields[0], len(names), len(fields))
		}
		protocol := strings.TrimSuffix(fields[0], ":")
		for i, value := range fields[1:] {
			if n, err := strconv.ParseUint(value, 10, 64); err == nil { // TcpMaxConn is -1
				c[protocol+names[i+1]] = n
			}
		}
		names = nil
	}
	return nil
}

// readPairs reads lines "Name value".
func (c Counters) readPairs(file string) error {
	f, err := os.Open(file)
	if os.IsNotExist(err) { // a kernel without IPv6
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		if fields := strings.Fields(s.Text()); len(fields) == 2 {
			if c[fields[0]], err = strconv.ParseUint(fields[1], 10, 64); err != nil {
				return err
			}
		}
	}
	return s.Err()
}

// TCPErrors lists the counters that corruption raises at a receiver, with their values. It must be
// empty in a lab that loses nothing.
func (c Counters) TCPErrors() string {
	var bad []string
	for _, name := range []string{
		"TcpInCsumErrors", "TcpInErrs", "IpInHdrErrors", "IpInTruncatedPkts",
		"Ip6InHdrErrors", "Ip6InTruncatedPkts",
	} {
		if c[name] != 0 {
			bad = append(bad, fmt.Sprintf("%s %d", name, c[name]))
		}
	}
	return strings.Join(bad, ", ")
}
