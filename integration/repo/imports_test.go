package repo

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

const (
	sys        = "golang.org/x/sys/unix"
	anyForeign = "*" // any module that is not ours
)

// arrows says what the packages in a folder may import besides the standard library. A path that
// ends with "/..." includes everything below it. An entry also holds for the folders below it that
// have no entry of their own.
var arrows = map[string][]string{
	"vnet":              {},
	"vnet/vnettest":     {module + "vnet"},
	"offload":           {module + "vnet", "gvisor.dev/gvisor/pkg/tcpip/checksum"},
	"dataplane":         {module + "vnet", module + "offload", "golang.org/x/sys/cpu"},
	"dataplane/summary": {},
	"tunio":             {module + "vnet", sys},
	"tunio/tuntest":     {module + "vnet", module + "tunio", sys},
	"tunio/link":        {module + "vnet", module + "tunio/...", anyForeign},
	"tunio/probe":       {module + "vnet", module + "tunio/...", anyForeign},
	"integration":       {module + "vnet/...", module + "dataplane/summary", module + "integration/...", anyForeign},
	"cmd/sluice":        {module + "...", anyForeign},
}

// arrowsOf returns the entry for a folder, or for the nearest folder above it.
func arrowsOf(dir string) ([]string, bool) {
	for ; dir != "."; dir = path.Dir(dir) {
		if a, ok := arrows[dir]; ok {
			return a, true
		}
	}
	return nil, false
}

// standard reports whether the standard library has the package.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".") && !strings.HasPrefix(path, module)
}

func allowed(path string, arrows []string) bool {
	for _, a := range arrows {
		below, tree := strings.CutSuffix(a, "/...")
		if path == a || tree && within(path, below) || a == anyForeign && !strings.HasPrefix(path, module) {
			return true
		}
	}
	return false
}

func TestImportsFollowTheArrows(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		to, ok := arrowsOf(s.dir())
		if !ok {
			t.Errorf("%s: nothing says what %s may import; add it to the arrows", s.name, s.dir())
			continue
		}
		seen[s.dir()] = true
		for _, path := range s.imports() {
			if !standard(path) && !allowed(path, to) {
				t.Errorf("%s imports %s", s.name, path)
			}
		}
	}
	for _, dir := range []string{"vnet", "offload", "dataplane", "tunio", "cmd/sluice"} {
		if !seen[dir] {
			t.Errorf("no package in %s was looked at", dir)
		}
	}
}

// Only commands know both the switch and the devices. Tests that combine the two belong under
// integration.
func TestOnlyCommandsJoinSwitchAndDevices(t *testing.T) {
	joins := map[string][2]bool{}
	for _, s := range sources(t) {
		for _, path := range s.imports() {
			j := joins[s.dir()]
			j[0] = j[0] || within(path, module+"dataplane")
			j[1] = j[1] || within(path, module+"tunio")
			joins[s.dir()] = j
		}
		if within(s.dir(), "dataplane") {
			for _, path := range s.imports() {
				if within(path, module+"tunio") {
					t.Errorf("%s imports %s", s.name, path)
				}
			}
		}
	}
	for dir, j := range joins {
		if j[0] && j[1] && !within(dir, "cmd") && !within(dir, "integration") {
			t.Errorf("%s imports both dataplane and tunio", dir)
		}
	}
}

// within reports whether path is dir or below it.
func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// The packages on a frame's way, and the desired state, make no system call, open nothing and log
// nothing.
func TestPurePackagesStayPure(t *testing.T) {
	impure := []string{"syscall", sys, "os", "os/exec", "net", "log", "log/slog", "io/fs", "testing"}
	pure := []string{"vnet", "offload", "dataplane", "dataplane/summary", "cmd/sluice/internal/config"}
	for _, s := range sources(t) {
		if s.test() || !slices.Contains(pure, s.dir()) {
			continue
		}
		for _, path := range s.imports() {
			if slices.Contains(impure, path) {
				t.Errorf("%s imports %s", s.name, path)
			}
		}
	}
}

// Packages that another project may import have no global state: their package variables are never
// written to.
func TestPurePackagesKeepNoState(t *testing.T) {
	vars := map[string]bool{} // by folder and name
	var pure []*source
	for _, s := range sources(t) {
		if s.test() || s.dir() != "vnet" && s.dir() != "offload" {
			continue
		}
		pure = append(pure, s)
		for _, decl := range s.file.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok || d.Tok != token.VAR {
				continue
			}
			for _, spec := range d.Specs {
				for _, name := range spec.(*ast.ValueSpec).Names {
					vars[s.dir()+" "+name.Name] = true
				}
			}
		}
	}
	if len(vars) == 0 {
		t.Error("no variable was found: vnet has the names of its drops")
	}
	for _, s := range pure {
		ast.Inspect(s.file, func(n ast.Node) bool {
			for _, target := range written(n) {
				if id := base(target); id != nil && vars[s.dir()+" "+id.Name] {
					t.Errorf("%s: %s is written to, or may be", s.at(n), id.Name)
				}
			}
			return true
		})
	}
}

// written are the expressions that a node assigns to or takes the address of.
func written(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			return n.Lhs
		}
	case *ast.IncDecStmt:
		return []ast.Expr{n.X}
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			return []ast.Expr{n.X}
		}
	}
	return nil
}

// base is the variable of which e is an element, a field or a dereference.
func base(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.IndexExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}

func TestUnsafeOnlyWhereTheNameSaysSo(t *testing.T) {
	n := 0
	for _, s := range sources(t) {
		named := strings.HasSuffix(s.name, "_unsafe.go") || strings.HasSuffix(s.name, "_unsafe_test.go")
		unsafe := slices.Contains(s.imports(), "unsafe")
		switch {
		case unsafe && !named:
			t.Errorf("%s imports unsafe, and its name does not say so", s.name)
		case named && !unsafe:
			t.Errorf("%s has no unsafe code", s.name)
		case unsafe && !strings.Contains(string(s.text), "SAFETY:"):
			t.Errorf("%s does not say why it is safe (SAFETY:)", s.name)
		case unsafe:
			n++
		}
	}
	if n == 0 {
		t.Error("no unsafe code was found: tunio has some")
	}
}

// System calls belong in tunio, in integration, and, for signals and facts, in commands.
func TestSystemCallsAreTuniosBusiness(t *testing.T) {
	for _, s := range sources(t) {
		if within(s.dir(), "tunio") || within(s.dir(), "integration") || within(s.dir(), "cmd") {
			continue
		}
		for _, path := range s.imports() {
			if path == "syscall" || path == sys {
				t.Errorf("%s imports %s", s.name, path)
			}
		}
	}
}

// Only packages for tests, with "test" in their name, may import testing.
func TestTestingStaysOutOfTheProduct(t *testing.T) {
	for _, s := range sources(t) {
		if !s.test() && slices.Contains(s.imports(), "testing") && !strings.HasSuffix(s.dir(), "test") {
			t.Errorf("%s imports testing", s.name)
		}
	}
}
