package probesite

import (
	"errors"
	"strings"
	"testing"
)

// callerOf is a function whose code begins with a call of f, which is the byte before it.
func callerOf(behind string) []routine {
	return []routine{{"f", "c3"}, {"g", "e8 fa ff ff ff" + behind}}
}

func TestAfterCalls(t *testing.T) {
	for _, test := range []struct {
		name        string
		behind      string
		conditional bool
		at          uint64 // behind the call
		distance    int
		kind        Kind
		reason      string // why there is none
	}{
		{"a jump on the result", "85c0 7f02 c3", true, 2, 1, CondJump, ""},
		{"the result is kept first", "4189c4 84c0 7402 c3", true, 5, 2, CondJump, ""},
		{"a jump at once", "eb02 c3", false, 0, 0, Jump, ""},
		{"but not on the result", "eb02 c3", true, 0, 0, 0, "jmp at +0x5 comes before a jump on a flag"},
		{"another call", "4889df e800000000 c3", false, 3, 1, Call, ""},
		{"a nop goes by if the result is wanted", "90 85c0 7f02 c3", true, 3, 2, CondJump, ""},
		{"and is a site otherwise", "90 85c0 7f02 c3", false, 0, 0, Nop, ""},
		{"memory is written", "8903 7f02 c3", false, 0, 0, 0, "mov %eax,(%rbx)"},
		{"a return", "c3 7f02", false, 0, 0, 0, "ret"},
		{"pops and a return", "5b 5d c3", false, 0, 0, 0, "ret"},
		{"the result is overwritten", "31c0 7402 c3", true, 0, 0, 0, "overwrites the result"},
		{"which does not matter then", "31c0 7402 c3", false, 2, 1, CondJump, ""},
		{"a jump to the site", "85c0 7f02 90 75fb c3", true, 0, 0, 0, "a jump leads to between"},
		{"a jump to behind the call", "85c0 7f02 90 75f9 c3", true, 0, 0, 0, "a jump leads to between"},
		{"a jump to the call", "85c0 7f02 90 75f4 c3", true, 2, 1, CondJump, ""},
		{"too far", strings.Repeat("4889db", 8) + "7402", true, 0, 0, 0, "none of the 8"},
		{"the end of the function", "", true, 0, 0, 0, "none of the 8"},
		{"data behind it", "85c0 7f02 06", true, 0, 0, 0, "cannot decode"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := finderOf(t, imageOf(t, nil, callerOf(test.behind)...))
			r, err := f.AfterCalls(Calls{Callee: "f", Conditional: test.conditional})
			if test.reason != "" {
				if !errors.Is(err, ErrNoSite) || !strings.Contains(err.Error(), test.reason) {
					t.Fatalf("%+v, %v, want %q", r, err, test.reason)
				}
				return
			}
			if err != nil || len(r.Sites) != 1 || len(r.Missed) != 0 {
				t.Fatalf("%+v, %v", r, err)
			}
			const call = codeAddress + 1
			s := r.Sites[0]
			if s.Address != call+5+test.at || s.Call != call || s.Distance != test.distance || s.Kind != test.kind ||
				s.Function != "g" {
				t.Errorf("%+v, want %v at %#x", s, test.kind, call+5+test.at)
			}
		})
	}
}

// Only real calls count, and all of them are accounted for.
func TestAfterCallsOfSeveral(t *testing.T) {
	f := finderOf(t, imageOf(t, nil,
		routine{"_ZN1A1fEv", "55 e81d000000 85c0 7400 c3"},     // 5000: calls its part, which does not count
		routine{"_ZN1A1gEv", "e8f0ffffff 85c0 7400 c3"},        // 500b: calls it
		routine{"_ZN1A1hEv", "48b8 e8e4ffffff 000000 85c0 c3"}, // 5015: a constant that looks like a call
		routine{"other", "90"},
		routine{"_ZN1A1fEv.part.0", "c3"},                         // 5023
		routine{"_ZN1A1kEv.cold", "e8faffffff 84c0 0f8500000000"}, // calls the part
		routine{"tail", "31c0 e9c8ffffff 7400 c3"},                // 5031: jumps to it
	))
	table, err := f.symbols()
	if err != nil {
		t.Fatal(err)
	}
	addr := map[string]uint64{}
	for i := range table.Len() {
		addr[table.Name(i)] = table.Start(i)
	}
	r, err := f.AfterCalls(Calls{Callee: "A::f", Conditional: true})
	if err != nil {
		t.Fatalf("%+v, %v; %x", r, err, addr)
	}
	if len(r.Sites) != 2 || r.Sites[0].Function != "_ZN1A1gEv" || r.Sites[1].Function != "_ZN1A1kEv.cold" {
		t.Errorf("sites: %+v; %x", r.Sites, addr)
	}
	if len(r.Missed) != 1 || r.Missed[0].Function != "tail" || r.Missed[0].Address != addr["tail"]+2 ||
		!strings.Contains(r.Missed[0].Reason, "replaces a call") {
		t.Errorf("missed: %+v; %x", r.Missed, addr)
	}
	r, err = f.AfterCalls(Calls{Callee: "A::f", In: "A::k", Conditional: true})
	if err != nil || len(r.Sites) != 1 || len(r.Missed) != 0 || r.Sites[0].Function != "_ZN1A1kEv.cold" {
		t.Errorf("in one function: %+v, %v", r, err)
	}
	if _, err := f.AfterCalls(Calls{Callee: "A::f", In: "other"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("in a function without: %v", err)
	}
	if _, err := f.AfterCalls(Calls{Callee: "other"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("nobody calls it: %v", err)
	}
}

// A return from a function is also one from functions that end with a jump to it.
func TestAfterTailCalls(t *testing.T) {
	f := finderOf(t, imageOf(t, nil,
		routine{"f", "c3"},                                              // 5000
		routine{"a", "90 e9f9ffffff"},                                   // 5001: ends with f
		routine{"b", "90 90 e9f3ffffff"},                                // 5007: ends with a
		routine{"c", "55 e8edffffff 85c0 7400 c3"},                      // 500e: calls a
		routine{"d", "55 e8e8ffffff 85c0 7400 c3"},                      // 5019: calls b
		routine{"e", "55 31c0 7406 90 e8d1ffffff 90 85c0 7400 75f9 c3"}, // 5024: calls f; a branch leads to behind that
	))
	how := Calls{Callee: "f", Conditional: true}
	if r, err := f.AfterCalls(how); len(r.Sites) != 0 || !errors.Is(err, ErrNoSite) {
		t.Errorf("%+v, %v", r, err)
	}
	functions := func(r Returns) (names string) {
		for _, s := range r.Sites {
			names += s.Function
		}
		return names
	}
	how.Tails = true
	if r, err := f.AfterCalls(how); err != nil || functions(r) != "cd" {
		t.Errorf("with jumps: %+v, %v", r, err)
	}
	how.Joins = true
	if r, err := f.AfterCalls(how); err != nil || functions(r) != "cde" || len(r.Missed) != 0 {
		t.Errorf("with branches, too: %+v, %v", r, err)
	}
}

// Calls at the boundaries of chunks are found, each once.
func TestBranchesTo(t *testing.T) {
	code := unhex(t, "e8 0b000000 90 e9 05000000 e8 00000000")
	found := branchesTo(nil, code, 0x1000, 0x1010)
	if len(found) != 3 || found[0] != 0x1000 || found[1] != 0x1006 || found[2] != 0x100b {
		t.Errorf("%#x", found)
	}
	if found := branchesTo(nil, code[:len(code)-1], 0x1000, 0x1010); len(found) != 2 {
		t.Errorf("a call that is cut counts: %#x", found)
	}
	if found := branchesTo(nil, unhex(t, "e8 fbffffff"), 0x1000, 0x1000); len(found) != 1 {
		t.Errorf("a call backwards: %#x", found)
	}
	if found := branchesTo(nil, unhex(t, "e8 fbffffff"), 0x1000, 0x100001000); len(found) != 0 {
		t.Errorf("a call 4 GiB away: %#x", found)
	}
}

func TestScanChunks(t *testing.T) {
	for _, before := range []int{scanChunk - 6, scanChunk - 5, scanChunk - 4, scanChunk - 1, scanChunk} {
		f := finderOf(t, imageOf(t, nil, routine{"f", "c3" + strings.Repeat("90", before-1)},
			routine{"g", "e8" + littleEndian(-before-5) + "85c0 7400 c3"}))
		r, err := f.AfterCalls(Calls{Callee: "f", Conditional: true})
		if err != nil || len(r.Sites) != 1 || r.Sites[0].Call != codeAddress+uint64(before) {
			t.Errorf("a call behind %d bytes: %+v, %v", before, r, err)
		}
	}
}

func littleEndian(n int) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	for i := range 4 {
		v := byte(uint32(n) >> (8 * i))
		b.WriteByte(digits[v>>4])
		b.WriteByte(digits[v&15])
	}
	return b.String()
}
