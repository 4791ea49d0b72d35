package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// writeLimit is how long whoever reads a FIFO may let it be full.
const writeLimit = 2 * time.Second

// output is a file that a command writes its data to. It is opened before there is
// anything to lose, and keeps what it holds until then. The zero value, for a flag that
// was not given, keeps nothing.
type output struct {
	flag string // what the command line calls it
	file *os.File
	ours bool // else it is standard output, which others write to as well
	made bool // it did not exist
}

// openOutput opens the file that a flag names: - is standard output, and no name no
// file.
func openOutput(flag, name string) (output, error) {
	switch name {
	case "":
		return output{}, nil
	case "-":
		return output{flag: flag, file: os.Stdout}, nil
	}
	// O_RDWR: a FIFO is not waited for until somebody reads it, deaf to SIGTERM.
	const mode = os.O_RDWR | os.O_CREATE
	f, err := os.OpenFile(name, mode|os.O_EXCL, 0o644)
	made := err == nil
	if errors.Is(err, os.ErrExist) {
		f, err = os.OpenFile(name, mode, 0o644)
	}
	if err != nil {
		return output{}, fmt.Errorf("%s: %w", flag, err)
	}
	return output{flag: flag, file: f, ours: true, made: made}, nil
}

// write writes v, as JSON, in place of what the file held, or behind what standard output
// has been told.
func (o output) write(v any) error {
	if o.file == nil {
		return nil
	}
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if info, err := o.file.Stat(); err == nil && o.ours && info.Mode().IsRegular() {
		_, seekErr := o.file.Seek(0, io.SeekStart)
		if err := errors.Join(seekErr, o.file.Truncate(0)); err != nil {
			return fmt.Errorf("%s: %w", o.flag, err)
		}
	}
	_ = o.file.SetWriteDeadline(time.Now().Add(writeLimit)) // of a FIFO; others have none
	if _, err = o.file.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("%s: %w", o.flag, err)
	}
	return nil
}

// name is the file's name.
func (o output) name() string { return o.file.Name() }

// discard removes the file, if it was made, for a command that has nothing to write.
func (o output) discard() error {
	if !o.made {
		return nil
	}
	return os.Remove(o.file.Name())
}

// close closes the file and adds to err what is wrong with that.
func (o output) close(err error) error {
	if o.file == nil {
		return err
	}
	return errors.Join(err, o.file.Close())
}
