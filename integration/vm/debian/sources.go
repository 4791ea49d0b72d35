package debian

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// source is one entry of the machine's apt sources.
type source struct {
	uris       []string
	suites     []string
	components []string
	// keys is the unchanged value of Signed-By: files, or a key block over several lines. Empty
	// means apt's trusted keys.
	keys string
}

// machineSources reads the apt sources of the machine whose /etc is at etc.
func machineSources(etc string) (all []source, err error) {
	files := []string{filepath.Join(etc, "apt/sources.list")}
	for _, pattern := range []string{"*.list", "*.sources"} {
		more, err := filepath.Glob(filepath.Join(etc, "apt/sources.list.d", pattern))
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if filepath.Ext(file) == ".sources" {
			all = append(all, parseDeb822(string(text))...)
		} else {
			all = append(all, parseOneLine(string(text))...)
		}
	}
	return all, nil
}

// parseDeb822 reads stanzas of "Field: value", see sources.list(5).
func parseDeb822(text string) (all []source) {
	for stanza := range strings.SplitSeq(text, "\n\n") {
		fields, last := map[string]string{}, ""
		for line := range strings.SplitSeq(stanza, "\n") {
			switch {
			case strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "":
			case line[0] == ' ' || line[0] == '\t':
				fields[last] += "\n" + line
			default:
				name, value, _ := strings.Cut(line, ":")
				last = strings.ToLower(name)
				fields[last] = strings.TrimSpace(value)
			}
		}
		if !slices.Contains(strings.Fields(fields["types"]), "deb") || fields["enabled"] == "no" {
			continue
		}
		all = append(all, source{
			uris:       strings.Fields(fields["uris"]),
			suites:     strings.Fields(fields["suites"]),
			components: strings.Fields(fields["components"]),
			keys:       fields["signed-by"],
		})
	}
	return all
}

// parseOneLine reads lines "deb [options] uri suite components".
func parseOneLine(text string) (all []source) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb ")
		if !ok {
			continue
		}
		var s source
		if options, after, ok := strings.Cut(strings.TrimSpace(rest), "]"); ok {
			for option := range strings.FieldsSeq(strings.TrimPrefix(options, "[")) {
				if keys, ok := strings.CutPrefix(option, "signed-by="); ok {
					s.keys = strings.ReplaceAll(keys, ",", " ")
				}
			}
			rest = after
		}
		if f := strings.Fields(rest); len(f) >= 3 {
			s.uris, s.suites, s.components = f[:1], f[1:2], f[2:]
			all = append(all, s)
		}
	}
	return all
}

// ours are sources for Suites, with the addresses and keys of the machine's own sources for its
// Debian release.
func ours(machine []source, codename string) (string, error) {
	var text strings.Builder
	for _, archive := range []struct{ own, ours string }{
		{codename, Suites},
		{codename + "-security", SecuritySuites},
	} {
		i := slices.IndexFunc(machine, func(s source) bool {
			return slices.Contains(s.suites, archive.own) && slices.Contains(s.components, "main")
		})
		if i < 0 && archive.ours == SecuritySuites {
			continue // it works without the updates
		}
		if i < 0 {
			return "", fmt.Errorf("no apt source has the suite %q", archive.own)
		}
		fmt.Fprintf(&text, "Types: deb\nURIs: %s\nSuites: %s\nComponents: main\n",
			strings.Join(machine[i].uris, " "), archive.ours)
		if machine[i].keys != "" {
			fmt.Fprintf(&text, "Signed-By: %s\n", machine[i].keys)
		}
		text.WriteString("\n")
	}
	return text.String(), nil
}

// codename is the codename of the machine's release, if it is Debian.
func codename(etc string) (string, error) {
	text, err := os.ReadFile(filepath.Join(etc, "os-release"))
	if err != nil {
		return "", err
	}
	values := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[name] = strings.Trim(value, `"`)
	}
	if values["ID"] != "debian" || values["VERSION_CODENAME"] == "" {
		return "", fmt.Errorf("%s is no Debian release", values["PRETTY_NAME"])
	}
	return values["VERSION_CODENAME"], nil
}
