package page

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
)

func newTestMap() *codeMap { return newCodeMap("vm", new(atomic.Int64)) }

// put registers [begin, begin + size) as code of id, whose name is m followed by the id.
func put(t testing.TB, c *codeMap, id uint32, begin uint64, size uint32, time uint64, sites ...site) {
	t.Helper()
	m := &method{id: id, begin: begin, size: size, time: time, name: fmt.Appendf(nil, "m%d", id), sites: sites}
	if v := c.register(m, time+1); v != taken {
		t.Fatalf("not taken: %s", v)
	}
}

func TestCodeMapInTime(t *testing.T) {
	c := newTestMap()
	put(t, c, 1, 0x1000, 0x100, 10, site{0x20, 7}, site{0x10, 6})
	put(t, c, 2, 0x1100, 0x80, 10)
	put(t, c, 1, 0x1000, 0x100, 10, site{0x18, 8}) // the rest of its sites
	c.forget(&forget{1, 0x1000, 100}, 105)
	put(t, c, 3, 0x1000, 0x40, 200)  // in the same place
	put(t, c, 4, 0x1040, 0x200, 300) // over what m2 still has
	for _, test := range []struct {
		pc, time uint64
		want     string // method, offset, line
	}{
		{0x1020, 10, "m1+0x20:7"},
		{0x1010, 99, "m1+0x10:6"},
		{0x1018, 50, "m1+0x18:8"},
		{0x1019, 50, "m1+0x19:0"},
		{0x1020, 9, ""},   // not yet
		{0x1020, 100, ""}, // no more
		{0x1020, 199, ""},
		{0x1020, 200, "m3+0x20:0"},
		{0x1041, 250, ""},
		{0x1100, 50, "m1+0x100:0"}, // returns behind its end: the call was its last instruction
		{0x1101, 50, "m2+0x1:0"},
		{0x1101, 299, "m2+0x1:0"},
		{0x1101, 300, "m4+0xc1:0"}, // nobody reported that m2 was removed, but it is replaced
		{0x1240, 300, "m4+0x200:0"},
		{0x1241, 300, ""},
		{0x1000, 50, ""},
		{0, 50, ""},
		{1<<64 - 1, 50, ""},
	} {
		got := ""
		if s, offset, line, ok := c.caller(test.pc, test.time); ok {
			got = fmt.Sprintf("%s+%#x:%d", s.Value().Function, offset, line)
		}
		if got != test.want {
			t.Errorf("a call that returned to %#x at %d came from %q, want %q", test.pc, test.time, got, test.want)
		}
	}
}

// For any layout of code, the map and a plain list give the same answers.
func TestCodeMapAgainstList(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		c := newTestMap()
		type span struct {
			id    uint32
			begin uint64
			size  uint32
		}
		var list []span
		at := random.Uint64N(1 << 40)
		for id := uint32(1); id <= 200; id++ {
			s := span{id, at, 1 + random.Uint32N(1<<random.UintN(18))}
			list = append(list, s)
			at += uint64(s.size) + random.Uint64N(3)*16
		}
		random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		for _, s := range list {
			put(t, c, s.id, s.begin, s.size, 1)
		}
		for _, s := range list {
			pc := s.begin + 1 + random.Uint64N(uint64(s.size))
			if got, _, _, ok := c.caller(pc, 5); !ok || got.Value().Function != fmt.Sprintf("m%d", s.id) {
				t.Fatalf("%#x is in %v, want m%d at %#x", pc, got, s.id, s.begin)
			}
		}
	}
}

func TestCodeMapNames(t *testing.T) {
	c := newTestMap()
	for _, m := range []*method{
		{id: 1, begin: 0x10, size: 1, name: []byte("first"), file: []byte("a.vm")},
		{id: 1, begin: 0x20, size: 1, name: []byte("second")}, // a name is for good
		{id: 2, begin: 0x30, size: 1},
		{id: 3, begin: 0x40, size: 1, name: []byte("line\nbreak\xff")},
		{id: 4, begin: 0x50, size: 1, name: []byte(strings.Repeat("x", 4000))},
	} {
		c.register(m, 1)
	}
	for id, want := range map[uint64]string{1: "first", 2: "[unknown]", 3: `line\nbreak\xff`} {
		if s, ok := c.callee(id); !ok || s.Value().Function != want {
			t.Errorf("method %d is %v, want %s", id, s, want)
		}
	}
	if s, _ := c.callee(4); len(s.Value().Function) > 512 {
		t.Errorf("name of %d bytes", len(s.Value().Function))
	}
	if s, _ := c.callee(1); s.Value().File != "a.vm" || s.Value().Mapping.Value().File != "[jit:vm]" {
		t.Errorf("frame %+v", s.Value())
	}
	for _, id := range []uint64{0, 5, 1 << 32, 1<<32 + 1} {
		if s, ok := c.callee(id); ok {
			t.Errorf("method %d is %v", id, s)
		}
	}
}

func TestCodeMapBounds(t *testing.T) {
	t.Run("methods", func(t *testing.T) {
		c := newTestMap()
		for id := range uint32(maxMethods) {
			put(t, c, id+1, uint64(id)*16, 16, 1)
		}
		if v := c.register(&method{id: 1 << 30, begin: 1, size: 1}, 1); v != tooManyMethods {
			t.Errorf("one more is %q", v)
		}
	})
	t.Run("bytes of a guest", func(t *testing.T) {
		c := newTestMap()
		sites := make([]site, 500)
		n := 0
		for c.register(&method{id: 1, begin: uint64(n) * 16, size: 16, sites: sites}, 1) == taken {
			n++
		}
		if want := maxGuestBytes / (overhead + 500*siteSize); n < want-1 || n > want {
			t.Errorf("%d versions were taken, want %d", n, want)
		}
	})
	t.Run("bytes of all guests", func(t *testing.T) {
		var all atomic.Int64
		all.Store(maxAllBytes - 600)
		c := newCodeMap("vm", &all)
		put(t, c, 1, 16, 16, 1)
		if v := c.register(&method{id: 2, begin: 32, size: 16}, 1); v != tooManyBytes {
			t.Errorf("one more is %q", v)
		}
		c.close()
		if n := all.Load(); n != maxAllBytes-600-0 && n > maxAllBytes-600 {
			t.Errorf("%d bytes are charged after the guest went", n)
		}
	})
	t.Run("code at one place", func(t *testing.T) {
		c := newTestMap()
		for n := range uint64(1000) {
			put(t, c, 1, 0x1000, 16, n)
		}
		if n := len(c.versions.blocks[block{4, 0x100}]); n > maxHistory {
			t.Errorf("%d versions are kept", n)
		}
		if c.bytes > (maxHistory+2)*(overhead+16) {
			t.Errorf("%d bytes are charged", c.bytes)
		}
	})
	t.Run("forgotten code", func(t *testing.T) {
		c := newTestMap()
		for n := range uint64(1000) {
			at := n * 1e8
			put(t, c, 1, n*16, 16, at)
			if v := c.forget(&forget{1, n * 16, at + 5}, at+5); v != taken {
				t.Fatal(v)
			}
		}
		if n := len(c.versions.blocks); n > 102 {
			t.Errorf("%d versions are kept of the last 10 s, want 100", n)
		}
		if v := c.forget(&forget{1, 0, 1}, 1); v != unknownCode {
			t.Errorf("forgetting once more is %q", v)
		}
	})
	t.Run("a clock that is ahead", func(t *testing.T) {
		c := newTestMap()
		c.register(&method{id: 1, begin: 16, size: 16, time: 1 << 63}, 100)
		if _, _, _, ok := c.caller(20, 100); !ok {
			t.Error("the code is not there yet")
		}
	})
}
