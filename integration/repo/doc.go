// Package repo holds the repository's own tests: who may import whom, where unsafe
// code and system calls may be, what every package says of itself, and what no
// file may contain. They read the sources and run nothing, so that a review can be
// about design.
package repo
