package dataplane

import (
	"time"

	"sluice/vnet"
)

// MaxPieces bounds the pieces of a received frame's Body: what an egress's batch has
// room for, for one frame.
const MaxPieces = batchPieces - 1

// Queue is a port's receive queue: a descriptor that one worker reads. Calls are
// per batch; nothing behind it is called per frame.
type Queue interface {
	// ReadBatch resets b and fills it. It returns when there are frames, when wait
	// is over, or after Wake; in the last two cases b may be empty. Frames that the
	// queue itself could not take whole are counted in b.Discarded. vnet.ErrDown
	// says that the device is down and may come back: ReadBatch may be called
	// again. Any other error, vnet.ErrGone among them, ends the queue's use.
	// b.Frames borrow the queue's memory until the next ReadBatch. A frame's Body has
	// at most MaxPieces pieces.
	ReadBatch(b *vnet.Batch, wait time.Duration) error

	// Wake ends the current ReadBatch, or the next one if none is running. It may
	// be called from any goroutine.
	Wake()

	// Transmitter makes a transmit half for one more worker. Its descriptor may be
	// this queue's own.
	Transmitter() Transmitter
}

// Transmitter is the transmit half that one worker writes a port through.
type Transmitter interface {
	// WriteBatch writes frames in order and stops at the first that is not taken:
	// sent counts those before it, r says what the kernel answered, err the errno
	// itself. With r Accepted, sent is len(frames).
	WriteBatch(frames []vnet.Frame) (sent int, r vnet.Refusal, err error)

	// WaitRoom waits until the port may take a frame again, at most d.
	WaitRoom(d time.Duration)
}
