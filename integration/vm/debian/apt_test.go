package debian

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Where the archive cannot be reached a process finds that out once: it may take minutes.
func TestListsAreTriedOnce(t *testing.T) {
	bin, state := t.TempDir(), t.TempDir()
	program := filepath.Join(bin, "apt-get")
	text := "#!/bin/sh\necho >> \"$0.calls\"\necho nobody answers >&2\nexit 100\n"
	if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	a := &apt{dir: state}
	for range 2 {
		if err := a.update(time.Hour); !errors.Is(err, ErrUnavailable) {
			t.Errorf("an archive that does not answer: %v", err)
		}
	}
	if text, err := os.ReadFile(program + ".calls"); len(text) != 1 {
		t.Errorf("apt-get was run %d times: %v", len(text), err)
	}
}

func TestCacheThatCannotBeMade(t *testing.T) {
	t.Setenv("SLUICE_VM_CACHE", "/proc/no such directory")
	if _, err := OpenCache(); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}
