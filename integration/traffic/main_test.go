package traffic

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/integration/leaktest"
	"sluice/integration/netns/netnstest"
)

// TestMain fails the run if tests leave descriptors or namespaces behind.
func TestMain(m *testing.M) {
	before := belongings()
	code := netnstest.Main(m)
	var left []string
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		left = slices.DeleteFunc(belongings(), func(s string) bool {
			return slices.Contains(before, s)
		})
		if len(left) == 0 || time.Now().After(end) {
			break
		}
	}
	if len(left) > 0 {
		fmt.Fprintf(os.Stderr, "left behind: %s\n", strings.Join(left, ", "))
		code = max(code, 1)
	}
	os.Exit(code)
}

// belongings names what a test may leave behind.
func belongings() []string {
	all := leaktest.OpenFiles()
	// Other processes' namespaces are not this one's to count, and no more are the netdevs
	// outside of namespaces: whatever these tests make is in one of theirs.
	names, _ := filepath.Glob(fmt.Sprintf("/run/netns/sluice-%d-*", os.Getpid()))
	return append(all, names...)
}
