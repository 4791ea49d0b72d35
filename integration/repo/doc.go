// Package repo holds the repository's own tests: who may import whom, where unsafe
// code and system calls may be, what every package says of itself, and what no
// file may contain. They read the sources, so that a review can be about design, and
// run nothing but the script that renames the module, in a copy.
package repo
