package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// output is a file that a command writes its data to. It is opened before there is
// anything to lose, and keeps what it holds until then. The zero value, for a flag that
// was not given, keeps nothing.
type output struct {
	file *os.File
	ours bool // else it is standard output, which others write to as well
}

// openOutput opens the file that a flag names: - is standard output, and no name no
// file.
func openOutput(flag, name string) (output, error) {
	switch name {
	case "":
		return output{}, nil
	case "-":
		return output{file: os.Stdout}, nil
	}
	// O_RDWR: a FIFO is not waited for until somebody reads it, deaf to SIGTERM.
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return output{}, fmt.Errorf("%s: %w", flag, err)
	}
	return output{f, true}, nil
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
			return err
		}
	}
	_, err = o.file.Write(append(text, '\n'))
	return err
}

// close closes the file and adds to err what is wrong with that.
func (o output) close(err error) error {
	if o.file == nil {
		return err
	}
	return errors.Join(err, o.file.Close())
}
