package debian

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Newest is the series of the archive's newest kernel.
const Newest = "newest"

// Kernel is an unpacked kernel.
type Kernel struct {
	Release string // as uname -r prints it
	Image   string // the file that is booted
	Modules string // its lib/modules/RELEASE
}

// NoKernelError says that the archive has no kernel of a series, or only one with missing parts.
type NoKernelError struct{ Series, Why string }

func (e *NoKernelError) Error() string { return "debian: kernel " + e.Series + ": " + e.Why }

// Kernel is the latest kernel of a series ("6.12", or Newest), from the archive if
// the cache does not have it.
func (c *Cache) Kernel(series string, userland *Userland) (*Kernel, error) {
	release, packages, err := c.findKernel(series)
	if err != nil {
		return nil, err
	}
	dir, err := c.fill(filepath.Join("kernels", release), func(dir string) error {
		a, err := c.apt()
		if err != nil {
			return err
		}
		if err := a.fetch(dir, func() error { return a.download(packages) }); err != nil {
			return err
		}
		return arrange(dir, release, userland)
	})
	if err != nil {
		return nil, err
	}
	return &Kernel{release, filepath.Join(dir, "vmlinuz"), filepath.Join(dir, "lib/modules", release)}, nil
}

// findKernel finds the latest release of a series, and its packages.
func (c *Cache) findKernel(series string) (release string, packages []string, err error) {
	unlock, err := c.lock()
	if err != nil {
		return "", nil, err
	}
	defer unlock()
	a, err := c.apt()
	if err != nil {
		return "", nil, err
	}
	if err := a.update(listsAge); err != nil {
		return "", nil, err
	}
	names, err := a.packages()
	if err != nil {
		return "", nil, err
	}
	return chooseKernel(series, names)
}

// cloudImage matches the packages of kernels for guests; linux-image-cloud-amd64
// and linux-image-6.12-cloud-amd64 are only names for the latest of them.
var cloudImage = regexp.MustCompile(`^linux-image-(\d+\.\d+\.\d+\S*` + cloudSuffix + `)$`)

// cloudSuffix ends the releases of kernels for guests.
const cloudSuffix = "-cloud-" + arch

// chooseKernel picks the latest complete release of a series. Up to 6.18 it is one package. From
// 6.19 on, linux-image-R only depends on linux-binary-R, linux-modules-R and linux-base-R. The
// archive keeps some of these longer than others, since they are built from different sources.
func chooseKernel(series string, names []string) (release string, packages []string, err error) {
	has := map[string]bool{}
	var releases []string
	for _, name := range names {
		has[name] = true
		if m := cloudImage.FindStringSubmatch(name); m != nil {
			if series == Newest || strings.HasPrefix(m[1], series+".") {
				releases = append(releases, m[1])
			}
		}
	}
	if len(releases) == 0 {
		return "", nil, &NoKernelError{series, "the archive has none"}
	}
	slices.SortFunc(releases, func(a, b string) int {
		return slices.Compare(numbers(b), numbers(a)) // the latest first
	})
	for _, r := range releases {
		if !has["linux-binary-"+r] {
			return r, []string{"linux-image-" + r}, nil
		}
		parts := []string{"linux-binary-" + r, "linux-modules-" + r, "linux-base-" + r}
		if !slices.ContainsFunc(parts, func(p string) bool { return !has[p] }) {
			return r, parts, nil
		}
	}
	return "", nil, &NoKernelError{series, fmt.Sprintf(
		"the archive has linux-image-%s, but no longer its modules", releases[0])}
}

// numbers are the numbers in a release, most significant first.
func numbers(release string) (all []int) {
	release = strings.TrimSuffix(release, cloudSuffix)
	for _, n := range regexp.MustCompile(`\d+`).FindAllString(release, -1) {
		i, _ := strconv.Atoi(n)
		all = append(all, i)
	}
	return all
}

// arrange gives the unpacked packages of any kernel the same layout: vmlinuz, and lib/modules with
// modules.dep and plain .ko files.
func arrange(dir, release string, userland *Userland) error {
	modules := filepath.Join(dir, "lib/modules", release)
	if _, err := os.Stat(filepath.Join(dir, "lib")); errors.Is(err, os.ErrNotExist) {
		if err := os.Rename(filepath.Join(dir, "usr/lib"), filepath.Join(dir, "lib")); err != nil {
			return fmt.Errorf("debian: kernel %s: %w", release, err)
		}
	}
	image := filepath.Join(dir, "vmlinuz")
	err := os.Rename(filepath.Join(dir, "boot/vmlinuz-"+release), image)
	if errors.Is(err, os.ErrNotExist) {
		err = os.Rename(filepath.Join(modules, "vmlinuz"), image)
	}
	if err != nil {
		return fmt.Errorf("debian: kernel %s: %w", release, err)
	}

	var compressed []string
	err = filepath.WalkDir(modules, func(file string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(file, ".ko.xz") {
			compressed = append(compressed, file)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("debian: kernel %s: %w", release, err)
	}
	for batch := range slices.Chunk(compressed, 500) { // the command line has a limit
		if err := userland.run("xz", append([]string{"-d"}, batch...)...); err != nil {
			return err
		}
	}
	if err := userland.run("depmod", "-b", dir, release); err != nil {
		return err
	}
	for _, unused := range []string{"boot", "usr"} {
		if err := os.RemoveAll(filepath.Join(dir, unused)); err != nil {
			return err
		}
	}
	return nil
}
