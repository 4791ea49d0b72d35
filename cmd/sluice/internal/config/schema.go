package config

import "bytes"

// Schema is the JSON Schema (draft 2020-12) of a document, made from the tables. Editors use it to
// complete and check. ParseYAML and ParseJSON check more.
func Schema() []byte {
	n := keyword("$schema", scalar(text, "https://json-schema.org/draft/2020-12/schema"))
	n.add("title", scalar(text, "Sluice switch"))
	n.pairs = append(n.pairs, objectSchema("the desired state of a switch", switchKeys, nil).pairs...)
	var b bytes.Buffer
	writeJSON(&b, n, "")
	b.WriteByte('\n')
	return b.Bytes()
}

// keyword is a schema with one keyword.
func keyword(name string, value *node) *node {
	n := &node{kind: object}
	n.add(name, value)
	return n
}

// objectSchema is the schema of a map with a table.
func objectSchema[T any](help string, keys []key[T], rules []*node) *node {
	n := keyword("type", scalar(text, "object"))
	if help != "" {
		n.add("description", scalar(text, help))
	}
	properties, required := &node{kind: object}, &node{kind: list}
	for i := range keys {
		properties.add(keys[i].name, keys[i].schema())
		if keys[i].must {
			required.items = append(required.items, scalar(text, keys[i].name))
		}
	}
	n.add("properties", properties)
	if len(required.items) > 0 {
		n.add("required", required)
	}
	n.add("additionalProperties", scalar(boolean, "false"))
	if len(rules) > 0 {
		n.add("allOf", &node{kind: list, items: rules})
	}
	return n
}

func listSchema(items *node) *node {
	n := keyword("type", scalar(text, "array"))
	n.add("items", items)
	return n
}

// portRules are the rules of report.rules about one port, in the schema.
func portRules() (rules []*node) {
	never := scalar(boolean, "false")
	has := func(key string, values ...string) *node {
		all := &node{kind: list}
		for _, v := range values {
			all.items = append(all.items, scalar(text, v))
		}
		n := keyword("properties", keyword(key, keyword("enum", all)))
		n.add("required", &node{kind: list, items: []*node{scalar(text, key)}})
		return n
	}
	for i := range portKeys {
		if k := &portKeys[i]; len(k.kinds) > 0 {
			var all []string
			for _, kind := range k.kinds {
				all = append(all, string(kind))
			}
			n := keyword("if", has("kind", all...))
			n.add("else", keyword("properties", keyword(k.name, never)))
			rules = append(rules, n)
		}
	}
	for _, r := range []struct {
		mode VLANMode
		key  string
	}{{Trunk, "tag"}, {Access, "trunks"}} {
		n := keyword("if", has("vlan_mode", string(r.mode)))
		n.add("then", keyword("properties", keyword(r.key, never)))
		rules = append(rules, n)
	}
	n := keyword("if", keyword("required", &node{kind: list, items: []*node{scalar(text, "tag")}}))
	n.pairs[0].value.add("properties", keyword("vlan_mode", never))
	n.add("then", keyword("properties", keyword("trunks", never)))
	return append(rules, n)
}
