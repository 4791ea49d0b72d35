package control

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"sluice/cmd/sluice/internal/config"
)

var update = flag.Bool("update", false, "write the schemas of package config into openapi.json")

type object = map[string]any

// described is the description, parsed.
func described(t testing.TB) object {
	t.Helper()
	var doc object
	if err := json.Unmarshal(OpenAPI(), &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// at goes down a document.
func at(doc any, keys ...string) object {
	for _, k := range keys {
		m, _ := doc.(object)
		doc = m[k]
	}
	m, _ := doc.(object)
	return m
}

// parts are the schemas of what package config reads, as openapi.json has them: the
// document, and parts of it with their names.
func parts(t *testing.T) object {
	t.Helper()
	var whole object
	if err := json.Unmarshal(config.Schema(), &whole); err != nil {
		t.Fatal(err)
	}
	delete(whole, "$schema")
	named := func(group string) object {
		text, _ := json.Marshal(at(whole, "properties", group, "additionalProperties"))
		var one object
		if err := json.Unmarshal(text, &one); err != nil {
			t.Fatal(err)
		}
		at(one, "properties")["name"] = at(whole, "properties", group)["propertyNames"]
		one["required"] = append(one["required"].([]any), "name")
		return one
	}
	var keys []any
	for _, k := range slices.Sorted(maps.Keys(at(whole, "properties", "ports", "additionalProperties", "properties"))) {
		keys = append(keys, k)
	}
	return object{
		"Config": whole, "Port": named("ports"), "Mirror": named("mirrors"),
		"Entry": at(whole, "properties", "fdb", "properties", "static", "items"),
		"PortSettings": object{
			"type": "object", "propertyNames": object{"enum": keys},
			"description": "Values as in Port, or as the command line spells them, or null for the default",
		},
	}
}

func TestOpenAPIHasTheSchemasOfConfig(t *testing.T) {
	doc := described(t)
	schemas := at(doc, "components", "schemas")
	if *update {
		maps.Copy(schemas, parts(t))
		text, err := Encode(doc, "  ")
		if err == nil {
			err = os.WriteFile("openapi.json", text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	for name, want := range parts(t) {
		if !reflect.DeepEqual(schemas[name], want) {
			t.Errorf("%s is not what package config says: go test sluice/cmd/sluice/internal/control -run Schemas -update", name)
		}
	}
}

func TestOpenAPIHasEveryRoute(t *testing.T) {
	var has []string
	for path, methods := range at(described(t), "paths") {
		for method := range methods.(object) {
			has = append(has, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(has)
	if serves := slices.Sorted(maps.Keys((&Server{}).routes())); !slices.Equal(has, serves) {
		t.Errorf("it describes\n%q\nand is served\n%q", has, serves)
	}
}

// checker checks bodies by the description.
type checker struct {
	doc      object
	compiler *jsonschema.Compiler
}

func newChecker(t testing.TB) *checker {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(OpenAPI()))
	if err != nil {
		t.Fatal(err)
	}
	c := &checker{described(t), jsonschema.NewCompiler()}
	c.compiler.DefaultDraft(jsonschema.Draft2020) // the dialect of OpenAPI 3.1
	c.compiler.AssertFormat()
	if err := c.compiler.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	return c
}

// answer checks what a route answered, as JSON or line by line.
func (c *checker) answer(t testing.TB, route, status, kind string, text []byte) {
	t.Helper()
	method, path, _ := strings.Cut(route, " ")
	pointer := []string{"paths", path, strings.ToLower(method), "responses", status}
	response := at(c.doc, pointer...)
	if response == nil {
		t.Errorf("%s: status %s is not described", route, status)
		return
	}
	if ref, ok := response["$ref"].(string); ok {
		pointer = strings.Split(strings.TrimPrefix(ref, "#/"), "/")
	}
	kind, _, _ = strings.Cut(kind, ";")
	pointer = append(pointer, "content", kind, "schema")
	if at(c.doc, pointer...) == nil {
		t.Errorf("%s: status %s with a body of %s is not described", route, status, kind)
		return
	}
	if kind == yamlType {
		return
	}
	for i, p := range pointer {
		pointer[i] = strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(p)
	}
	s, err := c.compiler.Compile("openapi.json#/" + strings.Join(pointer, "/"))
	if err != nil {
		t.Fatal(err)
	}
	docs := [][]byte{text}
	if kind == linesType {
		docs = bytes.SplitAfter(bytes.TrimSpace(text), []byte("\n"))
	}
	for _, one := range docs {
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(one))
		if err == nil {
			err = s.Validate(v)
		}
		if err != nil {
			t.Errorf("%s: %s\nis not as described: %v", route, one, err)
		}
	}
}
