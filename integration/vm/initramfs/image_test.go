package initramfs

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// file is what a reader finds in an archive.
type file struct {
	mode string // octal
	text string
}

// unpack reads an archive as init/initramfs.c does.
func unpack(t *testing.T, b []byte) map[string]file {
	t.Helper()
	files, last := map[string]file{}, ""
	for at := 0; at < len(b); {
		header := b[at : at+110]
		if string(header[:6]) != "070701" {
			t.Fatalf("at %d: %q is no header", at, header)
		}
		field := func(n int) int {
			v, err := strconv.ParseUint(string(header[6+8*n:][:8]), 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			return int(v)
		}
		name := string(b[at+110 : at+110+field(11)-1])
		at = (at + 110 + field(11) + 3) &^ 3
		f := file{fmt.Sprintf("%o", field(1)), string(b[at : at+field(6)])}
		at = (at + field(6) + 3) &^ 3
		if name == "TRAILER!!!" {
			if at != len(b) {
				t.Errorf("%d bytes follow the end", len(b)-at)
			}
			return files
		}
		if name <= last {
			t.Errorf("%s comes behind %s", name, last)
		}
		if dir := filepath.Dir(name); dir != "." && files[dir].mode != "40755" {
			t.Errorf("%s comes before its directory", name)
		}
		files[name], last = f, name
	}
	t.Fatal("no end")
	return nil
}

func write(t *testing.T, i *Image) map[string]file {
	t.Helper()
	var b bytes.Buffer
	n, err := i.WriteTo(&b)
	if err != nil || n != int64(b.Len()) {
		t.Fatalf("%d bytes of %d, %v", n, b.Len(), err)
	}
	return unpack(t, b.Bytes())
}

func TestArchiveHasWhatWasPutIn(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o750); err != nil {
		t.Fatal(err)
	}
	i := New()
	i.Text("/etc/deep/text", []byte("a\x00b"))
	i.Link("lib", "usr/lib")
	if err := i.Program("usr/bin/script", script, nil); err != nil {
		t.Fatal(err)
	}
	i.Executable("init", nil)
	want := map[string]file{
		"dev": {"40755", ""}, "dev/console": {"20600", ""},
		"etc": {"40755", ""}, "etc/deep": {"40755", ""}, "etc/deep/text": {"100644", "a\x00b"},
		"lib": {"120777", "usr/lib"}, "init": {"100755", ""},
		"usr": {"40755", ""}, "usr/bin": {"40755", ""}, "usr/bin/script": {"100755", "#!/bin/sh\n"},
	}
	if got := write(t, i); !maps.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if err := os.Remove(script); err != nil {
		t.Fatal(err)
	}
	if _, err := i.WriteTo(&bytes.Buffer{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that has gone: %v", err)
	}
}

// The libraries of a program come with it, those of libraries too, and its loader.
func TestProgramBringsItsLibraries(t *testing.T) {
	ls, err := exec.LookPath("ls")
	if err != nil {
		t.Skip(err)
	}
	if ls, err = filepath.EvalSymlinks(ls); err != nil {
		t.Fatal(err)
	}
	i := New()
	dirs := []string{filepath.Join(t.TempDir(), "empty"), "/lib/x86_64-linux-gnu", "/lib64"}
	if err := i.Program("usr/bin/ls", ls, dirs); errors.Is(err, os.ErrNotExist) {
		t.Skipf("this machine keeps its libraries elsewhere: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{libraryDir + "/libc.so.6", libraryDir + "/ld-linux-x86-64.so.2"} {
		if !i.Has(name) {
			t.Errorf("no %s", name)
		}
	}
	if err := New().Program("usr/bin/ls", ls, dirs[:1]); !errors.Is(err, os.ErrNotExist) ||
		!strings.Contains(err.Error(), "needed by "+ls) {
		t.Errorf("without libraries: %v", err)
	}
}

// A module comes with those that it needs, and is loaded after them; tables of
// modprobe tell of nothing that is not there.
func TestModulesComeWithWhatTheyNeed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "6.1.0")
	for name, text := range map[string]string{
		"modules.dep": "kernel/a.ko: kernel/net/b-c.ko kernel/d.ko\nkernel/net/b-c.ko: kernel/d.ko\n" +
			"kernel/d.ko:\nkernel/other.ko:\n",
		"modules.builtin": "kernel/drivers/in-side.ko\n",
		"modules.alias":   "# comment\nalias net-pf-1 a\nalias x-* b_c\nalias y other\n",
		"modules.symbols": "alias symbol:s other\n",
		"modules.devname": "# comment\na net/a c10:200\nother other c10:1\n",
		"kernel/a.ko":     "A", "kernel/net/b-c.ko": "B", "kernel/d.ko": "D", "kernel/other.ko": "O",
	} {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := OpenModules(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"a": {"kernel/d.ko", "kernel/net/b-c.ko", "kernel/a.ko"}, "b_c": {"kernel/d.ko", "kernel/net/b-c.ko"},
		"b-c": {"kernel/d.ko", "kernel/net/b-c.ko"}, "in_side": nil,
	} {
		if got, err := m.Load(name); err != nil || !slices.Equal(got, want) {
			t.Errorf("load %s: %q, %v; want %q", name, got, err, want)
		}
	}
	if _, err := m.Load("none"); !errors.Is(err, ErrNoModule) {
		t.Errorf("load none: %v", err)
	}

	i := New()
	if err := i.Modules(m, []string{"a", "none", "in-side", "b-c"}); err != nil {
		t.Fatal(err)
	}
	got := write(t, i)
	const at = "usr/lib/modules/6.1.0/"
	for name, want := range map[string]string{
		"modules.dep":   "kernel/a.ko: kernel/net/b-c.ko kernel/d.ko\nkernel/d.ko: \nkernel/net/b-c.ko: kernel/d.ko\n",
		"modules.alias": "alias net-pf-1 a\nalias x-* b_c\n", "modules.symbols": "",
		"modules.devname": "a net/a c10:200\n",
		"kernel/a.ko":     "A", "kernel/net/b-c.ko": "B", "kernel/d.ko": "D", "kernel/other.ko": "",
	} {
		if got[at+name].text != want {
			t.Errorf("%s: got %q, want %q", name, got[at+name].text, want)
		}
	}
}
