package repo

import (
	"bytes"
	"go/ast"
	"go/format"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestGofmt(t *testing.T) {
	for _, s := range sources(t) {
		want, err := format.Source(s.text)
		if err != nil {
			t.Errorf("%s: %v", s.name, err)
		} else if !bytes.Equal(s.text, want) {
			t.Errorf("%s: run gofmt", s.name)
		}
	}
}

// Lines aim at 100 columns. This catches lines that are much longer. A tab counts as two, string
// literals do not count, and test tables may be wider.
func TestLinesAreShort(t *testing.T) {
	literal := regexp.MustCompile(`"(\\.|[^"\\])*"|` + "`[^`]*`")
	for _, s := range sources(t) {
		most := 120
		if s.test() {
			most = 140
		}
		for i, line := range strings.Split(string(s.text), "\n") {
			line = strings.ReplaceAll(literal.ReplaceAllString(line, `""`), "\t", "  ")
			if n := utf8.RuneCountInString(line); n > most {
				t.Errorf("%s:%d: %d columns", s.name, i+1, n)
			}
		}
	}
}

// sections are the parts that a package's documentation must have, where they apply. Packages on a
// frame's way have all of them.
var sections = map[string][]string{
	"vnet":              {"Units", "Ownership", "Concurrency", "Trust"},
	"offload":           {"Units", "Ownership", "Concurrency", "Trust"},
	"dataplane":         {"Units", "Ownership", "Concurrency", "Trust"},
	"tunio":             {"Units", "Ownership", "Concurrency", "Trust"},
	"tunio/link":        {"Units", "Ownership", "Concurrency"},
	"dataplane/summary": {"Units"},

	"cmd/sluice/internal/config": {"Units", "Ownership", "Concurrency", "Trust"},
}

func TestEveryPackageIsDocumentedOnce(t *testing.T) {
	docs := map[string][]string{} // by directory
	tests := map[string]bool{}    // directories that hold only tests
	for _, s := range sources(t) {
		only, seen := tests[s.dir()]
		tests[s.dir()] = (only || !seen) && s.test()
		if s.file.Doc != nil {
			docs[s.dir()] = append(docs[s.dir()], s.file.Doc.Text())
		}
	}
	for dir := range tests {
		if n := len(docs[dir]); n != 1 {
			t.Errorf("%s has %d package comments, want 1", dir, n)
			continue
		}
		doc := docs[dir][0]
		for _, want := range sections[dir] {
			if !strings.Contains(doc, "\n# "+want+"\n") {
				t.Errorf("%s: the package comment has no section # %s", dir, want)
			}
		}
		delete(docs, dir)
	}
	for dir := range sections {
		if _, ok := tests[dir]; !ok {
			t.Errorf("there is no package %s", dir)
		}
	}
}

// Every exported name has a sentence. For one of a group, such as constants and fields, the group's
// comment or a comment after it is enough.
func TestExportedNamesAreDocumented(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() || s.file.Name.Name == "main" {
			continue
		}
		for _, decl := range s.file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Doc == nil && d.Name.IsExported() && !ownMethod(d) {
					t.Errorf("%s: %s has no comment", s.at(d), d.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					for _, name := range undocumented(d, spec) {
						t.Errorf("%s: %s has no comment", s.at(spec), name)
					}
				}
			}
		}
	}
}

// ownMethod reports whether d is a method of an unexported type, or one whose name is enough.
func ownMethod(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return false
	}
	if slices.Contains([]string{"String", "Error", "Unwrap", "Is"}, d.Name.Name) {
		return true
	}
	recv := d.Recv.List[0].Type
	if p, ok := recv.(*ast.StarExpr); ok {
		recv = p.X
	}
	id, ok := recv.(*ast.Ident)
	return ok && !id.IsExported()
}

// undocumented are the exported names of spec, part of d, that have no comment.
func undocumented(d *ast.GenDecl, spec ast.Spec) (names []string) {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		if s.Name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
			names = append(names, s.Name.Name)
		}
	case *ast.ValueSpec:
		if d.Doc != nil || s.Doc != nil || s.Comment != nil {
			return nil
		}
		for _, n := range s.Names {
			if n.IsExported() {
				names = append(names, n.Name)
			}
		}
	}
	return names
}

// banned is what no file may contain, and why. The patterns are split so that this file does not
// match them.
var banned = []struct {
	pattern *regexp.Regexp
	why     string
	only    string // suffix of the files' names; all of them when empty
}{
	{regexp.MustCompile(`(^|[^a-z.])/(work|root|home)` + `/[a-z]`), "a path of somebody's machine", ""},
	{regexp.MustCompile(`(?i)(proxy|sum)\.golang` + `\.org|py` + `pi\.org|npm` + `js\.(org|com)|deb\.` + `debian\.org`),
		"a package registry's host", ""},
	{regexp.MustCompile(`(DESIGN|STYLE)` + `\.md`), "a document that is not in the repository", ".go"},
	{regexp.MustCompile(`(?i)\bissue` + ` #?\d`), "an issue: say what it was about", ".go"},
	{regexp.MustCompile(`\b(FIX` + `ME|XX` + `X|HA` + `CK)\b`), "a note to oneself", ".go"},
	{regexp.MustCompile(`(?i)\b(t?here|where)(by|from|in|of|to|upon|with)\b`), archaic, ""},
	{regexp.MustCompile(`(?i)\b(shal[l]|hithert[o]|hencefort[h]|forthwit[h]|albei[t]|whils[t]|amongs[t]|unt[o])\b`),
		archaic, ""},
	{regexp.MustCompile(`(?i)\b(stead o[f]|for want o[f]|thus fa[r]|to and fr[o]|as good as non[e])\b`), archaic, ""},
}

// archaic is why an old word or turn is banned: readers of other languages do not know it, and
// there is a plain one ("of it", "by which", "must", "instead of", "for lack of").
const archaic = "an archaic turn: say it in plain modern English"

func TestNoFileContainsWhatIsNotOurs(t *testing.T) {
	files(t, func(name string, text []byte, _ fs.FileMode) {
		if path.Base(name) == "go.sum" {
			return
		}
		for _, b := range banned {
			if !strings.HasSuffix(name, b.only) {
				continue
			}
			if loc := b.pattern.FindIndex(text); loc != nil {
				line := 1 + bytes.Count(text[:loc[0]], []byte("\n"))
				t.Errorf("%s:%d: %q: %s", name, line, text[loc[0]:loc[1]], b.why)
			}
		}
	})
}

// Only text is kept, and only scripts can be run.
func TestFilesAreText(t *testing.T) {
	const longest = 256 << 10
	files(t, func(name string, text []byte, mode fs.FileMode) {
		script := strings.HasPrefix(name, "scripts/") || strings.HasPrefix(name, ".ci/")
		switch {
		case !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0:
			t.Errorf("%s is not text", name)
		case len(text) > longest:
			t.Errorf("%s has %d bytes", name, len(text))
		case !mode.IsRegular():
			t.Errorf("%s is no regular file", name)
		case mode&0o111 != 0 && !(script && bytes.HasPrefix(text, []byte("#!"))):
			t.Errorf("%s can be run, and is no script", name)
		case len(text) > 0 && text[len(text)-1] != '\n':
			t.Errorf("%s does not end with a newline", name)
		}
	})
}

// A skipped test says why.
func TestSkipsAreExplained(t *testing.T) {
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			switch {
			case sel.Sel.Name == "SkipNow",
				sel.Sel.Name == "Skip" && len(call.Args) == 0 && s.test():
				t.Errorf("%s: a skip without a reason", s.at(call))
			}
			return true
		})
	}
}
