package offload_test

import (
	"fmt"

	"sluice/offload"
	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// A super-packet of 200000 bytes is cut into chunks for an egress of 64 KiB, a few at a
// time, and one chunk into wire-size frames.
func ExampleSegmenter() {
	f := vnettest.Super(vnettest.Spec{Payload: make([]byte, 200_000), GSOSize: 1448, TCPFlags: vnettest.ACK})
	var l2 vnet.L2
	var p vnet.Packet
	if d := f.Check(&l2); d != vnet.Keep {
		fmt.Println("dropped:", d)
		return
	}
	if d := vnet.Parse(&f, &l2, &p); d != vnet.Keep {
		fmt.Println("dropped:", d)
		return
	}

	const maxLen, maxSegs = 65535, 65535
	var s offload.Segmenter
	if d := s.Resegment(&f, &p, maxLen, maxSegs, vnet.FormNone); d != vnet.Keep {
		fmt.Println("dropped:", d)
		return
	}
	out := vnet.NewBatch(2, 2*(vnet.MaxHeaders+vnet.JumboHBHLen), 2*(len(f.Body)+1))
	var last vnet.Frame
	for more := true; more; {
		out.Reset()
		more = s.Fill(out)
		for i := range out.Frames { // here a program writes them
			chunk := &out.Frames[i]
			fmt.Printf("chunk of %d bytes, gso_size %d\n", chunk.Len(), chunk.Hdr.GSOSize)
			last = chunk.Clone()
		}
	}

	if d := s.Segment(&last, &p); d != vnet.Keep {
		fmt.Println("dropped:", d)
		return
	}
	for more := true; more; {
		out.Reset()
		more = s.Fill(out)
		for i := range out.Frames {
			fmt.Printf("frame of %d bytes\n", out.Frames[i].Len())
		}
	}

	// Output:
	// chunk of 65214 bytes, gso_size 1448
	// chunk of 65214 bytes, gso_size 1448
	// chunk of 65214 bytes, gso_size 1448
	// chunk of 4574 bytes, gso_size 1448
	// frame of 1502 bytes
	// frame of 1502 bytes
	// frame of 1502 bytes
	// frame of 230 bytes
}
