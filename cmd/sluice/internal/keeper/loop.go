package keeper

import (
	"math"
	"time"
)

const (
	// loopFirst is how long after its first warning a loop is warned of again. Each
	// further warning takes twice as long to come, up to loopMost.
	loopFirst = time.Second
	loopMost  = time.Minute
)

// loopWatch decides when to warn of a loop through a port, as long as it lasts.
type loopWatch struct {
	drops uint64        // when it was told last, or last looked at while there was no loop
	since time.Time     // when that was
	pause time.Duration // until the next warning; 0 while there is no loop
}

// look takes in how many frames the port has dropped for a loop until now. It reports
// whether to tell of them, and how many there were a second since the last time.
func (l *loopWatch) look(drops uint64, now time.Time) (rate uint64, tell bool) {
	if l.since.IsZero() {
		l.since = now
	}
	past := now.Sub(l.since)
	if l.pause > 0 && past < l.pause {
		return 0, false
	}
	grown := drops - l.drops
	// Looks are a second apart, or less: then it is for the rest of the second, too.
	rate = uint64(math.Ceil(float64(grown) / max(past, time.Second).Seconds()))
	switch {
	case grown > 0:
		l.pause = min(max(2*l.pause, loopFirst), loopMost)
	case past >= loopMost:
		l.pause = 0
	}
	if grown > 0 || l.pause == 0 {
		l.drops, l.since = drops, now
	}
	return rate, grown > 0
}
