// Package repo holds the repository's own tests: which package may import which, where unsafe code
// and system calls may be, what every package must document, and what no file may contain. They
// read the sources, so that a review can be about design. They run nothing except the script that
// renames the module, in a copy.
package repo
