package debian

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// Suites are the sources of everything: 6.1 is bookworm's kernel, 6.12 and QEMU 10 are in its
	// backports (its own QEMU 7.2 has no host_uso), and the newest kernels are in the next
	// release's backports.
	Suites = "bookworm bookworm-updates bookworm-backports trixie-backports"
	// SecuritySuites are the suites of the security archive.
	SecuritySuites = "bookworm-security"
	// userlandSuite is preferred for the userland.
	userlandSuite = "bookworm-backports"

	// listsAge is how old the lists of packages may be.
	listsAge = 7 * 24 * time.Hour
	// listsRetry is how soon to try again after a failure.
	listsRetry = time.Hour
	// listsLimit is how long reading them may take. apt itself waits longer than that for
	// name servers that do not answer.
	listsLimit = 3 * time.Minute
)

// noLists keeps, by the state's directory, why this process found no lists of packages. Without it,
// each test would wait for the archive again.
var noLists sync.Map

// apt is a private state of apt. The caller holds the cache's lock.
type apt struct {
	dir  string
	conf string // apt.conf(5), read after the machine's own
}

// apt sets the state up.
func (c *Cache) apt() (*apt, error) {
	a := &apt{dir: filepath.Join(c.dir, "apt")}
	a.conf = filepath.Join(a.dir, "apt.conf")
	name, err := codename("/etc")
	if err != nil {
		return nil, unavailable("sources", err)
	}
	machine, err := machineSources("/etc")
	if err != nil {
		return nil, unavailable("sources", err)
	}
	sources, err := ours(machine, name)
	if err != nil {
		return nil, unavailable("sources", err)
	}

	// The status is empty, so that packages are resolved as on an empty machine. The machine's
	// hooks concern its own state. The lists contain only packages.
	conf := fmt.Sprintf(`Dir::State %[1]q;
Dir::State::lists %[2]q;
Dir::State::status %[3]q;
Dir::Cache %[4]q;
Dir::Etc::SourceList %[5]q;
Dir::Etc::SourceParts "-";
Dir::Etc::Preferences "-";
Dir::Etc::PreferencesParts "-";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Pre-Invoke;
#clear DPkg::Post-Invoke;
#clear Acquire::IndexTargets::deb::DEP-11;
APT::Architecture %[6]q;
APT::Architectures { %[6]q; };
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
`, a.dir, filepath.Join(a.dir, "lists"), filepath.Join(a.dir, "status"),
		filepath.Join(a.dir, "cache"), filepath.Join(a.dir, "our.sources"), arch)

	for _, dir := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(a.dir, dir), 0o755); err != nil {
			return nil, fmt.Errorf("debian: apt: %w", err)
		}
	}
	for file, text := range map[string]string{
		a.conf:                              conf,
		filepath.Join(a.dir, "our.sources"): sources,
		filepath.Join(a.dir, "status"):      "",
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return nil, fmt.Errorf("debian: apt: %w", err)
		}
	}
	return a, nil
}

// run runs a program of apt's in dir and returns its standard output.
func (a *apt) run(dir, program string, args ...string) (string, error) {
	return a.runWithin(context.Background(), dir, program, args...)
}

// runWithin is run, until ctx ends.
func (a *apt) runWithin(
	ctx context.Context, dir, program string, args ...string,
) (string, error) {
	cmd := exec.CommandContext(ctx, program, append([]string{"-c", a.conf, "-q"}, args...)...)
	cmd.WaitDelay = 5 * time.Second // its children also have the pipes
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return "", unavailable(program+" "+args[0],
			fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String())))
	}
	return stdout.String(), nil
}

// update reads the lists of packages if they are older than age. Old lists are better than none.
func (a *apt) update(age time.Duration) error {
	stamp := filepath.Join(a.dir, "updated")
	info, err := os.Stat(stamp)
	if err == nil && time.Since(info.ModTime()) < age {
		return nil
	}
	if why, known := noLists.Load(a.dir); known && err != nil {
		return why.(error)
	}
	ctx, cancel := context.WithTimeout(context.Background(), listsLimit)
	defer cancel()
	_, updateErr := a.runWithin(ctx, "", "apt-get", "update", "--error-on=any")
	if updateErr != nil {
		if err != nil { // there never were any
			noLists.Store(a.dir, updateErr)
			return updateErr
		}
		later := time.Now().Add(listsRetry - listsAge)
		return os.Chtimes(stamp, later, later)
	}
	return os.WriteFile(stamp, nil, 0o644)
}

// fetch calls get to download packages, and unpacks them into dir. If the archive no longer has
// what the lists say, they are read again.
func (a *apt) fetch(dir string, get func() error) error {
	archives := filepath.Join(a.dir, "cache", "archives")
	old, err := filepath.Glob(filepath.Join(archives, "*.deb"))
	if err != nil {
		return err
	}
	for _, deb := range old { // left by a killed process, not for dir
		if err := os.Remove(deb); err != nil {
			return err
		}
	}
	err = get()
	if err != nil && a.update(0) == nil {
		err = get()
	}
	if err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(archives, "*.deb"))
	if err != nil || len(debs) == 0 {
		return errors.Join(err, fmt.Errorf("debian: apt left nothing in %s", archives))
	}
	var names strings.Builder
	for _, deb := range debs {
		if out, err := exec.Command("dpkg-deb", "-x", deb, dir).CombinedOutput(); err != nil {
			return fmt.Errorf("debian: unpack %s: %w: %s", filepath.Base(deb), err, out)
		}
		fmt.Fprintln(&names, strings.TrimSuffix(filepath.Base(deb), ".deb"))
		if err := os.Remove(deb); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "packages"), []byte(names.String()), 0o644)
}

// download downloads just these packages.
func (a *apt) download(packages []string) error {
	_, err := a.run(filepath.Join(a.dir, "cache", "archives"), "apt-get",
		append([]string{"download"}, packages...)...)
	return err
}

// downloadAll downloads these packages and everything that they depend on.
func (a *apt) downloadAll(suite string, packages []string) error {
	_, err := a.run("", "apt-get", append([]string{"install", "--download-only", "--yes",
		"--target-release", suite}, packages...)...)
	return err
}

// packages are the names of all packages of the archive.
func (a *apt) packages() ([]string, error) {
	out, err := a.run("", "apt-cache", "pkgnames")
	return strings.Fields(out), err
}
