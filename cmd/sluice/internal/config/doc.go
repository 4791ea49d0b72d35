// Package config is the desired state of a switch as a value: its ports and their keys, VLANs,
// mirrors, the forwarding database, the control socket and the metrics address. It says what the
// switch should be, not what it is: it makes no system call, and does not know whether a device
// exists.
//
// # One value, three spellings
//
// A Switch has the same content in each spelling, and the same rules apply:
//
//   - a file, in YAML (ParseYAML, MarshalYAML);
//   - JSON, for programs (ParseJSON, MarshalJSON). It is the same document, so one JSON
//     Schema describes both (Schema; sluice.schema.json is a copy for editors);
//   - arguments: NAME=KIND:DEVICE[,key=value...] is a port (ParsePort, Port.String), and
//     key=value changes one (SetPort). Here a comma separates keys, so the items of a list
//     are joined by a plus sign: trunks=10+20-30. No value of a port holds a comma or a space.
//
// In each spelling, printing leaves out defaults, and parsing the printed text gives the same
// value.
//
//	YAML  \            / check, with places   / Diff: what changes
//	JSON   > node  <->  tables  <->  Switch  <
//	-p    /            \ schema, help         \ edits: a new Switch
//
// The tables in keys.go have one line for each key: its name, its help, what its values look like
// (a form), its default, its field, and what a change of it needs. Everything else uses them. So a
// new key needs a field and a line. Then `sluice config schema` writes sluice.schema.json again,
// and README's table must explain the key.
//
// # VLANs
//
// The keys vlan_mode, tag and trunks are Open vSwitch's columns, and mean the same (Port.Mode).
// What Open vSwitch ignores is an error here: a tag of a trunk, and the trunks of an access port. A
// front end for its database must leave these out.
//
// # Changes
//
// To change the state, make a new value from the current one (with AddPort, RemovePort, SetPort, or
// any change of a Clone that Validate accepts). Diff then says what to do, one Change for each
// difference, and whether the port loses frames. Two values are Equal exactly when there is nothing
// to do.
//
// # Units
//
// Sizes are bytes, Ethernet header and tags included; an MTU counts from the IP header on.
// Ageing is in seconds, the storm limit in frames a second.
//
// # Ownership
//
// Functions return values that share nothing with their arguments, and change no argument.
//
// # Concurrency
//
// A Switch is a value, and nothing here is shared. But an assignment shares its slices; Clone
// copies them.
//
// # Trust
//
// Documents and arguments come from whoever may configure the switch, and may be anything: at most
// 256 KiB are read, and all errors are reported, up to 50, each with its place, its key, and what
// would be right. A Switch that was made in another way is not trusted either: Validate checks all
// of it.
package config
