package repo

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sluice/vnet"
)

// dropConsts are the constants of vnet.Drop in the order of their values, from Keep on, each with
// its trailing comment.
func dropConsts(t *testing.T) (names, comments []string) {
	t.Helper()
	for _, s := range sources(t) {
		if s.name != "vnet/drop.go" {
			continue
		}
		for _, decl := range s.file.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok || len(d.Specs) == 0 {
				continue
			}
			if first, ok := d.Specs[0].(*ast.ValueSpec); !ok || first.Names[0].Name != "Keep" {
				continue
			}
			for _, spec := range d.Specs {
				v := spec.(*ast.ValueSpec)
				names = append(names, v.Names[0].Name)
				comments = append(comments, v.Comment.Text())
			}
			return names, comments
		}
	}
	t.Fatal("vnet/drop.go does not declare the drop reasons")
	return nil, nil
}

func TestDropNamesAreCompleteAndUnique(t *testing.T) {
	names, _ := dropConsts(t)
	last := len(names) - 1
	if names[last] != "NumDrops" || last != int(vnet.NumDrops) {
		t.Fatalf("%d constants end with %s, and NumDrops is %d", len(names), names[last], vnet.NumDrops)
	}
	seen := map[string]string{}
	for i, name := range names[:last] {
		text := vnet.Drop(i).String()
		if other, ok := seen[text]; ok {
			t.Errorf("%s and %s are both %q", other, name, text)
		}
		seen[text] = name
		if want := snake(strings.TrimPrefix(name, "Drop")); text != want {
			t.Errorf("%s is %q, want %q", name, text, want)
		}
	}
	if s := vnet.NumDrops.String(); s != "unknown" {
		t.Errorf("what is no reason is %q", s)
	}
}

// snake is a Go name in snake_case. Initialisms stay one word.
func snake(name string) string {
	word := regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`)
	return strings.ToLower(word.ReplaceAllString(name, "${1}${3}_${2}${4}"))
}

// A reason's trailing comment says on which side it is counted, and why frames are dropped for it.
func TestDropsAreDocumentedWithTheirSide(t *testing.T) {
	names, comments := dropConsts(t)
	for i, name := range names[:len(names)-1] {
		d := vnet.Drop(i)
		if d == vnet.Keep {
			if d.Ingress() {
				t.Error("what is kept is counted as a drop")
			}
			continue
		}
		side := "egress: "
		if d.Ingress() {
			side = "ingress: "
		}
		if c := strings.TrimSpace(comments[i]); !strings.HasPrefix(c, side) || len(c) < len(side)+5 {
			t.Errorf("%s is counted at %sbut says %q", name, side, c)
		}
	}
}

// The README explains every reason in the table of its side, and only these.
func TestREADMEExplainsEveryDrop(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	for _, side := range []struct {
		name    string
		ingress bool
	}{{"ingress", true}, {"egress", false}} {
		_, table, ok := strings.Cut(string(text), "\n| reason at the "+side.name+" |")
		if !ok {
			t.Errorf("README has no table of the reasons at the %s", side.name)
			continue
		}
		table, _, _ = strings.Cut(table, "\n\n")
		var explained []string
		for line := range strings.Lines(table) {
			if cells := strings.Split(line, "|"); len(cells) > 2 && cells[0] == "" {
				for _, name := range quoted.FindAllStringSubmatch(cells[1], -1) {
					explained = append(explained, name[1])
				}
			}
		}
		var want []string
		for d := vnet.Keep + 1; d < vnet.NumDrops; d++ {
			if d.Ingress() == side.ingress {
				want = append(want, d.String())
			}
		}
		slices.Sort(explained)
		if slices.Sort(want); !slices.Equal(explained, want) {
			t.Errorf("README explains at the %s\n%v, want\n%v", side.name, explained, want)
		}
	}
}
