package netns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
)

// iperfPort is iperf3's own default.
const iperfPort = 5201

// IperfWrite is the length of every write of an iperf3 sender, in bytes. With iperf3's default of
// 128 KiB the sender is the limit: over a Linux bridge that takes 389120 bytes, one stream reaches
// 24 to 26 Gbit/s with it, and 53 to 61 with 1 MiB (2 CPUs, Linux 6.18).
const IperfWrite = 1 << 20

// iperfGrace is the time that iperf3 may take beyond its measurement: to connect, and to exchange
// results over a path that loses much.
const iperfGrace = 15 * time.Second

// Load is how much one TCP stream sends: for a time, or an amount. One of the two is set.
type Load struct {
	Seconds int
	Bytes   int64

	// Congestion names the sender's congestion control; empty means the namespace's own. It is set
	// as a socket option, which takes any that the kernel has. A namespace's sysctl takes only
	// those of net.ipv4.tcp_allowed_congestion_control.
	Congestion string

	Binding *Binding // nil: the scheduler decides
}

// Binding names the CPUs that the two processes of a stream are bound to.
type Binding struct{ Sender, Receiver int }

// IperfResult is what one TCP stream of iperf3 reached.
type IperfResult struct {
	Gbits       float64 // Gbit/s of payload that the receiver counted
	Bytes       int64   // payload that the receiver read; not all of it if Load.Bytes is set
	Retransmits int     // segments that the sender retransmitted
	WriteSize   int     // length of the sender's writes, in bytes
}

// Iperf sends one TCP stream from client to server's address with iperf3.
func (l *Lab) Iperf(
	ctx context.Context, client, server *Namespace, address string, load Load,
) (IperfResult, error) {
	limit := iperfGrace + time.Duration(load.Seconds)*time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %v", limit))
	defer cancel()

	daemon, err := server.Start(ctx, nil, "iperf3", "-s", "-1", "-p", strconv.Itoa(iperfPort))
	if err != nil {
		return IperfResult{}, err
	}
	defer daemon.Kill()
	err = Until(ctx, "iperf3 to listen", func() (bool, error) {
		select {
		case <-daemon.Done():
			return false, errors.Join(daemon.Wait(), os.ErrClosed)
		default:
			return server.listens(iperfPort)
		}
	})
	if err != nil {
		return IperfResult{}, err
	}

	args := []string{
		"-c", address, "-p", strconv.Itoa(iperfPort), "-J", "-l", strconv.Itoa(IperfWrite),
	}
	if load.Bytes > 0 {
		args = append(args, "-n", strconv.FormatInt(load.Bytes, 10))
	} else {
		args = append(args, "-t", strconv.Itoa(load.Seconds))
	}
	if load.Congestion != "" {
		args = append(args, "-C", load.Congestion)
	}
	if b := load.Binding; b != nil { // the client tells the server its CPU
		args = append(args, "-A", fmt.Sprintf("%d,%d", b.Sender, b.Receiver))
	}
	out, runErr := client.Run(ctx, "iperf3", args...)
	result, err := parseIperf(out)
	if err := errors.Join(runErr, err); err != nil {
		return IperfResult{}, fmt.Errorf("netns: iperf3 to %s: %w", address, err)
	}
	return result, daemon.Wait()
}

// parseIperf reads what `iperf3 -J` prints.
func parseIperf(out []byte) (IperfResult, error) {
	var report struct {
		Error string `json:"error"`
		Start struct {
			Test struct {
				BlockSize int `json:"blksize"`
			} `json:"test_start"`
		} `json:"start"`
		End struct {
			Sent struct {
				Retransmits int `json:"retransmits"`
			} `json:"sum_sent"`
			Received struct {
				Bytes         int64   `json:"bytes"`
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	switch err := json.Unmarshal(out, &report); {
	case err != nil:
		return IperfResult{}, fmt.Errorf("result: %w", err)
	case report.Error != "":
		return IperfResult{}, errors.New(report.Error)
	case report.End.Received.Bytes == 0:
		return IperfResult{}, errors.New("the receiver got nothing")
	}
	return IperfResult{
		Gbits:       report.End.Received.BitsPerSecond / 1e9,
		Bytes:       report.End.Received.Bytes,
		Retransmits: report.End.Sent.Retransmits,
		WriteSize:   report.Start.Test.BlockSize,
	}, nil
}

// listens reports whether a TCP socket of the namespace listens on port.
func (ns *Namespace) listens(port int) (found bool, err error) {
	// Lines are "sl local_address rem_address st ...", addresses in hexadecimal;
	// state 0A is TCP_LISTEN (include/net/tcp_states.h).
	suffix := fmt.Sprintf(":%04X", port)
	err = ns.Do(func() error {
		for _, table := range []string{"tcp", "tcp6"} {
			text, err := os.ReadFile("/proc/thread-self/net/" + table)
			if errors.Is(err, os.ErrNotExist) { // no IPv6
				continue
			}
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(text)) {
				f := strings.Fields(line)
				found = found || len(f) > 3 && strings.HasSuffix(f[1], suffix) && f[3] == "0A"
			}
		}
		return nil
	})
	return found, err
}

// hostPort joins an address of either family and a port.
func hostPort(address string, port uint16) (string, error) {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return "", err
	}
	return netip.AddrPortFrom(ip, port).String(), nil
}
