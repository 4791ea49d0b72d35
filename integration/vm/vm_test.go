package vm_test

import (
	"strings"
	"testing"
	"time"

	"sluice/integration/vm"
)

// Each kernel boots, is the one that was asked for, and runs a command.
func TestKernelsBoot(t *testing.T) {
	for _, series := range []string{"6.1", "6.12", "6.19", "7.0", vm.Newest} {
		t.Run(series, func(t *testing.T) {
			begin := time.Now()
			lab := vm.New(t)
			made := time.Now()
			g := lab.Guest(series)
			started := time.Now()
			g.Up()
			t.Logf("%s: up %.1f s after its start (lab %.1f s, image %.1f s); emulated: %v",
				g.Release(), time.Since(started).Seconds(), made.Sub(begin).Seconds(),
				started.Sub(made).Seconds(), lab.Emulated())
			release := strings.TrimSpace(g.Run("uname", "-r"))
			if release != g.Release() || series != vm.Newest && !strings.HasPrefix(release, series+".") {
				t.Errorf("%s was asked for, %s chosen, %s runs", series, g.Release(), release)
			}
			t.Log(g.Run("sh", "-c", "free -m; ip -d link show dev lo; dmesg | tail -3"))
		})
	}
}
