package repo

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// module is the path in front of our own packages.
const module = "sluice/"

// source is one Go file, whatever its build constraints are.
type source struct {
	name string // from the repository's root
	text []byte
	file *ast.File
	fset *token.FileSet
}

func (s *source) test() bool  { return strings.HasSuffix(s.name, "_test.go") }
func (s *source) dir() string { return path.Dir(s.name) }

// imports are the paths that s imports.
func (s *source) imports() (paths []string) {
	for _, i := range s.file.Imports {
		paths = append(paths, strings.Trim(i.Path.Value, `"`))
	}
	return paths
}

// at is the position of n, from the repository's root.
func (s *source) at(n ast.Node) string {
	p := s.fset.Position(n.Pos())
	return p.String()
}

// root is the directory that holds go.mod.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above the tests")
		}
		dir = up
	}
}

// files calls f with every file of the repository. Directories of git and of the build are left
// out.
func files(t *testing.T, f func(name string, text []byte, mode fs.FileMode)) {
	t.Helper()
	tree := os.DirFS(root(t))
	n := 0
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == ".git" || name == "bin"):
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		n++
		f(name, text, info.Mode())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 50 {
		t.Fatalf("only %d files: this is not the repository", n)
	}
}

// sources parses every Go file.
func sources(t *testing.T) (all []*source) {
	t.Helper()
	files(t, func(name string, text []byte, _ fs.FileMode) {
		if !strings.HasSuffix(name, ".go") {
			return
		}
		s := &source{name: name, text: text, fset: token.NewFileSet()}
		var err error
		if s.file, err = parser.ParseFile(s.fset, name, text, parser.ParseComments); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	})
	return all
}
