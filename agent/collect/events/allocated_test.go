package events

import (
	"maps"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

func TestClassCountsSince(t *testing.T) {
	key := func(klass uint64, serial uint32) bpf.CountedClass {
		return bpf.CountedClass{Klass: klass, Serial: serial}
	}
	n := func(objects, bytes uint64) bpf.ClassCount { return bpf.ClassCount{Objects: objects, Bytes: bytes} }
	before := classCounts{key(1, 7): n(10, 160), key(2, 7): n(5, 80), key(1, 8): n(1, 16), key(9, 7): n(3, 3)}
	after := classCounts{key(1, 7): n(30, 480), key(2, 7): n(5, 80), key(3, 7): n(2, 64), key(1, 8): n(4, 64)}
	for _, c := range []struct {
		name   string
		before classCounts
		serial uint32
		want   map[uint64]bpf.ClassCount
	}{
		{"of one VM", before, 7, map[uint64]bpf.ClassCount{1: n(20, 320), 3: n(2, 64)}},
		{"of the other", before, 8, map[uint64]bpf.ClassCount{1: n(3, 48)}},
		{"of none", before, 9, map[uint64]bpf.ClassCount{}},
		{"from the beginning", nil, 7, map[uint64]bpf.ClassCount{1: n(30, 480), 2: n(5, 80), 3: n(2, 64)}},
		{"backwards", classCounts{key(1, 8): n(5, 80)}, 8, map[uint64]bpf.ClassCount{}},
	} {
		if got := after.since(c.before, c.serial); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
