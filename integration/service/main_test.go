package service

import (
	"os"
	"testing"

	"sluice/integration/netns/netnstest"
)

func TestMain(m *testing.M) { os.Exit(netnstest.Main(m)) }
