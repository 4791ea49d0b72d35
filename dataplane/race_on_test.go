//go:build race

package dataplane

// raceEnabled says that the race detector is on: it allocates where the code
// does not.
const raceEnabled = true
