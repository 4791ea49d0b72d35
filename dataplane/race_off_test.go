//go:build !race

package dataplane

// raceEnabled says that the race detector is off.
const raceEnabled = false
