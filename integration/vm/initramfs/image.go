package initramfs

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// Image is a file system that is being built. Names in it are slash-separated paths from its root,
// without a leading slash.
type Image struct {
	entries map[string]entry
}

// File types in a mode (include/uapi/linux/stat.h).
const (
	typeDir  = 0o040000
	typeFile = 0o100000
	typeLink = 0o120000
	typeChar = 0o020000
)

// entry is one file. Its content is text, or that of the host's file.
type entry struct {
	mode         uint32
	text         []byte
	file         string
	major, minor uint32 // of a device
}

// New makes an image with the root, and with the console, on which the kernel opens init's standard
// streams before anything is mounted.
func New() *Image {
	i := &Image{map[string]entry{}}
	i.Dir("dev")
	i.entries["dev/console"] = entry{mode: typeChar | 0o600, major: 5, minor: 1}
	return i
}

// add adds e and the directories above it. A link to a directory stays a link: use names that do
// not go through it.
func (i *Image) add(name string, e entry) {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if _, ok := i.entries[dir]; !ok {
			i.entries[dir] = entry{mode: typeDir | 0o755}
		}
	}
	i.entries[name] = e
}

// Has reports whether the name exists.
func (i *Image) Has(name string) bool { _, ok := i.entries[name]; return ok }

// Dir makes a directory.
func (i *Image) Dir(name string) { i.add(name, entry{mode: typeDir | 0o755}) }

// Text makes a file with the given contents.
func (i *Image) Text(name string, text []byte) {
	i.add(name, entry{mode: typeFile | 0o644, text: text})
}

// Executable makes a program with the given contents.
func (i *Image) Executable(name string, text []byte) {
	i.add(name, entry{mode: typeFile | 0o755, text: text})
}

// Link makes a symbolic link.
func (i *Image) Link(name, target string) {
	i.add(name, entry{mode: typeLink | 0o777, text: []byte(target)})
}

// File copies a file of the host. The copy is executable if the original is. WriteTo reads it.
func (i *Image) File(name, file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return fmt.Errorf("initramfs: %w", err)
	}
	mode := uint32(typeFile | 0o644)
	if info.Mode()&0o111 != 0 {
		mode |= 0o111
	}
	i.add(name, entry{mode: mode, file: file})
	return nil
}

// WriteTo writes the archive.
func (i *Image) WriteTo(to io.Writer) (int64, error) {
	w := &writer{w: bufio.NewWriterSize(to, 1<<20)}
	// Sorted, so a directory comes before its content.
	for _, name := range slices.Sorted(maps.Keys(i.entries)) {
		w.entry(name, i.entries[name])
	}
	w.entry("TRAILER!!!", entry{})
	if w.err == nil {
		w.err = w.w.Flush()
	}
	if w.err != nil {
		return w.n, fmt.Errorf("initramfs: %w", w.err)
	}
	return w.n, nil
}

// writer writes cpio entries until its first error.
type writer struct {
	w     *bufio.Writer
	n     int64
	inode uint32
	err   error
}

func (w *writer) entry(name string, e entry) {
	size, contents := int64(len(e.text)), io.Reader(bytes.NewReader(e.text))
	if e.file != "" && w.err == nil {
		f, err := os.Open(e.file)
		if err != nil {
			w.err = err
			return
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			w.err = err
			return
		}
		size, contents = info.Size(), io.LimitReader(f, info.Size())
	}
	if size > 1<<32-1 {
		w.err = fmt.Errorf("%s: %d bytes do not fit in the form", name, size)
		return
	}

	w.inode++
	links := uint32(1)
	if e.mode&typeDir != 0 && e.mode&typeFile == 0 {
		links = 2
	}
	// ino, mode, uid, gid, nlink, mtime, filesize, the device's major and minor,
	// those of a device file, namesize with its NUL, and a checksum that this form
	// leaves 0.
	header := []byte("070701")
	for _, v := range []uint32{
		w.inode, e.mode, 0, 0, links, 0, uint32(size), 0, 0, e.major, e.minor, uint32(len(name) + 1), 0,
	} {
		header = fmt.Appendf(header, "%08X", v)
	}
	w.copy(bytes.NewReader(header), int64(len(header)))
	w.copy(strings.NewReader(name+"\x00"), int64(len(name)+1))
	w.pad()
	w.copy(contents, size)
	w.pad()
}

func (w *writer) copy(r io.Reader, size int64) {
	if w.err != nil {
		return
	}
	n, err := io.Copy(w.w, r)
	w.n += n
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	w.err = err
}

// pad fills up to a multiple of four bytes.
func (w *writer) pad() { n := -w.n & 3; w.copy(bytes.NewReader(make([]byte, n)), n) }
