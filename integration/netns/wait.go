package netns

import (
	"context"
	"fmt"
	"time"
)

// waitLimit bounds a wait whose context has no deadline of its own.
const waitLimit = 10 * time.Second

// Until polls cond until it is true. It fails when ctx ends, or after ten seconds if ctx has no
// deadline. what names the condition in the error.
func Until(ctx context.Context, what string, cond func() (bool, error)) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, waitLimit)
		defer cancel()
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := cond()
		if err != nil {
			return fmt.Errorf("netns: wait for %s: %w", what, err)
		}
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("netns: wait for %s: %w", what, context.Cause(ctx))
		case <-tick.C:
		}
	}
}
