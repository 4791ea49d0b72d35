package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sluice/cmd/sluice/internal/config"
)

// newManCommand is for packages. The pages are made of the help texts: there is no second
// place to keep true. A library that does it would bring a Markdown parser into the switch.
func newManCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		Short:   "Write the manual pages into a folder",
		Example: "  sluice man /usr/local/share/man/man1",
		Hidden:  true,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("%s takes one DIR, and %d are given", c.CommandPath(), len(args))}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			return errors.Join(commandPages(args[0], root), writePage(args[0], "sluice.yaml", 5, filePage()))
		},
	}
}

// commandPages writes the page of a command and those of what is below it.
func commandPages(dir string, c *cobra.Command) error {
	err := writePage(dir, pageName(c), 1, commandPage(c))
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			err = errors.Join(err, commandPages(dir, sub))
		}
	}
	return err
}

func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

func writePage(dir, name string, section int, p page) error {
	file := filepath.Join(dir, fmt.Sprintf("%s.%d", name, section))
	text := fmt.Sprintf(".TH %s %d \"\" \"sluice %s\"\n%s", strings.ToUpper(name), section, version(), p.String())
	return os.WriteFile(file, []byte(text), 0o644)
}

// page is a manual page in the macros of man(7).
type page struct{ strings.Builder }

// section begins a section.
func (p *page) section(name string) { p.WriteString(".SH " + name + "\n") }

// text is a text of paragraphs. Lines that are indented stay as they are.
func (p *page) text(s string) {
	literal := false
	for line := range strings.Lines(strings.Trim(s, "\n") + "\n") {
		line = strings.TrimSuffix(line, "\n")
		if indented := strings.HasPrefix(line, "  "); indented != literal && line != "" {
			literal = indented
			p.WriteString(map[bool]string{true: ".PP\n.nf\n", false: ".fi\n.PP\n"}[literal])
		}
		if line == "" && !literal {
			line = ".PP"
		} else {
			line = roff(line)
		}
		p.WriteString(line + "\n")
	}
	if literal {
		p.WriteString(".fi\n")
	}
}

// item is a term and what it means.
func (p *page) item(term, text string) {
	p.WriteString(".TP\n\\fB" + roff(term) + "\\fR\n")
	literal := false
	for line := range strings.Lines(text + "\n") {
		if line = strings.TrimSuffix(line, "\n"); strings.HasPrefix(line, "  ") && !literal {
			literal = true // a table: to the end
			p.WriteString(".nf\n")
		}
		if line != "" || literal {
			p.WriteString(roff(line) + "\n")
		}
	}
	if literal {
		p.WriteString(".fi\n")
	}
}

// roff is a line of text, of which nothing is a macro or an escape.
func roff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`).Replace(line)
	if strings.HasPrefix(line, ".") {
		line = `\&` + line
	}
	return line
}

func commandPage(c *cobra.Command) (p page) {
	p.section("NAME")
	p.WriteString(roff(pageName(c)) + ` \- ` + roff(c.Short) + "\n")
	p.section("SYNOPSIS")
	p.text(c.UseLine())
	if c.Long != "" {
		p.section("DESCRIPTION")
		p.text(c.Long)
	}
	if c.HasAvailableSubCommands() {
		p.section("COMMANDS")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				p.item(sub.CommandPath(), sub.Short)
			}
		}
	}
	if c.HasAvailableFlags() {
		p.section("OPTIONS")
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				p.item(flagTerm(f), flagText(f))
			}
		})
	}
	if c.Example != "" {
		p.section("EXAMPLES")
		p.text(c.Example)
	}
	p.section("EXIT STATUS")
	p.text("0: done. 1: failed. 2: wrong usage.")
	p.section("SEE ALSO")
	see := []string{"sluice.yaml(5)"}
	if c.HasParent() {
		see = append(see, pageName(c.Parent())+"(1)")
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			see = append(see, pageName(sub)+"(1)")
		}
	}
	p.text(strings.Join(see, ", "))
	return p
}

// flagTerm is a flag as it is typed.
func flagTerm(f *pflag.Flag) string {
	term := "--" + f.Name
	if f.Shorthand != "" {
		term = "-" + f.Shorthand + ", " + term
	}
	if value, _ := pflag.UnquoteUsage(f); value != "" {
		term += " " + value
	}
	return term
}

func flagText(f *pflag.Flag) string {
	_, text := pflag.UnquoteUsage(f)
	return text
}

const fileText = `A switch as "sluice run -c FILE" runs it, in YAML. Every key that is not given has its
default. A key that is not listed here, or that is given twice, is an error, and so are
anchors and aliases. "sluice config check FILE" tells all errors with line and column.

NAME stands for a name of yours: letters, digits and . _ @ -, a letter or digit first.
[] stands for each item of a list.`

const fileExample = `  ports:
    a: {kind: packet, device: vA}
    b: {kind: packet, device: vB, gso_max_size: 65536}
    c:
      kind: tap
      device: tC
      mtu: 9000`

// filePage is the page of the configuration file.
func filePage() (p page) {
	p.section("NAME")
	p.WriteString("sluice.yaml \\- what a switch is\n")
	p.section("DESCRIPTION")
	p.text(fileText)
	p.section("KEYS")
	for _, k := range config.Reference() {
		text := k.Help
		if k.Default != "" && !strings.Contains(text, "default") {
			text += " (default " + k.Default + ")"
		}
		p.item(k.Path, text)
	}
	p.section("EXAMPLES")
	p.text(fileExample)
	p.section("SEE ALSO")
	p.text("sluice-run(1), sluice-config(1)")
	return p
}
