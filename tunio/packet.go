package tunio

import (
	"errors"
	"io/fs"
	"math/bits"

	"golang.org/x/sys/unix"

	"sluice/vnet"
)

const netRaw = "CAP_NET_RAW"

// OpenPacket opens packet sockets on a device in the calling thread's network namespace. They see
// what the device receives, not what leaves through it. Several sockets share the frames by flow.
// The device is promiscuous while they are open. It may be down.
func OpenPacket(name string, queues int) (_ []*Queue, err error) {
	if err := checkName(opPacket, name); err != nil {
		return nil, err
	}
	if err := checkQueues(opPacket, name, queues); err != nil {
		return nil, err
	}
	dev, found, err := lookup(opPacket, name)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, noDevice(opPacket, name, "ip -brief link  (lists the devices)")
	}
	if dev.hwType != unix.ARPHRD_ETHER && dev.hwType != unix.ARPHRD_LOOPBACK {
		return nil, &OpError{opPacket, name,
			causef(fs.ErrInvalid, "not an Ethernet device%s", dev.kindNote()),
			"a device with link/ether in the output of ip link"}
	}
	var made []*Queue
	defer func() {
		if err != nil {
			closeAll(made)
		}
	}()
	group := 0
	for range queues {
		q, err := openPacket(name, dev.index)
		if err != nil {
			return nil, err
		}
		made = append(made, q)
		if queues > 1 {
			if group, err = joinFanout(q, len(made) == 1, group); err != nil {
				return nil, err
			}
		}
	}
	// This comes last, when nothing else can fail: it makes netlink events, and a caller that
	// follows the device would try again at each one, for ever.
	for _, q := range made {
		if err := bePromiscuous(q.fd, name, dev.index); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// bePromiscuous makes the device receive all frames for as long as the socket is open.
func bePromiscuous(fd int, name string, index int) error {
	membership := unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_PROMISC}
	err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &membership)
	if err != nil {
		return &OpError{"make promiscuous", name, err, ""}
	}
	return nil
}

func openPacket(name string, index int) (_ *Queue, err error) {
	// Protocol 0: no frame comes in before bind, in particular none from other devices.
	fd, err := unix.Socket(unix.AF_PACKET,
		unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err == unix.EPERM {
		return nil, permission(opPacket, name, netRaw, err)
	}
	if err != nil {
		return nil, &OpError{opPacket, name, err, ""}
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	headerLen, err := setPacketHeader(fd, name)
	if err != nil {
		return nil, err
	}
	for _, o := range []struct {
		op     string
		option int
	}{
		{"ask for VLAN tags on", unix.PACKET_AUXDATA},
		{"ignore outgoing frames of", unix.PACKET_IGNORE_OUTGOING},
	} {
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, o.option, 1); err != nil {
			return nil, &OpError{o.op, name, err, ""}
		}
	}
	setBuffer(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receiveBuffer)
	setBuffer(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, sendBuffer)
	// ETH_P_ALL also leaves it to the kernel to take a written frame's protocol from its EtherType
	// (packet_parse_headers, Linux 5.1). With a bound protocol that does not fit the frame, a
	// super-packet would get ENOMEM.
	const all = unix.ETH_P_ALL
	address := &unix.SockaddrLinklayer{Protocol: bits.ReverseBytes16(all), Ifindex: index}
	if err := unix.Bind(fd, address); err != nil {
		return nil, &OpError{"bind packet socket to", name, err, ""}
	}
	return newQueue(fd, kindPacket, name, headerLen, Offloads{true, true, true, true, true})
}

// setPacketHeader asks for a virtio-net header and returns its length.
func setPacketHeader(fd int, name string) (int, error) {
	err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR_SZ, vnet.HeaderLen)
	if err == nil {
		return vnet.HeaderLen, nil
	}
	if unsupported(err) { // before Linux 6.4
		err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1)
	}
	if err != nil {
		return 0, &OpError{"ask for virtio-net headers on", name, err, ""}
	}
	return vnet.MinHeaderLen, nil
}

// setBuffer sets a socket buffer to size, or without CAP_NET_ADMIN to what net.core.[rw]mem_max
// allows. A smaller buffer is not an error: the kernel counts what does not fit.
func setBuffer(fd, force, plain, size int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, size) != nil {
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, size)
	}
}

// joinFanout puts a socket into a group over which the kernel spreads the flows. The first socket
// makes the group, with a number that is free in the namespace, and returns that.
func joinFanout(q *Queue, first bool, group int) (int, error) {
	// The group's own flag replaces the sockets' PACKET_IGNORE_OUTGOING (fanout_add). Not every
	// kernel has the flag, and none reports that: Debian's 6.1.0-57 was seen to give the group
	// outgoing frames.
	if err := refuseOutgoing(q.fd); err != nil {
		return 0, &OpError{"filter what leaves through", q.name, err, ""}
	}
	value := unix.PACKET_FANOUT_HASH | unix.PACKET_FANOUT_FLAG_IGNORE_OUTGOING
	if first {
		value |= unix.PACKET_FANOUT_FLAG_UNIQUEID
	}
	err := unix.SetsockoptInt(q.fd, unix.SOL_PACKET, unix.PACKET_FANOUT, value<<16|group)
	if err == nil && first {
		group, err = unix.GetsockoptInt(q.fd, unix.SOL_PACKET, unix.PACKET_FANOUT)
		group &= 0xffff
	}
	if err != nil {
		// Kernels before 6.13 require that the device is up.
		return 0, &OpError{"share among queues", q.name, err, "ip link set dev " + q.name + " up"}
	}
	return group, nil
}

// refuseOutgoing makes a packet socket filter out the frames that leave through its device. A
// single socket does not need it: PACKET_IGNORE_OUTGOING is cheaper.
func refuseOutgoing(fd int) error {
	const (
		whole     = 1<<32 - 1
		frameType = whole - 0x1000 + 1 + 4 // SKF_AD_OFF + SKF_AD_PKTTYPE in linux/filter.h
	)
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: frameType},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.PACKET_OUTGOING, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: whole},
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

// packetState is nil if the device of a packet socket is up, else vnet.ErrDown, or vnet.ErrGone if
// it was deleted or moved away: the kernel then binds the socket to -1 (packet_notifier). An ioctl
// on a socket uses the socket's namespace, not the calling thread's.
func packetState(fd int) error {
	address, err := unix.Getsockname(fd)
	if err != nil {
		return vnet.ErrGone
	}
	bound, ok := address.(*unix.SockaddrLinklayer)
	if !ok || bound.Ifindex <= 0 {
		return vnet.ErrGone
	}
	ifr := new(unix.Ifreq)
	ifr.SetUint32(uint32(bound.Ifindex))
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFNAME, ifr); err != nil {
		return stateError(err)
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr); err != nil {
		return stateError(err)
	}
	if ifr.Uint16()&unix.IFF_UP == 0 {
		return vnet.ErrDown
	}
	return nil
}

// stateError is the error for a device whose state cannot be read.
func stateError(err error) error {
	if errors.Is(err, unix.ENODEV) {
		return vnet.ErrGone
	}
	return nil // not a fact about the device
}
