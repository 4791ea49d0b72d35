package tunio

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/vnet"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(string(bytes.ReplaceAll([]byte(s), []byte(" "), nil)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestInsertPutsTagBehindAddresses(t *testing.T) {
	const header = "aaaaaaaaaaaaaaaaaaaaaaaa"
	const addresses = "020000000001 020000000002"
	const needs = vnet.NeedsCsum
	for _, c := range []struct {
		name        string
		frame, want string
		tag         tag
		in, out     vnet.Header
		drop        vnet.Drop
	}{
		{"C-tag", addresses + "0800 45aa", addresses + "8100 a00a 0800 45aa", tag{true, 0x8100, 0xa00a},
			vnet.Header{Flags: needs, HdrLen: 66, CsumStart: 34, CsumOffset: 16},
			vnet.Header{Flags: needs, HdrLen: 70, CsumStart: 38, CsumOffset: 16}, vnet.Keep},
		{"S-tag before a C-tag", addresses + "8100 0005 86dd", addresses + "88a8 0fff 8100 0005 86dd",
			tag{true, 0x88a8, 0x0fff}, vnet.Header{}, vnet.Header{}, vnet.Keep},
		{"VID 0 is a tag", addresses + "0806", addresses + "8100 0000 0806", tag{true, 0x8100, 0},
			vnet.Header{}, vnet.Header{}, vnet.Keep},
		{"csum_start without NEEDS_CSUM stays", addresses + "0800", addresses + "8100 0001 0800",
			tag{true, 0x8100, 1}, vnet.Header{Flags: vnet.DataValid, CsumStart: 34},
			vnet.Header{Flags: vnet.DataValid, CsumStart: 34}, vnet.Keep},
		{"hdr_len does not wrap", addresses + "0800", addresses + "8100 0001 0800",
			tag{true, 0x8100, 1}, vnet.Header{HdrLen: 65535}, vnet.Header{HdrLen: 65535}, vnet.Keep},
		{"greatest csum_start", addresses + "0800", addresses + "8100 0001 0800", tag{true, 0x8100, 1},
			vnet.Header{Flags: needs, CsumStart: 65531}, vnet.Header{Flags: needs, CsumStart: 65535},
			vnet.Keep},
		{"csum_start that would wrap", addresses + "0800", addresses + "8100 0001 0800",
			tag{true, 0x8100, 1}, vnet.Header{Flags: needs, CsumStart: 65532},
			vnet.Header{Flags: needs, CsumStart: 65532}, vnet.DropBadCsum},
		{"13 bytes are no frame", addresses + "08", addresses + "08", tag{true, 0x8100, 1},
			vnet.Header{}, vnet.Header{}, vnet.DropRunt},
	} {
		t.Run(c.name, func(t *testing.T) {
			buf := unhex(t, header+c.frame)
			h := c.in
			got, drop := c.tag.insert(buf, vnet.HeaderLen, &h)
			if want := unhex(t, c.want); !bytes.Equal(got, want) {
				t.Errorf("frame\n got %x\nwant %x", got, want)
			}
			if h != c.out || drop != c.drop {
				t.Errorf("got %+v, %v; want %+v, %v", h, drop, c.out, c.drop)
			}
		})
	}
}

func TestRefusalOfErrno(t *testing.T) {
	for errno, want := range map[unix.Errno]vnet.Refusal{
		0:             vnet.Accepted,
		unix.EAGAIN:   vnet.Full,
		unix.ENOBUFS:  vnet.NoMemory,
		unix.ENOMEM:   vnet.NoMemory,
		unix.EMSGSIZE: vnet.TooBig,
		unix.EINVAL:   vnet.BadGSO,
		unix.ENETDOWN: vnet.Down,
		unix.EIO:      vnet.Down,
		unix.ENXIO:    vnet.Gone,
		unix.EBADFD:   vnet.Gone,
		unix.ENODEV:   vnet.Gone,
		unix.EBADF:    vnet.Gone,
		unix.EFAULT:   vnet.Failed,
		unix.EPERM:    vnet.Failed,
	} {
		if got := refusal(errno); got != want {
			t.Errorf("%v: got %v, want %v", errno, got, want)
		}
	}
}

// ENOBUFS of a packet socket is congestion behind it where it cannot be a lack of memory.
func TestCongestionIsAPacketSocketsAlone(t *testing.T) {
	for _, c := range []struct {
		socket bool
		n      int
		want   vnet.Refusal
	}{
		{true, 60, vnet.Congested},
		{true, vnet.LegacyGSOMaxSize, vnet.Congested},
		{true, vnet.LegacyGSOMaxSize + 1, vnet.NoMemory},
		{false, 60, vnet.NoMemory},
	} {
		tr := Transmitter{socket: c.socket}
		f := vnet.Frame{Head: make([]byte, c.n)}
		if got := tr.refusal(unix.ENOBUFS, &f); got != c.want {
			t.Errorf("%d bytes, packet socket %v: got %v, want %v", c.n, c.socket, got, c.want)
		}
		if got := tr.refusal(unix.ENOMEM, &f); got != vnet.NoMemory {
			t.Errorf("%d bytes, packet socket %v: ENOMEM is %v", c.n, c.socket, got)
		}
	}
}

// The kernel allocates hdr_len bytes in one piece, so it is never 0 and never the whole frame.
func TestOutHdrLenIsTheHeadersAtMost(t *testing.T) {
	const needs = vnet.NeedsCsum
	for _, c := range []struct {
		name string
		h    vnet.Header
		n    int
		want uint16
	}{
		{"plausible", vnet.Header{Flags: needs, GSO: 1, HdrLen: 66, CsumStart: 34}, 400000, 66},
		{"least TCP", vnet.Header{Flags: needs, GSO: 1, HdrLen: 54, CsumStart: 34}, 400000, 54},
		{"not told", vnet.Header{Flags: needs, GSO: 1, CsumStart: 34}, 400000, 94},
		{"without TCP", vnet.Header{Flags: needs, GSO: 4, HdrLen: 54, CsumStart: 54}, 400000, 114},
		{"whole frame", vnet.Header{Flags: needs, GSO: 1, HdrLen: 65535, CsumStart: 34}, 65535, 94},
		{"short frame", vnet.Header{Flags: needs, GSO: 1, CsumStart: 34}, 60, 60},
		{"UDP", vnet.Header{Flags: needs, GSO: 5, HdrLen: 1400, CsumStart: 34}, 60000, 42},
		{"no checksum start", vnet.Header{GSO: 1, HdrLen: 40000}, 60000, 122},
		{"no checksum start, plausible", vnet.Header{GSO: 1, HdrLen: 66}, 60000, 66},
		{"checksum start far out", vnet.Header{Flags: needs, GSO: 1, CsumStart: 65500}, 400000, 65535},
	} {
		if got := outHdrLen(&c.h, c.n); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}

func TestOutHeaderHidesWhatTheKernelMustNotSee(t *testing.T) {
	f := vnet.Frame{Head: make([]byte, 60), Hdr: vnet.Header{
		Flags: 0xff, GSO: vnet.GSONone, HdrLen: 7, GSOSize: 9, CsumStart: 34, CsumOffset: 6}}
	want := vnet.Header{Flags: vnet.NeedsCsum | vnet.DataValid, CsumStart: 34, CsumOffset: 6}
	if got := outHeader(&f); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	f.Hdr.Flags = 4
	if got, want := outHeader(&f), (vnet.Header{}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Scratch must not keep a batch alive or point into an arena that is unmapped.
func TestTransmitterForgetsTheFrames(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	q, err := Adopt(fds[0], "pair", vnet.HeaderLen)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	tr := q.Transmitter()
	f := vnet.Frame{Head: make([]byte, 60), Body: [][]byte{make([]byte, 10), make([]byte, 10)}}
	if n, _, err := tr.WriteBatch([]vnet.Frame{f, f}); n != 2 {
		t.Fatal(n, err)
	}
	for i, v := range tr.gather.iovs {
		if v != (unix.Iovec{}) {
			t.Fatalf("iovec %d still points at %d bytes", i, v.Len)
		}
	}
}

func TestNameIsChecked(t *testing.T) {
	for name, class := range map[string]error{
		"":                 os.ErrInvalid,
		".":                os.ErrInvalid,
		"a/b":              os.ErrInvalid,
		"a b":              os.ErrInvalid,
		"tap%d":            os.ErrInvalid,
		"a:0":              os.ErrInvalid,
		"sixteen-bytes-xx": unix.ENAMETOOLONG,
		"fifteen-bytes-x":  nil,
	} {
		err := checkName(opTap, name)
		if class == nil && err != nil || !errors.Is(err, class) {
			t.Errorf("%q: got %v, want %v", name, err, class)
		}
	}
}

func TestParseDev(t *testing.T) {
	if got, err := parseDev("246:1\n"); err != nil || got != unix.Mkdev(246, 1) {
		t.Errorf("got %d, %v", got, err)
	}
	for _, s := range []string{"", "246", "246:", "a:b", ":1"} {
		if _, err := parseDev(s); err == nil {
			t.Errorf("%q was taken", s)
		}
	}
}
