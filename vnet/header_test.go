package vnet_test

import (
	"bytes"
	"testing"

	"sluice/vnet"
)

func TestHeaderBytes(t *testing.T) {
	h := vnet.Header{
		Flags: vnet.NeedsCsum, GSO: vnet.GSOTCPv4 | vnet.GSOECN,
		HdrLen: 0x0142, GSOSize: 0x05a8, CsumStart: 0x0322, CsumOffset: 0x0410,
	}
	want := []byte{0x01, 0x81, 0x42, 0x01, 0xa8, 0x05, 0x22, 0x03, 0x10, 0x04, 0x01, 0x00}
	for _, n := range []int{vnet.MinHeaderLen, vnet.HeaderLen} {
		got := bytes.Repeat([]byte{0xee}, n) // a reused buffer
		h.Encode(got)
		if !bytes.Equal(got, want[:n]) {
			t.Errorf("%d bytes: % x, want % x", n, got, want[:n])
		}
		var back vnet.Header
		back.Decode(got)
		if back != h {
			t.Errorf("%d bytes: decoded %+v, want %+v", n, back, h)
		}
	}
}

// FuzzHeader: every header comes back from its bytes, and every 10 bytes from
// their header.
func FuzzHeader(f *testing.F) {
	f.Add([]byte{1, 0x81, 66, 0, 0xa8, 5, 34, 0, 16, 0})
	f.Add(bytes.Repeat([]byte{0xff}, 10))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < vnet.MinHeaderLen {
			return
		}
		var h, back vnet.Header
		h.Decode(b)
		got := make([]byte, vnet.HeaderLen)
		h.Encode(got)
		if !bytes.Equal(got[:10], b[:10]) {
			t.Fatalf("% x, want % x", got[:10], b[:10])
		}
		if back.Decode(got); back != h {
			t.Fatalf("%+v, want %+v", back, h)
		}
	})
}

func TestHeaderCheck(t *testing.T) {
	type hdr = vnet.Header
	const needs = vnet.NeedsCsum
	tcp := hdr{Flags: needs, GSO: vnet.GSOTCPv4, GSOSize: 1448, CsumStart: 34, CsumOffset: 16}
	udp := hdr{Flags: needs, GSO: vnet.GSOUDPL4, GSOSize: 1400, CsumStart: 34, CsumOffset: 6}
	edit := func(h hdr, edit func(*hdr)) hdr {
		edit(&h)
		return h
	}
	for name, c := range map[string]struct {
		h    hdr
		n    int
		want vnet.Drop
	}{
		"P17: nothing":             {hdr{}, 0, vnet.DropRunt},
		"P17: 13 bytes":            {hdr{}, 13, vnet.DropRunt},
		"14 bytes":                 {hdr{}, 14, vnet.Keep},
		"longest":                  {hdr{}, 524279, vnet.Keep},
		"longer":                   {hdr{}, 524280, vnet.DropTooLong},
		"P16: start 200 of 60":     {hdr{Flags: needs, CsumStart: 200}, 60, vnet.DropBadCsum},
		"P16: one byte too far":    {hdr{Flags: needs, CsumStart: 34, CsumOffset: 25}, 60, vnet.DropBadCsum},
		"ends with the frame":      {hdr{Flags: needs, CsumStart: 34, CsumOffset: 24}, 60, vnet.Keep},
		"P16: offset 65535":        {hdr{Flags: needs, CsumStart: 34, CsumOffset: 65535}, 60, vnet.DropBadCsum},
		"a sum that wraps 16 bits": {hdr{Flags: needs, CsumStart: 65535, CsumOffset: 20}, 60, vnet.DropBadCsum},
		"csum in Ethernet":         {hdr{Flags: needs, CsumStart: 13, CsumOffset: 16}, 60, vnet.DropBadCsum},
		"P20: no flag, no rule":    {hdr{CsumStart: 200, CsumOffset: 65535}, 60, vnet.Keep},
		"hdr_len is a hint":        {hdr{HdrLen: 65535}, 60, vnet.Keep},

		"TCP":                {tcp, 3000, vnet.Keep},
		"TCP with ECN":       {edit(tcp, func(h *hdr) { h.GSO |= vnet.GSOECN }), 3000, vnet.Keep},
		"TCPv6":              {edit(tcp, func(h *hdr) { h.GSO = vnet.GSOTCPv6 }), 3000, vnet.Keep},
		"TCP without csum":   {edit(tcp, func(h *hdr) { h.Flags = 0 }), 3000, vnet.Keep},
		"TCP csum_offset 14": {edit(tcp, func(h *hdr) { h.CsumOffset = 14 }), 3000, vnet.DropBadGSO},
		"TCP header cut off": {tcp, 34 + 19, vnet.DropBadGSO},
		"TCP header only":    {tcp, 34 + 20, vnet.Keep},
		"gso_size 0":         {edit(tcp, func(h *hdr) { h.GSOSize = 0 }), 3000, vnet.DropBadGSO},
		"gso_size 65534":     {edit(tcp, func(h *hdr) { h.GSOSize = 65534 }), 3000, vnet.Keep},
		"gso_size 65535":     {edit(tcp, func(h *hdr) { h.GSOSize = 65535 }), 3000, vnet.DropBadGSO},
		"USO":                {udp, 3000, vnet.Keep},
		"USO without csum":   {edit(udp, func(h *hdr) { h.Flags = 0 }), 3000, vnet.DropBadGSO},
		"USO with ECN":       {edit(udp, func(h *hdr) { h.GSO |= vnet.GSOECN }), 3000, vnet.DropBadGSO},
		"USO csum_offset 16": {edit(udp, func(h *hdr) { h.CsumOffset = 16 }), 3000, vnet.DropBadGSO},
		"UFO":                {edit(udp, func(h *hdr) { h.GSO = vnet.GSOUDP }), 3000, vnet.DropUnsupportedGSO},
		"tunnel over IPv4":   {edit(tcp, func(h *hdr) { h.GSO |= vnet.GSOTunnel4 }), 3000, vnet.DropUnsupportedGSO},
		"tunnel over IPv6":   {edit(tcp, func(h *hdr) { h.GSO |= vnet.GSOTunnel6 }), 3000, vnet.DropUnsupportedGSO},
		"type 2":             {edit(tcp, func(h *hdr) { h.GSO = 2 }), 3000, vnet.DropBadGSO},
		"AccECN, not merged": {edit(tcp, func(h *hdr) { h.GSO = 0x11 }), 3000, vnet.DropBadGSO},
		"only ECN":           {edit(tcp, func(h *hdr) { h.GSO = vnet.GSOECN }), 3000, vnet.DropBadGSO},
	} {
		if got := c.h.Check(c.n); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
