package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"

	"sluice/cmd/sluice/internal/confine"
	"sluice/cmd/sluice/internal/control"
)

// manager is told what the switch is doing, by sd_notify(3), if there is one: the process
// that has started this one has set NOTIFY_SOCKET then.
type manager struct{ log *slog.Logger }

func (m manager) tell(lines ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(lines, "\n")); err != nil {
		m.log.Warn("the service manager is not told: " + err.Error())
	}
}

func (m manager) ready() { m.tell(daemon.SdNotifyReady, "STATUS=switching") }

// reloading tells that a reload begins. Its time tells the manager which request it answers.
func (m manager) reloading() {
	m.tell(daemon.SdNotifyReloading, strings.TrimSpace(daemon.SdNotifyMonotonicUsec()))
}

// reloaded tells that a reload has ended, and how.
func (m manager) reloaded(err error) {
	status := "switching"
	if err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		status = "switching; the last reload changed nothing: " + first
	}
	m.tell(daemon.SdNotifyReady, "STATUS="+status)
}

func (m manager) stopping() { m.tell(daemon.SdNotifyStopping) }

// handed is the control socket that the service manager has opened (LISTEN_FDS), or nil.
func handed() (*control.Listener, error) {
	files := activation.Files(true)
	if len(files) == 0 {
		return nil, nil
	}
	var first net.Listener
	var err error
	for i, f := range files {
		if i == 0 {
			first, err = net.FileListener(f) // a duplicate
		}
		err = errors.Join(err, f.Close())
	}
	switch {
	case len(files) > 1:
		err = errors.Join(err, fmt.Errorf("%d sockets are given, want one", len(files)))
	case err == nil && first.Addr().Network() != "unix":
		err = fmt.Errorf("it is of %s, want a stream of unix", first.Addr().Network())
	}
	if err != nil {
		if first != nil {
			first.Close()
		}
		return nil, fmt.Errorf("the service manager's socket (LISTEN_FDS): %w", err)
	}
	return control.Adopt(first), nil
}

// giveUp drops the privileges that nothing will need any more. Where that fails it is only
// told, unless it was asked for.
func giveUp(lock bool, log *slog.Logger) error {
	if lock {
		if err := confine.Lock(); err != nil {
			return fmt.Errorf("--lock: %w", err)
		}
		return nil
	}
	if err := confine.Keep(confine.LaterPorts()...); err != nil {
		log.Warn("the switch keeps privileges that it does not need: " + err.Error())
	}
	return nil
}
