package config

// Key is a key of a document, as a manual lists it.
type Key struct {
	Path    string // from the top, such as ports.NAME.mtu
	Help    string
	Default string // empty where there is none
}

// Reference lists every key of a document, in the order of the tables: a map or a list
// comes before what is in it.
func Reference() []Key { return reference(nil, "", objectSchema("", switchKeys, nil)) }

// reference adds the keys of a map that has a schema.
func reference(all []Key, prefix string, schema *node) []Key {
	properties := schema.get("properties")
	if properties == nil {
		return all
	}
	for _, p := range properties.value.pairs {
		k := Key{Path: prefix + p.key}
		if help := p.value.get("description"); help != nil {
			k.Help = help.value.spell()
		}
		if def := p.value.get("default"); def != nil {
			k.Default = def.value.spell()
		}
		all = reference(append(all, k), k.Path+".", p.value)
		if one := p.value.get("additionalProperties"); one != nil {
			all = reference(all, k.Path+".NAME.", one.value)
		}
		if one := p.value.get("items"); one != nil {
			all = reference(all, k.Path+"[].", one.value)
		}
	}
	return all
}
