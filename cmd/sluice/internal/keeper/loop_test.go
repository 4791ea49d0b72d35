package keeper

import (
	"testing"
	"time"
)

// A loop is told of at once, again after 1 s, 2 s, 4 s and so on up to a minute, with the
// frames a second since the last time; and anew after a minute without one.
func TestLoopIsToldOfAsLongAsItLasts(t *testing.T) {
	type told struct{ at, rate int }
	var got []told
	var l loopWatch
	drops := uint64(0)
	began := time.Now()
	for second := range 400 {
		switch {
		case second >= 10 && second < 205:
			drops += 100
		case second == 350, second == 351:
			drops += 7
		}
		if rate, tell := l.look(drops, began.Add(time.Duration(second)*time.Second)); tell {
			got = append(got, told{second, int(rate)})
		}
	}
	want := []told{{10, 100}, {11, 100}, {13, 100}, {17, 100}, {25, 100}, {41, 100}, {73, 100}, {133, 100},
		{193, 100}, {253, 19}, {350, 7}, {351, 7}}
	if len(got) != len(want) {
		t.Fatalf("told %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("told %v, want %v", got[i], want[i])
		}
	}
}
