package netns

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"sluice/dataplane/summary"
)

const (
	// readyLine is what `sluice run` prints once every port is attached.
	readyLine = "ready"
	// readyLimit is how long attaching may take, the probe of the kernel included.
	readyLimit = 30 * time.Second
	// stopLimit is how long it may take to remove what it created.
	stopLimit = 20 * time.Second
)

// Sluice is a running `sluice run`.
type Sluice struct {
	*Process
	Control string // path of its control socket
	file    string // of the summary
	stop    func() (summary.Summary, error)
}

// Sluice starts `binary run args...` in the namespace and waits until its ports
// are attached. It has a control socket of its own.
func (ns *Namespace) Sluice(ctx context.Context, binary string, args ...string) (*Sluice, error) {
	dir, err := TempDir("summary")
	if err != nil {
		return nil, fmt.Errorf("netns: summary: %w", err)
	}
	ns.lab.onClose(func() { RemoveDir(dir) })
	file := filepath.Join(dir, "summary.json")

	ready := &lineWriter{line: readyLine, seen: make(chan struct{})}
	socket := filepath.Join(dir, "control")
	args = append(append([]string{"run"}, args...), "--summary", file, "--control", socket)
	p, err := ns.Start(ctx, ready, binary, args...)
	if err != nil {
		return nil, err
	}
	s := &Sluice{Process: p, Control: socket, file: file}
	s.stop = sync.OnceValues(s.readSummary)

	timer := time.NewTimer(readyLimit)
	defer timer.Stop()
	select {
	case <-ready.seen:
		return s, nil
	case <-p.Done():
		return nil, errors.Join(p.Wait(), errors.New("netns: sluice run ended before it was ready"))
	case <-timer.C:
		p.Kill()
		late := fmt.Errorf("netns: sluice run was not ready after %v", readyLimit)
		return nil, errors.Join(p.Wait(), late)
	}
}

// Stop ends the switch with SIGTERM and returns its summary. It may be called
// again, for the same answer.
func (s *Sluice) Stop() (summary.Summary, error) { return s.stop() }

func (s *Sluice) readSummary() (sum summary.Summary, err error) {
	if err := s.Interrupt(stopLimit); err != nil {
		return sum, err
	}
	text, err := os.ReadFile(s.file)
	if err != nil {
		return sum, fmt.Errorf("netns: summary: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&sum); err != nil {
		return sum, fmt.Errorf("netns: summary: %w", err)
	}
	return sum, nil
}

// lineWriter closes seen when a line has been written to it. Only the goroutine
// that copies a process's output writes.
type lineWriter struct {
	line    string
	pending []byte // of the last, unfinished line
	seen    chan struct{}
	once    sync.Once
}

func (w *lineWriter) Write(b []byte) (int, error) {
	w.pending = append(w.pending, b...)
	for {
		line, rest, whole := bytes.Cut(w.pending, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		if string(bytes.TrimRight(line, "\r")) == w.line {
			w.once.Do(func() { close(w.seen) })
		}
		w.pending = rest
	}
}
