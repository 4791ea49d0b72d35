package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// each calls f with every command that users see.
func each(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, sub := range c.Commands() {
		if sub.Name() != "completion" && sub.Name() != "help" { // cobra's own
			each(sub, f)
		}
	}
}

// TestHelp of every command fits 80 columns, and has an example.
func TestHelp(t *testing.T) {
	each(newRoot(nil), func(c *cobra.Command) {
		var b bytes.Buffer
		c.SetOut(&b)
		if err := c.Help(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > columns {
				t.Errorf("%s --help: %d columns: %s", c.CommandPath(), n, line)
			}
		}
		if c.HasParent() && c.Name() != "schema" && !strings.Contains(b.String(), "\nExamples:\n") {
			t.Errorf("%s --help has no example", c.CommandPath())
		}
	})
}

// TestExamplesAreCommands: every example is one that is there, with flags that it has.
func TestExamplesAreCommands(t *testing.T) {
	n := 0
	each(newRoot(nil), func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
			line, _, _ = strings.Cut(line, "|")
			line, _, _ = strings.Cut(line, ">")
			args := strings.Fields(strings.TrimPrefix(line, "ip netns exec B "))
			if len(args) == 0 || args[0] != "sluice" {
				if line != "" && !strings.HasPrefix(line, "#") {
					t.Errorf("%s: %q is no command", c.CommandPath(), line)
				}
				continue
			}
			n++
			found, rest, err := newRoot(nil).Find(args[1:])
			if err == nil {
				err = found.ParseFlags(rest)
			}
			if err == nil {
				err = found.ValidateArgs(found.Flags().Args())
			}
			if err != nil || !found.Runnable() {
				t.Errorf("%s: %s: %v", c.CommandPath(), line, err)
			}
		}
	})
	if n < 20 {
		t.Errorf("only %d examples", n)
	}
}
