// Package deb tests the Debian package: it is built, installed, run with the configuration
// that it brings, reloaded and removed, on a copy of the machine's file system that exists in
// memory only.
package deb
