package link

import (
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// HostDrop keeps the frames that a netdev receives from the host's own stack. Otherwise the stack
// would answer ARP and pings for its addresses, in addition to what reads the netdev through
// AF_PACKET. A packet socket still gets every frame: it comes before tcx (__netif_receive_skb_core
// in net/core/dev.c). The drop ends with Close, or with the process. It stays on a netdev that
// moves to another namespace: close it when the netdev leaves.
//
// The index belongs to the calling thread's network namespace. CAP_BPF and CAP_NET_ADMIN are
// needed. The error is errors.ErrUnsupported if the kernel has no tcx, which came with Linux 6.6.
func HostDrop(index int) (_ io.Closer, err error) {
	defer func() {
		switch {
		case errors.Is(err, ebpf.ErrNotSupported):
			err = fmt.Errorf("keep frames from the host: tcx needs Linux 6.6: %w",
				errors.Join(errors.ErrUnsupported, err))
		case errors.Is(err, unix.EPERM):
			// The library's error suggests RLIMIT_MEMLOCK, which no kernel with tcx uses.
			err = fmt.Errorf("keep frames from the host: %w", hint(unix.EPERM, "CAP_BPF and CAP_NET_ADMIN"))
		case err != nil:
			err = fmt.Errorf("keep frames from the host: %w", err)
		}
	}()
	const tcxDrop = 2 // TCX_DROP in include/uapi/linux/bpf.h
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:         "host_drop",
		Type:         ebpf.SchedCLS,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, tcxDrop), asm.Return()},
	})
	if err != nil {
		return nil, err
	}
	defer program.Close() // the attachment holds it
	return link.AttachTCX(link.TCXOptions{
		Interface: index,
		Program:   program,
		Attach:    ebpf.AttachTCXIngress,
		Anchor:    link.Head(), // another's program that lets a frame pass would end the chain
	})
}
