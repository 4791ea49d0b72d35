// Package release says which release of Linux is running. Use it only for what cannot be tried,
// since distributions carry patches.
package release

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Current is what uname -r says.
func Current() string {
	var u unix.Utsname
	_ = unix.Uname(&u) // fails only for a bad pointer
	return unix.ByteSliceToString(u.Release[:])
}

// Parse is the first two numbers of a release such as 6.18.44-amd64; 0, 0 if it has
// none.
func Parse(release string) (major, minor int) {
	first, rest, _ := strings.Cut(release, ".")
	second := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if second >= 0 {
		rest = rest[:second]
	}
	major, err := strconv.Atoi(first)
	if err != nil {
		return 0, 0
	}
	minor, _ = strconv.Atoi(rest)
	return major, minor
}

// Since reports whether a release is major.minor or a later one.
func Since(release string, major, minor int) bool {
	m, n := Parse(release)
	return m > major || m == major && n >= minor
}
