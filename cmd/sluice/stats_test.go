package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"sluice/cmd/sluice/internal/control"
	"sluice/dataplane/summary"
)

// TestRates: what changed in a second, also of a port that is new or has begun anew.
func TestRates(t *testing.T) {
	port := func(name string, frames, bytes uint64) control.Counts {
		return control.Counts{
			Name: name, RX: summary.RX{Frames: frames, Bytes: bytes},
			TX:          summary.TX{Frames: 2 * frames, Bytes: 2 * bytes, Resegmented: frames, Segmented: frames},
			Drops:       summary.Drops{Ingress: map[string]uint64{"runt": frames}, Egress: map[string]uint64{"full": frames}},
			KernelDrops: frames,
		}
	}
	begin := time.Unix(1000, 0)
	was := control.Stats{Time: begin, Ports: []control.Counts{port("a", 10, 1000), port("again", 10, 1000)}}
	is := control.Stats{Time: begin.Add(2 * time.Second), Ports: []control.Counts{
		port("a", 30, 2000), port("again", 1, 100), port("new", 5, 500),
	}}
	want := []rate{{"a", [6]float64{4000, 10, 8000, 20, 20, 30}}, {"again", [6]float64{}}, {"new", [6]float64{}}}
	for i, got := range rates(was, is) {
		if got != want[i] {
			t.Errorf("%v, want %v", got, want[i])
		}
	}
}

// TestScreen: on a terminal a picture takes the place of the one before, fits 80 columns, and
// drops are red; elsewhere there are no escapes.
func TestScreen(t *testing.T) {
	escapes := regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")
	most := [6]float64{9.99e18, 9.99e18, 9.99e18, 9.99e18, 9.99e18, 9.99e18}
	all := []rate{{strings.Repeat("long", 15), most}, {"b", [6]float64{}}}
	var b bytes.Buffer
	s := screen{w: &b, terminal: true, colour: true, file: os.Stdin}
	for range 2 {
		b.Reset()
		if err := s.draw(all); err != nil {
			t.Fatal(err)
		}
	}
	text := b.String()
	if !strings.HasPrefix(text, "\x1b[3A") || !strings.HasSuffix(text, "\x1b[J") || strings.Count(text, "\x1b[31m") != 1 {
		t.Errorf("%q", text)
	}
	for line := range strings.Lines(escapes.ReplaceAllString(text, "")) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > columns {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	b.Reset()
	s.colour = false
	if err := s.draw(all); err != nil || strings.Contains(b.String(), "\x1b[31m") {
		t.Errorf("NO_COLOR: %q, %v", b.String(), err)
	}
	b.Reset()
	s = screen{w: &b}
	if err := s.draw(all); err != nil || escapes.MatchString(b.String()) || !strings.Contains(b.String(), all[0].port) {
		t.Errorf("no terminal: %q, %v", b.String(), err)
	}
}

func TestShort(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0", 12.6: "13", 99999: "99999", 99999.6: "100k", 123456: "123k", 999_600: "1.0M", 12_345_678: "12.3M",
		389_120_000_000: "389G", 1.8e19: "18.0E",
	} {
		if got := short(n); got != want || len(got) > 6 {
			t.Errorf("%v is %s, want %s", n, got, want)
		}
	}
}

func TestAgo(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 90 * time.Second: "90 s", 3 * time.Minute: "3 min", 3 * time.Hour: "3 h", 73 * time.Hour: "3 d",
	} {
		if got := ago(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}
