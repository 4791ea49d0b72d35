package netns

import (
	"bytes"
	"sync"
)

// Output collects what a process writes, and can be read at the same time. Its zero
// value is ready for use.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

// Write keeps what is written; it never fails.
func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

// String is what was written so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
