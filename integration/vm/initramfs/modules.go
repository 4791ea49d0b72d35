package initramfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Modules is a kernel's tree of modules, as depmod left it.
type Modules struct {
	dir     string              // lib/modules/RELEASE
	files   map[string]string   // file of a module, from dir
	needs   map[string][]string // by file: those that it needs, in reverse order
	builtin map[string]bool
}

// ErrNoModule says that a kernel has no such module, in its tree or built in.
var ErrNoModule = fmt.Errorf("initramfs: no such module: %w", fs.ErrNotExist)

// moduleName is the name of a file's module. The kernel treats - and _ alike.
func moduleName(file string) string {
	return strings.ReplaceAll(strings.TrimSuffix(path.Base(file), ".ko"), "-", "_")
}

// OpenModules reads the tree in dir, whose base name is the kernel's release.
func OpenModules(dir string) (*Modules, error) {
	m := &Modules{
		dir: dir, files: map[string]string{}, needs: map[string][]string{}, builtin: map[string]bool{},
	}
	dep, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return nil, fmt.Errorf("initramfs: %w", err)
	}
	for line := range strings.Lines(string(dep)) {
		file, needs, ok := strings.Cut(strings.TrimSpace(line), ":")
		if ok {
			m.files[moduleName(file)] = file
			m.needs[file] = strings.Fields(needs)
		}
	}
	builtin, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return nil, fmt.Errorf("initramfs: %w", err)
	}
	for file := range strings.FieldsSeq(string(builtin)) {
		m.builtin[moduleName(file)] = true
	}
	return m, nil
}

// Load lists what must be loaded for a module, in order, with the module last. The files are
// relative to the tree's root. It is empty for a built-in module.
func (m *Modules) Load(name string) ([]string, error) {
	file, ok := m.files[moduleName(name)]
	switch {
	case ok:
		order := slices.Clone(m.needs[file])
		slices.Reverse(order)
		return append(order, file), nil
	case m.builtin[moduleName(name)]:
		return nil, nil
	}
	return nil, fmt.Errorf("%w: %s", ErrNoModule, name)
}

// Modules copies the named modules with everything that they need, and the parts of modprobe's
// tables and of the list of /dev nodes that concern them. It leaves out those of optional that the
// kernel does not have.
func (i *Image) Modules(m *Modules, optional []string) error {
	to := path.Join("usr/lib/modules", filepath.Base(m.dir))
	var files []string
	for _, name := range optional {
		more, err := m.Load(name)
		if err != nil && !errors.Is(err, ErrNoModule) {
			return err
		}
		files = append(files, more...)
	}
	slices.Sort(files)
	files = slices.Compact(files)

	var dep strings.Builder
	in := map[string]bool{}
	for _, file := range files {
		in[moduleName(file)] = true
		fmt.Fprintf(&dep, "%s: %s\n", file, strings.Join(m.needs[file], " "))
		if err := i.File(path.Join(to, file), filepath.Join(m.dir, file)); err != nil {
			return err
		}
	}
	i.Text(path.Join(to, "modules.dep"), []byte(dep.String()))
	for table, column := range map[string]int{
		"modules.alias":   2, // alias PATTERN MODULE
		"modules.symbols": 2, // alias symbol:SYMBOL MODULE
		"modules.devname": 0, // MODULE NODE cMAJOR:MINOR
	} {
		text, err := os.ReadFile(filepath.Join(m.dir, table))
		if err != nil {
			return fmt.Errorf("initramfs: %w", err)
		}
		var some strings.Builder
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) == 3 && in[moduleName(f[column])] {
				some.WriteString(line)
			}
		}
		i.Text(path.Join(to, table), []byte(some.String()))
	}
	return nil
}
