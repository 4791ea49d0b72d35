package initramfs

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
)

// libraryDir is where shared libraries go: the loader's own default, through lib.
const libraryDir = "usr/lib/x86_64-linux-gnu"

// Program copies a program, and the shared libraries that it needs, recursively,
// from the first of dirs that has them. A script or a static program needs none.
func (i *Image) Program(name, file string, dirs []string) error {
	if err := i.File(name, file); err != nil {
		return err
	}
	return i.libraries(file, dirs)
}

// Library copies a shared library that is loaded by its name at run time only.
func (i *Image) Library(name string, dirs []string) error {
	as := path.Join(libraryDir, name)
	if i.Has(as) {
		return nil
	}
	for _, dir := range dirs {
		file := filepath.Join(dir, name)
		err := i.File(as, file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		return i.libraries(file, dirs)
	}
	return fmt.Errorf("initramfs: library %s: %w", name, os.ErrNotExist)
}

// libraries copies what file needs.
func (i *Image) libraries(file string, dirs []string) error {
	f, err := elf.Open(file)
	if bad := (*elf.FormatError)(nil); errors.As(err, &bad) || errors.Is(err, io.EOF) {
		return nil // a script, perhaps a short one
	}
	if err != nil {
		return fmt.Errorf("initramfs: %w", err)
	}
	defer f.Close()
	needed, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("initramfs: %s: %w", file, err)
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		text := make([]byte, p.Filesz)
		if _, err := p.ReadAt(text, 0); err != nil {
			return fmt.Errorf("initramfs: %s: %w", file, err)
		}
		loader := string(text[:len(text)-1]) // ends with NUL
		needed = append(needed, path.Base(loader))
		if path.Dir(loader) == "/lib64" { // a link to usr/lib64
			i.Link("usr/lib64/"+path.Base(loader), "../../"+path.Join(libraryDir, path.Base(loader)))
		}
	}
	for _, name := range needed {
		if err := i.Library(name, dirs); err != nil {
			return fmt.Errorf("%w, needed by %s", err, file)
		}
	}
	return nil
}
