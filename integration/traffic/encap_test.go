package traffic

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	bpf "github.com/cilium/ebpf/link"

	"sluice/integration/netns/netnstest"
	"sluice/vnet"
	"sluice/vnet/vnettest"
)

// Flags of bpf_skb_adjust_room (include/uapi/linux/bpf.h, BPF_F_ADJ_ROOM_*).
const (
	encapIPv4, encapIPv6 = 1 << 1, 1 << 2
	encapGRE, encapUDP   = 1 << 3, 1 << 4
	encapEther           = 1<<6 | vnet.EthLen<<56 // ENCAP_L2_ETH and ENCAP_L2(14)
	decapIPv4, decapIPv6 = 1 << 7, 1 << 8
)

// encap is a tunnel without a netdev: a program at each host's eth0 wraps the TCP packets
// that leave, and another unwraps what comes. Its super-packets are those of a netdev,
// with the same GSO type, and the kernel cuts them by the same features
// (bpf_skb_net_grow in net/core/filter.c).
type encap struct {
	proto  uint8  // of the outer IP header
	header []byte // behind it, without an Ethernet header
	ether  bool   // an Ethernet header follows
	flags  int64
	tags   int // nothing of that, but so many VLAN tags
}

// encaps are the kinds, by the type of the netdev that a kernel may lack.
func encaps(kind string, inner family) (e encap, ok bool) {
	switch kind {
	case "geneve":
		header := []byte{0x9c, 0x41, 6081 >> 8, 6081 & 0xff, 0, 0, 0, 0, 0, 0, 0x65, 0x58, 0, 0, 7, 0}
		return encap{proto: vnet.ProtoUDP, header: header, ether: true, flags: encapUDP | encapEther}, true
	case "gre", "ip6gre":
		return encap{proto: vnet.ProtoGRE, header: append([]byte{0, 0}, inner.etherType()...), flags: encapGRE}, true
	case "gretap", "ip6gretap":
		header := []byte{0, 0, 0x65, 0x58}
		return encap{proto: vnet.ProtoGRE, header: header, ether: true, flags: encapGRE | encapEther}, true
	case "ipip", "sit", "ip6tnl":
		proto := uint8(vnet.ProtoIPv4)
		if inner == 6 {
			proto = vnet.ProtoIPv6
		}
		return encap{proto: proto}, true
	case "tags":
		return encap{tags: 3}, true
	}
	return e, false
}

// stack is where the program keeps the header, below the frame pointer.
const stack = -128

// wrap is a program that puts the tunnel's headers in front of TCP over inner.
func (e encap) wrap(t tunnel, from, to *host) asm.Instructions {
	if e.tags > 0 {
		return e.tag(t, true)
	}
	src, dst := netip.MustParseAddr(t.outer.of(from)).AsSlice(), netip.MustParseAddr(t.outer.of(to)).AsSlice()
	var ip []byte
	flags := e.flags
	l3 := int32(vnet.EthLen)
	l4 := l3 + vnet.IPv4Len
	if t.outer == 4 {
		flags |= encapIPv4
		ip = append([]byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, e.proto, 0, 0}, append(src, dst...)...)
	} else {
		flags |= encapIPv6
		l4 = l3 + vnet.IPv6Len
		ip = append([]byte{0x60, 0, 0, 0, 0, 0, e.proto, 64}, append(src, dst...)...)
	}
	header := append(t.outer.etherType(), ip...)
	header = append(header, e.header...)
	if e.ether {
		header = append(header, 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1)
		header = append(header, t.inner.etherType()...)
	}
	size := len(header)
	header = append(header, 0, 0, 0) // to whole words

	const at = stack - 12 // of the frame's first byte
	length := func(offset, less int32) asm.Instructions {
		return asm.Instructions{
			asm.Mov.Reg(asm.R1, asm.R7), asm.Sub.Imm(asm.R1, less),
			asm.HostTo(asm.BE, asm.R1, asm.Half), asm.StoreMem(asm.R10, int16(at+offset), asm.R1, asm.Half),
		}
	}
	is := e.only(t.inner, vnet.ProtoTCP)
	is = append(is, adjust(int32(size)-2, flags)...)
	for i := 0; i+4 <= len(header); i += 4 {
		word := int64(int32(binary.NativeEndian.Uint32(header[i:])))
		is = append(is, asm.StoreImm(asm.R10, int16(stack+i), word, asm.Word))
	}
	is = append(is, asm.LoadMem(asm.R7, asm.R6, 0, asm.Word)) // __sk_buff.len
	if t.outer == 4 {
		is = append(is, length(l3+2, l3)...)
		is = append(is, asm.Mov.Reg(asm.R1, asm.R7), asm.Add.Imm(asm.R1, int32(vnettest.Sum(ip))-l3))
		for range 2 {
			is = append(is, asm.Mov.Reg(asm.R2, asm.R1), asm.RSh.Imm(asm.R2, 16),
				asm.And.Imm(asm.R1, 0xffff), asm.Add.Reg(asm.R1, asm.R2))
		}
		is = append(is, asm.Xor.Imm(asm.R1, 0xffff),
			asm.HostTo(asm.BE, asm.R1, asm.Half), asm.StoreMem(asm.R10, int16(at+l3+10), asm.R1, asm.Half))
	} else {
		is = append(is, length(l3+4, l4)...)
	}
	if e.proto == vnet.ProtoUDP {
		is = append(is, length(l4+4, l4)...)
	}
	is = append(is, asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, 12),
		asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, stack),
		asm.Mov.Imm(asm.R4, int32(size)), asm.Mov.Imm(asm.R5, 0), asm.FnSkbStoreBytes.Call())
	return append(is, pass...)
}

// unwrap is a program that takes them away.
func (e encap) unwrap(t tunnel) asm.Instructions {
	if e.tags > 0 {
		return e.tag(t, false)
	}
	size := vnet.IPv4Len + len(e.header)
	if t.outer == 6 {
		size = vnet.IPv6Len + len(e.header)
	}
	if e.ether {
		size += vnet.EthLen
	}
	flags := int64(decapIPv4)
	if t.inner == 6 {
		flags = decapIPv6
	}
	is := e.only(t.outer, e.proto)
	is = append(is, adjust(int32(-size), flags)...)
	return append(is, pass...)
}

// tag is a program that pushes the tags, or pops them.
func (e encap) tag(t tunnel, push bool) asm.Instructions {
	is := e.only(t.inner, vnet.ProtoTCP)
	if !push {
		is = asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1), asm.LoadMem(asm.R1, asm.R6, 16, asm.Word),
			asm.JNE.Imm(asm.R1, tagged, "pass"),
		}
	}
	for i := range e.tags {
		is = append(is, asm.Mov.Reg(asm.R1, asm.R6))
		if push {
			is = append(is, asm.Mov.Imm(asm.R2, tagged), asm.Mov.Imm(asm.R3, int32(10+i)), asm.FnSkbVlanPush.Call())
		} else {
			is = append(is, asm.FnSkbVlanPop.Call())
		}
	}
	return append(is, pass...)
}

// tagged is the EtherType of a VLAN tag, as a program sees it.
var tagged = int32(binary.NativeEndian.Uint16([]byte{0x81, 0x00}))

func (f family) etherType() []byte {
	if f == 4 {
		return []byte{0x08, 0x00}
	}
	return []byte{0x86, 0xdd}
}

// only lets packets of another family or protocol pass.
func (e encap) only(f family, proto uint8) asm.Instructions {
	at := int32(vnet.EthLen + 9)
	if f == 6 {
		at = vnet.EthLen + 6
	}
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R1, asm.R6, 16, asm.Word), // __sk_buff.protocol
		asm.JNE.Imm(asm.R1, int32(binary.NativeEndian.Uint16(f.etherType())), "pass"),
		asm.LoadAbs(at, asm.Byte),
		asm.JNE.Imm(asm.R0, int32(proto), "pass"),
	}
}

// adjust makes room behind the Ethernet header, or takes it away.
func adjust(n int32, flags int64) asm.Instructions {
	const behindEther = 1 // BPF_ADJ_ROOM_MAC
	return asm.Instructions{
		asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, n), asm.Mov.Imm(asm.R3, behindEther),
		asm.LoadImm(asm.R4, flags, asm.DWord), asm.FnSkbAdjustRoom.Call(),
	}
}

// pass ends a program: TCX_NEXT.
var pass = asm.Instructions{asm.Mov.Imm(asm.R0, -1).WithSymbol("pass"), asm.Return()}

// between wraps what each host sends to the other.
func (e encap) between(b *bed, t tunnel, x, y *host) {
	b.t.Helper()
	for _, h := range []*host{x, y} {
		far := y
		if h == y {
			far = x
		}
		index := link(b.t, h.Namespace, "eth0").Index
		netnstest.Need(b.t, h.Do(func() error {
			return errors.Join(
				attach(b.t, index, ebpf.AttachTCXEgress, e.wrap(t, h, far)),
				attach(b.t, index, ebpf.AttachTCXIngress, e.unwrap(t)))
		}))
		h.Address("eth0", t.inside(h)+t.prefix())
	}
	b.built()
	for _, ends := range [][2]*host{{x, y}, {y, x}} {
		// With room for the headers.
		must(b.t, ends[0].Namespace, "ip", "route", "add", t.inside(ends[1]), "dev", "eth0",
			"src", t.inside(ends[0]), "mtu", "1400")
	}
}

func attach(t testing.TB, index int, where ebpf.AttachType, is asm.Instructions) error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "tunnel", Type: ebpf.SchedCLS, Instructions: is})
	if err != nil {
		return err
	}
	defer p.Close() // the attachment holds it
	l, err := bpf.AttachTCX(bpf.TCXOptions{Interface: index, Program: p, Attach: where})
	if err == nil {
		t.Cleanup(func() { l.Close() })
	}
	return err
}
