package javaheap

import (
	"errors"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

func TestCardSchema(t *testing.T) {
	const base = 0x7f00_0000_0000
	image := &vmtest.Image{Base: 0x10000}
	table := image.Words(0, 0, base)   // a CardTable
	set := image.Words(0, 0, 0, table) // a CardTableBarrierSet
	static := image.Words(set)
	field := func(words uint32) vmstructs.Field {
		return vmstructs.Field{Offset: words * vmstructs.WordSize, Width: vmstructs.WordSize, Known: true}
	}
	whole := CardSchema{barrierSet: static, table: field(3), base: field(2)}
	errNoFlag := errors.New("no such flag")
	for _, test := range []struct {
		name   string
		schema CardSchema
		flags  map[string]int64
		want   vmruntime.Cards
		err    error
	}{
		{"JDK 17", whole, map[string]int64{"G1UpdateBufferSize": 256},
			vmruntime.Cards{Base: base, Bytes: 512, Queue: 256}, nil},
		{"with sizes", whole, map[string]int64{"G1UpdateBufferSize": 251, "GCCardSizeInBytes": 0x7700000400},
			vmruntime.Cards{Base: base, Bytes: 1024, Queue: 251}, nil},
		{"no power of two", whole, map[string]int64{"G1UpdateBufferSize": 256, "GCCardSizeInBytes": 500},
			vmruntime.Cards{}, vmruntime.ErrMalformed},
		{"no bytes", whole, map[string]int64{"G1UpdateBufferSize": 256, "GCCardSizeInBytes": 0}, vmruntime.Cards{},
			vmruntime.ErrMalformed},
		{"no queue", whole, map[string]int64{"G1UpdateBufferSize": 0}, vmruntime.Cards{}, vmruntime.ErrMalformed},
		{"a negative queue", whole, map[string]int64{"G1UpdateBufferSize": -1}, vmruntime.Cards{},
			vmruntime.ErrMalformed},
		{"no flag", whole, nil, vmruntime.Cards{}, errNoFlag},
		{"no barrier set", CardSchema{table: field(3), base: field(2)}, nil, vmruntime.Cards{}, errNoCards},
		{"no table", CardSchema{barrierSet: static, base: field(2)}, nil, vmruntime.Cards{}, errNoCards},
	} {
		got, err := test.schema.Read(vmstructs.Reader{Mem: image.Memory()}, func(name string) (int64, error) {
			if n, ok := test.flags[name]; ok {
				return n, nil
			}
			return 0, errNoFlag
		})
		if !errors.Is(err, test.err) || test.err == nil && got != test.want {
			t.Errorf("%s: %+v, %v; want %+v, %v", test.name, got, err, test.want, test.err)
		}
	}
	away := CardSchema{barrierSet: 8, table: field(3), base: field(2)}
	if got, err := away.Read(vmstructs.Reader{Mem: image.Memory()}, nil); err == nil {
		t.Errorf("read %+v where nothing is", got)
	}
}
