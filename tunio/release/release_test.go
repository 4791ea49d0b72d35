package release

import (
	"os"
	"strings"
	"testing"
)

func TestSince(t *testing.T) {
	for _, c := range []struct {
		release      string
		major, minor int
		want         bool
	}{
		{"6.18.44-amd64", 6, 18, true},
		{"6.18.44-amd64", 6, 19, false},
		{"6.6", 6, 6, true},
		{"6.19-rc3", 6, 19, true},
		{"7.0.1", 6, 19, true},
		{"5.15.0-91-generic", 6, 1, false},
		{"10.0", 7, 3, true},
		{"", 1, 0, false},
		{"unknown", 1, 0, false},
	} {
		if got := Since(c.release, c.major, c.minor); got != c.want {
			t.Errorf("%q is %d.%d or later: %v", c.release, c.major, c.minor, got)
		}
	}
}

func TestCurrentIsTheKernels(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.TrimSpace(string(text)); Current() != want {
		t.Errorf("%s, want %s", Current(), want)
	}
}
