// Package service tests a switch as a service manager runs it: what it tells the manager, the
// socket that it is handed, the privileges that it keeps, and what a restart leaves alone.
package service
