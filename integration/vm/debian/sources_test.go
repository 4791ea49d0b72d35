package debian

import (
	"os"
	"path/filepath"
	"testing"
)

// writeEtc makes an /etc.
func writeEtc(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The places and keys are the machine's, whatever form it has them in; the suites
// are ours, and other archives stay out.
func TestSourcesAreTheMachinesWithOurSuites(t *testing.T) {
	const release = "PRETTY_NAME=\"Debian 13\"\nID=debian\nVERSION_CODENAME=trixie\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"deb822", map[string]string{
			"os-release": release,
			"apt/sources.list.d/a.sources": "# comment\nTypes: deb\nURIs: http://other.example/x\nSuites: trixie-extra\n" +
				"Components: main\n\nTypes: deb deb-src\nURIs: http://mirror.example/debian\n" +
				"Suites: trixie trixie-updates\nComponents: main contrib\nSigned-By:\n -----BEGIN KEY-----\n .\n abc\n\n" +
				"Enabled: no\nTypes: deb\nURIs: http://off.example/\nSuites: trixie-security\nComponents: main\n",
			"apt/sources.list.d/b.sources": "Types: deb\nURIs: http://mirror.example/security\nSuites: trixie-security\n" +
				"Components: main\nSigned-By: /usr/share/keyrings/debian.gpg\n",
		}, "Types: deb\nURIs: http://mirror.example/debian\nSuites: " + Suites +
			"\nComponents: main\nSigned-By: \n -----BEGIN KEY-----\n .\n abc\n\n" +
			"Types: deb\nURIs: http://mirror.example/security\nSuites: " + SecuritySuites +
			"\nComponents: main\nSigned-By: /usr/share/keyrings/debian.gpg\n\n"},
		{"one line", map[string]string{
			"os-release": release,
			"apt/sources.list": "# deb http://no.example/ trixie main\ndeb-src http://no.example/ trixie main\n" +
				"deb [arch=amd64 signed-by=/k/a.gpg,/k/b.gpg] http://mirror.example/debian trixie main # here\n",
		}, "Types: deb\nURIs: http://mirror.example/debian\nSuites: " + Suites +
			"\nComponents: main\nSigned-By: /k/a.gpg /k/b.gpg\n\n"},
		{"trusted keys", map[string]string{
			"os-release":                release,
			"apt/sources.list.d/x.list": "deb http://mirror.example/debian trixie main\n",
		}, "Types: deb\nURIs: http://mirror.example/debian\nSuites: " + Suites + "\nComponents: main\n\n"},
	} {
		etc := writeEtc(t, c.files)
		machine, err := machineSources(etc)
		if err != nil {
			t.Fatal(err)
		}
		name, err := codename(etc)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ours(machine, name); err != nil || got != c.want {
			t.Errorf("%s: %v, got\n%s\nwant\n%s", c.name, err, got, c.want)
		}
	}
}

func TestSourcesOfOtherMachinesAreRefused(t *testing.T) {
	if got, err := ours([]source{{suites: []string{"trixie"}, components: []string{"contrib"}}}, "trixie"); err == nil {
		t.Errorf("no source of main: %q", got)
	}
	for _, text := range []string{"ID=ubuntu\nVERSION_CODENAME=noble\n", "ID=debian\n"} {
		if got, err := codename(writeEtc(t, map[string]string{"os-release": text})); err == nil {
			t.Errorf("%q: taken for %s", text, got)
		}
	}
}
