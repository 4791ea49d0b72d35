package config_test

import (
	"slices"
	"testing"

	"sluice/cmd/sluice/internal/config"
)

// TestReferenceHasEveryKey, those of maps by name and of lists too, with help and default.
func TestReferenceHasEveryKey(t *testing.T) {
	var paths []string
	for _, k := range config.Reference() {
		if k.Help == "" {
			t.Errorf("%s has no help", k.Path)
		}
		if k.Path == "ports.NAME.queues" && k.Default != "1" {
			t.Errorf("%s has the default %q", k.Path, k.Default)
		}
		paths = append(paths, k.Path)
	}
	for _, want := range []string{
		"name", "fdb", "fdb.ageing", "fdb.static", "fdb.static[].mac", "ports", "ports.NAME.device", "ports.NAME.queues",
		"mirrors.NAME.to", "metrics", "control.socket",
	} {
		if !slices.Contains(paths, want) {
			t.Errorf("%s is missing in %q", want, paths)
		}
	}
	if !slices.IsSortedFunc([]string{"fdb", "fdb.static", "fdb.static[].mac", "ports"}, func(a, b string) int {
		return slices.Index(paths, a) - slices.Index(paths, b)
	}) {
		t.Errorf("not in their order: %q", paths)
	}
}
