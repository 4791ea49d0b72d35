package vnet

// MaxHeaders bounds the protocol headers of a frame that must be cut or completed. IPv4 ends at 142
// bytes with every option; IPv6 extension headers have no bound of their own.
const MaxHeaders = 1024

// Frame is a frame and its virtio-net header. The bytes are those of Head and
// then those of each piece of Body. Head holds all protocol headers, at least
// the first min(Len, MaxHeaders) bytes, of a received frame; the payload may lie
// in several pieces. See the package's Ownership.
type Frame struct {
	Hdr  Header
	Head []byte
	Body [][]byte
}

// Len is the frame's length.
func (f *Frame) Len() int {
	n := len(f.Head)
	for _, p := range f.Body {
		n += len(p)
	}
	return n
}

// AppendTo appends the frame's bytes to dst. It copies: for tests and tools, not
// for the data path.
func (f *Frame) AppendTo(dst []byte) []byte {
	dst = append(dst, f.Head...)
	for _, p := range f.Body {
		dst = append(dst, p...)
	}
	return dst
}

// Clone is a copy of f, in one piece, that outlives f's batch.
func (f *Frame) Clone() Frame {
	return Frame{Hdr: f.Hdr, Head: f.AppendTo(make([]byte, 0, f.Len()))}
}

// Batch is the frames that one call moves, with scratch memory for the headers and piece lists of
// frames that Sluice makes itself. It is bounded: nothing in it grows after NewBatch.
type Batch struct {
	Frames []Frame
	// Discarded counts, by reason, what a queue received but could not deliver.
	Discarded [NumDrops]int

	scratch []byte
	pieces  [][]byte
}

// NewBatch makes an empty batch. It holds at most frames frames, scratch bytes of new headers, and
// pieces body pieces.
func NewBatch(frames, scratch, pieces int) *Batch {
	return &Batch{
		Frames:  make([]Frame, 0, frames),
		scratch: make([]byte, 0, scratch),
		pieces:  make([][]byte, 0, pieces),
	}
}

// Reset empties the batch. Frames in it are void.
func (b *Batch) Reset() {
	b.Frames = b.Frames[:0]
	b.Discarded = [NumDrops]int{}
	b.scratch = b.scratch[:0]
	b.pieces = b.pieces[:0]
}

// Full reports whether the batch holds as many frames as it may.
func (b *Batch) Full() bool { return len(b.Frames) == cap(b.Frames) }

// Room reports whether one more frame fits, with n bytes of new headers and at most pieces body
// pieces.
func (b *Batch) Room(n, pieces int) bool {
	return !b.Full() && len(b.scratch)+n <= cap(b.scratch) && len(b.pieces)+pieces <= cap(b.pieces)
}

// Next adds a frame and returns it. Its content is stale: the caller sets every
// field. The batch must not be full.
func (b *Batch) Next() *Frame {
	n := len(b.Frames)
	b.Frames = b.Frames[:n+1]
	return &b.Frames[n]
}

// Scratch takes n bytes of header memory, whose content is stale. The caller has
// asked Room.
func (b *Batch) Scratch(n int) []byte {
	i := len(b.scratch)
	b.scratch = b.scratch[:i+n]
	return b.scratch[i : i+n : i+n]
}

// Slice makes a piece list for the n bytes of f that start at offset from. It copies no bytes. The
// caller has asked Room for len(f.Body)+1 pieces.
func (b *Batch) Slice(f *Frame, from, n int) [][]byte {
	start := len(b.pieces)
	b.slice(f.Head, &from, &n)
	for i := 0; n > 0; i++ {
		b.slice(f.Body[i], &from, &n)
	}
	return b.pieces[start:len(b.pieces):len(b.pieces)]
}

func (b *Batch) slice(p []byte, from, n *int) {
	if *from >= len(p) {
		*from -= len(p)
		return
	}
	take := min(len(p)-*from, *n)
	if take > 0 {
		b.pieces = append(b.pieces, p[*from:*from+take:*from+take])
	}
	*from, *n = 0, *n-take
}
