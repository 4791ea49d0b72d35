package repo

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestModuleCanBeRenamed: in a copy of the tree, scripts/rename-module leaves no old path, the
// result builds and keeps to the arrows, and the renaming can be undone.
func TestModuleCanBeRenamed(t *testing.T) {
	before := map[string][]byte{}
	dir := t.TempDir()
	files(t, func(name string, text []byte, mode fs.FileMode) {
		before[name] = text
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, mode.Perm()); err != nil {
			t.Fatal(err)
		}
	})
	run := func(name string, args ...string) error {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		t.Logf("%s %s\n%s", name, strings.Join(args, " "), out)
		return err
	}
	rename := filepath.Join(dir, "scripts", "rename-module")
	for _, bad := range []string{"", "-x", "/a", "a/", "a//b", "a b", "a|b", "a&b"} {
		if run(rename, bad) == nil {
			t.Errorf("%q is taken for a module path", bad)
		}
	}

	const path = "example.org/some-one/sluice.v2"
	if err := run(rename, path); err != nil {
		t.Fatal(err)
	}
	for name := range before {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		bare := strings.TrimSuffix(module, "/")
		for _, old := range []string{`"` + module, "module " + bare + "\n", "module path is `" + bare + "`"} {
			if bytes.Contains(text, []byte(old)) {
				t.Errorf("%s still has %q", name, old)
			}
		}
	}
	for _, args := range [][]string{
		{"vet", "./vnet/...", "./offload/...", "./dataplane", "./tunio", "./integration/traffic"},
		{"build", "-o", os.DevNull, path + "/cmd/sluice"},
		{"test", "./integration/repo", "-run", "Imports|Commands|Gofmt"},
	} {
		if err := run("go", args...); err != nil {
			t.Error(err)
		}
	}

	if err := run(rename, strings.TrimSuffix(module, "/")); err != nil {
		t.Fatal(err)
	}
	for name, want := range before {
		if got, _ := os.ReadFile(filepath.Join(dir, name)); !bytes.Equal(got, want) {
			t.Errorf("%s is not what it was", name)
		}
	}
}
