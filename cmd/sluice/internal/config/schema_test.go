package config

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

const schemaFile = "sluice.schema.json"

func TestSchemaFileIsThatOfTheTables(t *testing.T) {
	file, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(file, Schema()) {
		t.Errorf("%s is not what the tables say: go run sluice/cmd/sluice config schema > %s", schemaFile, schemaFile)
	}
}

func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft7) // the schema itself names its draft
	if err := c.AddResource("sluice", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("sluice")
	if err != nil {
		t.Fatal(err)
	}
	if s.DraftVersion != 2020 {
		t.Errorf("the schema is of draft %d", s.DraftVersion)
	}
	return s
}

// conforms reports whether an editor that uses the schema accepts a file.
func conforms(t *testing.T, s *jsonschema.Schema, file string) error {
	t.Helper()
	j, err := yaml.YAMLToJSON([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(j))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(v)
}

// The schema accepts what is right. Of what is wrong, it accepts only what a schema cannot express:
// rules between values, and the range of numbers inside a text.
func TestSchemaAgreesWithTheParser(t *testing.T) {
	s := compiled(t)
	for _, file := range []string{example, "{}", "ports: {a: {kind: tap, device: t, tag: 0}}"} {
		if err := conforms(t, s, file); err != nil {
			t.Errorf("%s\n%v", file, err)
		}
	}
	beyond := []string{
		"second colon", "have no value", "there is no port", "under port", "another port", "there are two", "neither ports", "is itself mirrored",
		"given twice", "a port from 1", "want /x", `".."`, `device name "a\tb"`, `"30-20"`, "of a host",
		"are not supported", "second document", "nested", "not found", "tab character", "01500 is", "1.5e3",
	}
	told := 0
next:
	for _, c := range wrong {
		for _, b := range beyond {
			if strings.Contains(c.says, b) {
				continue next
			}
		}
		told++
		if err := conforms(t, s, c.file); err == nil {
			t.Errorf("the schema takes\n%s\nof which the parser says\n%s", c.file, c.says)
		}
	}
	if told < 30 {
		t.Errorf("only %d of the wrong files were tried", told)
	}
}

// Every key has a description, which editors show.
func TestSchemaDescribesEveryKey(t *testing.T) {
	var walk func(path string, s *jsonschema.Schema)
	n := 0
	walk = func(path string, s *jsonschema.Schema) {
		for name, p := range s.Properties {
			if n++; p.Description == "" {
				t.Errorf("%s.%s has no description", path, name)
			}
			walk(path+"."+name, p)
		}
		for _, below := range []any{s.AdditionalProperties, s.Items2020} {
			if b, ok := below.(*jsonschema.Schema); ok && b != nil {
				walk(path+"[]", b)
			}
		}
	}
	walk("", compiled(t))
	if want := len(switchKeys) + len(fdbKeys) + len(portKeys) + len(mirrorKeys) + len(controlKeys) + len(entryKeys); n != want {
		t.Errorf("%d keys, want %d", n, want)
	}
}
