package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// table prints rows with columns of equal width. In align, l and r stand for a column to the
// left or to the right; those without one are to the left.
func table(w io.Writer, align string, rows [][]string) error {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i < len(align) && align[i] == 'r' {
				line.WriteString(pad + cell)
			} else {
				line.WriteString(cell + pad)
			}
			line.WriteString("  ")
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// short is a number in at most six characters: as it is, or as 12.3M.
func short(n float64) string {
	const units = "kMGTPE"
	if n < 99999.5 {
		return fmt.Sprintf("%.0f", n)
	}
	i := -1
	for ; n >= 999.5 && i < len(units)-1; i++ {
		n /= 1000
	}
	if n < 99.95 {
		return fmt.Sprintf("%.1f%c", n, units[i])
	}
	return fmt.Sprintf("%.0f%c", n, units[i])
}

// ago is a duration in its greatest unit.
func ago(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(max(d, 0).Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d d", int(d.Hours()/24))
}
