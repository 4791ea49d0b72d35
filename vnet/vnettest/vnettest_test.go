package vnettest

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"sluice/vnet"
)

// TestSuperBytes holds the builder against packets that were made by hand.
func TestSuperBytes(t *testing.T) {
	for name, c := range map[string]struct {
		spec Spec
		hdr  vnet.Header
		want string
	}{
		"TCP super-packet over IPv4, tagged": {
			Spec{
				Payload: Pattern(5), GSOSize: 2, Tags: []uint16{0x2064}, ID: 0x1234, TOS: 2,
				Seq: 1, Ack: 2, TCPFlags: ACK | CWR, Window: 3,
			},
			vnet.Header{Flags: 1, GSO: 0x81, HdrLen: 58, GSOSize: 2, CsumStart: 38, CsumOffset: 16},
			`02005e100002 02005e100001 81002064 0800
			 4502 002d 1234 4000 4006 a491 c0000201 c0000202
			 9c40 1451 00000001 00000002 5090 0003 8423 0000
			 01203f5e7d`,
		},
		"UDP over IPv6 with a routing header, finished": {
			Spec{
				V6: true, UDP: true, Payload: Pattern(5), TOS: 3, FlowLabel: 0xabcde,
				Ext: []Ext{Routing}, Csum: Full,
			},
			vnet.Header{HdrLen: 78},
			`02005e100002 02005e100001 86dd
			 603abcde 001d 2b 40
			 20010db8000000000000000000000001 20010db8000000000000000000000002
			 1101 fd000102030405060708090a0b0c
			 9c40 1451 000d 364f 01203f5e7d`,
		},
	} {
		want, err := hex.DecodeString(strings.Join(strings.Fields(c.want), ""))
		if err != nil {
			t.Fatal(err)
		}
		f := Super(c.spec)
		if f.Hdr != c.hdr || !bytes.Equal(f.Head, want) || f.Body != nil {
			t.Errorf("%s:\n%+v\n%x, want\n%+v\n%x", name, f.Hdr, f.Head, c.hdr, want)
		}
	}
}

// TestBigIPv6Forms: above 65535 bytes of payload the length is 0, and in the
// hop-by-hop form an option holds it.
func TestBigIPv6Forms(t *testing.T) {
	const fits = 65535 - vnet.TCPLen
	for _, c := range []struct {
		payload int
		form    vnet.Form
		want    string // from payload_len to hop limit, and from byte 40 on
	}{
		{fits, vnet.FormHBH, "ffff0640 9c401451"},
		{fits + 1, vnet.FormPlain, "00000640 9c401451"},
		{fits + 1, vnet.FormHBH, "00000040 0600c20400010008"},
	} {
		f := Super(Spec{V6: true, Payload: Pattern(c.payload), GSOSize: 1448, Form: c.form})
		ip := f.Head[vnet.EthLen:]
		got := hex.EncodeToString(ip[4:8]) + " " + hex.EncodeToString(ip[40:])
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("payload %d, %v: %.40s, want %s", c.payload, c.form, got, c.want)
		}
	}
}

func TestPattern(t *testing.T) {
	if p := Pattern(300000); bytes.IndexByte(p, 0) >= 0 {
		t.Error("the pattern holds a 0")
	}
}

func TestScatter(t *testing.T) {
	f := Scatter(vnet.Frame{Hdr: vnet.Header{GSOSize: 3}, Head: []byte("abcdefg")}, 2, 0, 3)
	if string(f.Head) != "ab" || len(f.Body) != 3 || string(f.Body[1]) != "cde" ||
		string(f.Body[2]) != "fg" || f.Hdr.GSOSize != 3 {
		t.Errorf("%q, %q", f.Head, f.Body)
	}
}

func TestSum(t *testing.T) {
	// The example of RFC 1071, 3.
	if got := Sum([]byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}); got != 0xddf2 {
		t.Errorf("%#x, want 0xddf2", got)
	}
	if got := Sum([]byte{0x12, 0x34, 0x56}); got != 0x6834 {
		t.Errorf("odd length: %#x, want 0x6834", got)
	}
}
