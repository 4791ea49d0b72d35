package vnet_test

import (
	"bytes"
	"testing"

	"sluice/vnet"
	"sluice/vnet/vnettest"
)

func TestFrameLenAndBytes(t *testing.T) {
	want := vnettest.Pattern(100)
	f := vnettest.Scatter(vnet.Frame{Head: want}, 20, 0, 1, 30)
	if f.Len() != 100 || !bytes.Equal(f.AppendTo([]byte("x")), append([]byte("x"), want...)) {
		t.Errorf("%d bytes: % x", f.Len(), f.AppendTo(nil))
	}
	f.Hdr.GSOSize = 7
	c := f.Clone()
	want = bytes.Clone(want)
	clear(f.Head)
	clear(f.Body[2])
	if c.Hdr.GSOSize != 7 || c.Body != nil || !bytes.Equal(c.Head, want) {
		t.Error("the clone shares memory with the frame")
	}
}

// TestSlice takes every range out of a frame in pieces.
func TestSlice(t *testing.T) {
	b := vnet.NewBatch(1, 0, 100)
	for _, f := range []vnet.Frame{
		{Head: vnettest.Pattern(30)},
		vnettest.Scatter(vnet.Frame{Head: vnettest.Pattern(30)}, 7),
		vnettest.Scatter(vnet.Frame{Head: vnettest.Pattern(30)}, 7, 1, 0, 5, 4),
	} {
		all := f.AppendTo(nil)
		for from := range 31 {
			for n := range 31 - from {
				b.Reset()
				pieces := b.Slice(&f, from, n)
				if got := bytes.Join(pieces, nil); !bytes.Equal(got, all[from:from+n]) {
					t.Fatalf("%d from %d: % x, want % x", n, from, got, all[from:from+n])
				}
				if len(pieces) > len(f.Body)+1 {
					t.Fatalf("%d from %d: %d pieces", n, from, len(pieces))
				}
				for i, p := range pieces {
					if len(p) == 0 || cap(p) != len(p) {
						t.Fatalf("%d from %d: piece %d has %d bytes, room for %d", n, from, i, len(p), cap(p))
					}
				}
			}
		}
	}
}

func TestSliceCopiesNothing(t *testing.T) {
	f := vnettest.Scatter(vnet.Frame{Head: vnettest.Pattern(30)}, 10)
	b := vnet.NewBatch(1, 0, 4)
	pieces := b.Slice(&f, 5, 10)
	if len(pieces) != 2 || &pieces[0][0] != &f.Head[5] || &pieces[1][0] != &f.Body[0][0] {
		t.Error("the pieces are not the frame's own memory")
	}
	other := b.Slice(&f, 0, 10)
	if &pieces[0][0] != &f.Head[5] || &other[0][0] != &f.Head[0] || cap(pieces) != 2 {
		t.Error("two slices share a piece list")
	}
}

func TestBatchIsBounded(t *testing.T) {
	b := vnet.NewBatch(2, 10, 3)
	room := func(n, pieces int, want bool) {
		t.Helper()
		if got := b.Room(n, pieces); got != want {
			t.Errorf("Room(%d, %d) is %v with %d frames", n, pieces, got, len(b.Frames))
		}
	}
	room(10, 3, true)
	room(11, 0, false)
	room(0, 4, false)

	head := b.Scratch(6)
	if len(head) != 6 || cap(head) != 6 {
		t.Errorf("scratch of %d bytes with room for %d", len(head), cap(head))
	}
	room(4, 3, true)
	room(5, 3, false)
	f := vnet.Frame{Head: vnettest.Pattern(9)}
	*b.Next() = vnet.Frame{Head: head, Body: b.Slice(&f, 0, 9)}
	room(4, 2, true)
	room(4, 3, false)
	*b.Next() = f
	room(0, 0, false)
	if !b.Full() || len(b.Frames) != 2 {
		t.Errorf("%d frames, full: %v", len(b.Frames), b.Full())
	}

	b.Discarded[vnet.DropRunt]++
	b.Reset()
	room(10, 3, true)
	if b.Full() || len(b.Frames) != 0 || b.Discarded != [vnet.NumDrops]int{} {
		t.Error("Reset left something")
	}
}

func TestBatchAllocatesNothing(t *testing.T) {
	f := vnettest.Scatter(vnet.Frame{Head: vnettest.Pattern(3000)}, 1000, 1000)
	b := vnet.NewBatch(8, 8*100, 8*3)
	n := testing.AllocsPerRun(100, func() {
		b.Reset()
		for b.Room(100, 3) {
			o := b.Next()
			o.Head = b.Scratch(100)
			o.Body = b.Slice(&f, 50, 2900)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
