package page

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"testing"
)

// packet lays values out as C does; these messages have no padding.
func packet(values ...any) []byte {
	var b bytes.Buffer
	for _, v := range values {
		if s, ok := v.(string); ok {
			v = []byte(s)
		}
		if err := binary.Write(&b, binary.NativeEndian, v); err != nil {
			panic(err)
		}
	}
	return b.Bytes()
}

type (
	n16 = uint16
	n32 = uint32
	n64 = uint64
)

var (
	goodHello  = packet(n32(1), n32(1), "vm\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	goodForget = packet(n32(3), n32(7), n64(0x1000), n64(99))
)

// methodPacket is a METHOD with these lengths, followed by anything.
func methodPacket(id uint32, begin uint64, size uint32, name, file n16, sites n32, rest ...any) []byte {
	return append(packet(n32(2), id, begin, n64(5), size, n32(12), name, file, sites), packet(rest...)...)
}

func TestParse(t *testing.T) {
	for _, test := range []struct {
		name string
		in   []byte
		want any // nil: an error
	}{
		{"hello", goodHello, &hello{1, "vm"}},
		{"hello of another version", packet(n32(1), n32(9), make([]byte, 16)), &hello{9, ""}},
		{"hello whose name fills its field", packet(n32(1), n32(1), "0123456789abcdef"), &hello{1, "0123456789abcdef"}},
		{"hello, short", goodHello[:23], nil},
		{"hello, long", append(bytes.Clone(goodHello), 0), nil},
		{"forget", goodForget, &forget{7, 0x1000, 99}},
		{"forget, short", goodForget[:23], nil},
		{"method", methodPacket(7, 0x1000, 64, 3, 2, 2, "addf.\x00\x00\x00", n32(9), n32(3), n32(20), n32(4)),
			&method{7, 0x1000, 5, 64, 12, []byte("add"), []byte("f."), []site{{9, 3}, {20, 4}}}},
		{"method without anything", methodPacket(7, 0x1000, 64, 0, 0, 0),
			&method{id: 7, begin: 0x1000, time: 5, size: 64, line: 12, name: []byte{}, file: []byte{}}},
		{"method whose sites need no padding", methodPacket(7, 0x1000, 64, 2, 2, 1, "addf", n32(9), n32(3)),
			&method{7, 0x1000, 5, 64, 12, []byte("ad"), []byte("df"), []site{{9, 3}}}},
		{"method without padding behind its names", methodPacket(7, 0x1000, 64, 1, 0, 0, "a"),
			&method{id: 7, begin: 0x1000, time: 5, size: 64, line: 12, name: []byte("a"), file: []byte{}}},
		{"method, id 0", methodPacket(0, 0x1000, 64, 0, 0, 0), nil},
		{"method, no code", methodPacket(7, 0x1000, 0, 0, 0, 0), nil},
		{"method past the end of memory", methodPacket(7, 1<<64-8, 64, 0, 0, 0), nil},
		{"method, names longer than the packet", methodPacket(7, 0x1000, 64, 65535, 65535, 0, "a"), nil},
		{"method, one site too many", methodPacket(7, 0x1000, 64, 1, 0, 2, "a\x00\x00\x00", n32(1), n32(1)), nil},
		{"method, sites beyond counting", methodPacket(7, 0x1000, 64, 0, 0, 1<<32-1), nil},
		{"method, short", methodPacket(7, 0x1000, 64, 0, 0, 0)[:39], nil},
		{"name of a version", packet(n32(4), n32(7), n32(2), n32(8), "unrolled"), &named{7, 2, []byte("unrolled")}},
		{"version without a name", packet(n32(4), n32(7), n32(2), n32(0)), &named{7, 2, []byte{}}},
		{"name of a version, short", packet(n32(4), n32(7), n32(2), n32(9), "unrolled"), nil},
		{"name of a version, long", packet(n32(4), n32(7), n32(2), n32(7), "unrolled"), nil},
		{"name of a version of no method", packet(n32(4), n32(0), n32(2), n32(8), "unrolled"), nil},
		{"unknown type", packet(n32(5), make([]byte, 40)), nil},
		{"type 0", make([]byte, 64), nil},
		{"empty", nil, nil},
		{"three bytes", []byte{1, 0, 0}, nil},
		{"longer than packets are", make([]byte, maxPacket+1), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := parse(test.in)
			if (err != nil) != (test.want == nil) || err != nil && !errors.Is(err, errMessage) {
				t.Fatalf("%+v, error %v", got, err)
			}
			if err == nil && !reflect.DeepEqual(got, test.want) {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}

// FuzzParse: a packet is a message or an error, and no message holds more than its packet did. A
// parsed method can be registered and found again.
func FuzzParse(f *testing.F) {
	f.Add(goodHello)
	f.Add(goodForget)
	f.Add(methodPacket(7, 0x1000, 64, 3, 2, 2, "addf.\x00\x00\x00", n32(9), n32(3), n32(20), n32(4)))
	f.Add(methodPacket(7, 1<<64-65, 64, 0, 0, 1<<29))
	f.Add(packet(n32(4), n32(7), n32(2), n32(8), "unrolled"))
	f.Add(methodPacket(1<<32-1, 0, 1<<32-1, 1, 1, 0, "\xff\n"))
	late := methodPacket(1<<32-1, 0, 1<<32-1, 0, 0, 0)
	binary.NativeEndian.PutUint64(late[16:], forever)
	f.Add(late)
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := parse(in)
		if (err == nil) == (got == nil) {
			t.Fatalf("%v with error %v", got, err)
		}
		m, ok := got.(*method)
		if !ok {
			return
		}
		if n := methodSize + len(m.name) + len(m.file) + siteSize*len(m.sites); n > len(in) {
			t.Fatalf("%d bytes out of %d", n, len(in))
		}
		c := newTestMap()
		now := min(m.time, forever-1) // the end of all times is no moment
		if v := c.register(m, now); v != taken {
			t.Fatalf("not taken: %s", v)
		}
		if _, offset, _, ok := c.caller(m.begin+uint64(m.size), now); !ok || offset != m.size {
			t.Fatalf("a call at the end of %+v is not found", m)
		}
		if _, ok := c.callee(uint64(m.id)); !ok {
			t.Fatalf("%+v is no callee", m)
		}
	})
}
