package dataplane

import (
	"os"
	"testing"

	"sluice/integration/leaktest"
)

// TestMain fails the run if tests leave descriptors or goroutines behind.
func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }
