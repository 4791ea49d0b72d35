package netnstest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"sluice/integration/netns"
)

// IperfBound reports whether both ends of an iperf3 stream that this process started are running,
// each bound to exactly its CPU of want.
func IperfBound(want netns.Binding) bool {
	bound := map[string]bool{}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range processes {
		status, _ := os.ReadFile(dir + "/status") // none if the process has just ended
		text, _ := os.ReadFile(dir + "/cmdline")
		args := bytes.Split(text, []byte{0})
		ours := bytes.Contains(status, fmt.Appendf(nil, "\nPPid:\t%d\n", os.Getpid()))
		if !ours || len(args) < 2 || filepath.Base(string(args[0])) != "iperf3" {
			continue
		}
		end := string(args[1]) // as Lab.Iperf starts them
		cpu := map[string]int{"-c": want.Sender, "-s": want.Receiver}[end]
		pid, _ := strconv.Atoi(filepath.Base(dir))
		var set unix.CPUSet
		bound[end] = unix.SchedGetaffinity(pid, &set) == nil && set.Count() == 1 && set.IsSet(cpu)
	}
	return bound["-c"] && bound["-s"]
}
