package keeper

import (
	"context"
	"fmt"

	"sluice/cmd/sluice/internal/config"
)

// Applied is what an edit of the desired state did.
type Applied struct {
	Revision uint64 // of the desired state that holds now
	Changes  []config.Change
}

// ConflictError says that the desired state is another than the editor has seen.
type ConflictError struct{ Has, Saw uint64 }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("the configuration was changed meanwhile: it has revision %d, and the edit is of revision %d; "+
		"read it again", e.Has, e.Saw)
}

// Edit is how the desired state is changed, by whoever changes it.
type Edit struct {
	// Change makes the new state of a copy of the present one. It waits for nobody.
	Change func(config.Switch) (config.Switch, error)
	// Saw is the revision that the edit is of, or 0: whatever it is. Else *ConflictError.
	Saw uint64
	// DryRun tells what would change, and changes nothing.
	DryRun bool
}

// Edit changes the desired state and makes the switch agree with it. A state that does
// not differ changes nothing, and one that is not valid is an error and changes nothing.
// Ports that cannot be had are no error: they are down and say why.
func (k *Keeper) Edit(ctx context.Context, e Edit) (a Applied, err error) {
	if ended := k.do(ctx, func() { a, err = k.edit(e) }); ended != nil {
		return Applied{}, ended
	}
	return a, err
}

func (k *Keeper) edit(e Edit) (Applied, error) {
	if e.Saw != 0 && e.Saw != k.revision {
		return Applied{}, &ConflictError{Has: k.revision, Saw: e.Saw}
	}
	want, err := e.Change(k.want.Clone())
	if err != nil {
		return Applied{}, err
	}
	if err := want.Validate(); err != nil {
		return Applied{}, err
	}
	if err := unbuilt(want); err != nil {
		return Applied{}, err
	}
	a := Applied{Revision: k.revision, Changes: config.Diff(k.want, want)}
	if len(a.Changes) == 0 || e.DryRun {
		return a, nil
	}
	for _, c := range a.Changes {
		if c.Fixed() {
			return Applied{}, fmt.Errorf("%s: that can only be changed by a restart", c)
		}
		if err := k.refuses(c); err != nil {
			return Applied{}, err
		}
	}
	k.want = want
	k.revision++
	a.Revision = k.revision
	for _, c := range a.Changes {
		k.log.Info("configuration: " + c.String())
		k.tell(Event{Kind: ConfigApplied, Port: c.Port(), Text: c.String()})
	}
	// Of a port that cannot be had its state tells.
	_ = k.reconcile()
	k.follow()
	return a, nil
}

// Config is the desired state and its revision.
func (k *Keeper) Config(ctx context.Context) (want config.Switch, revision uint64, err error) {
	err = k.do(ctx, func() { want, revision = k.want.Clone(), k.revision })
	return want, revision, err
}
