package config

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestREADMEsFileIsRight, and so are the messages that README shows for mistakes in it.
func TestREADMEsFileIsRight(t *testing.T) {
	_, rest, ok := strings.Cut(readme(t), "\n```yaml\n")
	example, rest, ok2 := strings.Cut(rest, "```\n")
	if !ok || !ok2 {
		t.Fatal("README has no example of a file")
	}
	s := parsed(t, example)
	if len(s.Ports) == 0 {
		t.Errorf("the example has no ports:\n%s", example)
	}
	_, rest, _ = strings.Cut(rest, "```\n")
	want, _, _ := strings.Cut(rest, "```\n")
	mistakes := strings.NewReplacer("gso_max_size", "gso_max_sise", "mtu: 9000", "mtu: 90000").Replace(example)
	if _, err := ParseYAML("sluice.yaml", []byte(mistakes)); err == nil || err.Error()+"\n" != want {
		t.Errorf("of\n%sit says\n%v\nand README says it says\n%s", mistakes, err, want)
	}
}

// TestREADMEExplainsEveryKey: its table has every key of a port, and no other.
func TestREADMEExplainsEveryKey(t *testing.T) {
	// The switch does nothing with these yet.
	ahead := []string{"loop"}
	_, table, ok := strings.Cut(readme(t), "\n| key | for | meaning |\n")
	if !ok {
		t.Fatal("README has no table of keys")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	var explained, want []string
	for line := range strings.Lines(table) {
		for _, m := range regexp.MustCompile("`([a-z0-9_]+)=").FindAllStringSubmatch(strings.SplitN(line, "|", 4)[1], -1) {
			explained = append(explained, m[1])
		}
	}
	for i := range portKeys {
		if k := &portKeys[i]; k.arg != "" && !slices.Contains(ahead, k.name) {
			want = append(want, k.name)
		}
	}
	slices.Sort(explained)
	if slices.Sort(want); !slices.Equal(explained, want) {
		t.Errorf("README explains\n%v, want\n%v", explained, want)
	}
}
