package probesite

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// A recorded is a compiled method with its enters.
type recorded struct {
	release            int
	tier, name         string
	address            uint64
	code               []byte
	behind             []uint64
	objects, markNames []string
}

func readRecorded(t testing.TB) (methods []recorded) {
	t.Helper()
	file, err := os.Open("testdata/monitors.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := lines.Text()
		var code, object, mark string
		var m recorded
		var behind uint64
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, " "):
			if _, err := fmt.Sscanf(line, "%x %s %s", &behind, &object, &mark); err != nil {
				t.Fatal(err)
			}
			last := &methods[len(methods)-1]
			last.behind = append(last.behind, behind)
			last.objects, last.markNames = append(last.objects, object), append(last.markNames, mark)
		default:
			if _, err := fmt.Sscanf(line, "%d %s %s %x %s", &m.release, &m.tier, &m.name, &m.address,
				&code); err != nil {
				t.Fatal(err)
			}
			if m.code, err = hex.DecodeString(code); err != nil {
				t.Fatal(err)
			}
			methods = append(methods, m)
		}
	}
	if len(methods) == 0 {
		t.Fatal("nothing is recorded")
	}
	return methods
}

func TestMonitorEnters(t *testing.T) {
	for _, m := range readRecorded(t) {
		enters, err := MonitorEnters(m.code, m.address, m.release)
		if err != nil {
			t.Errorf("%d %s %s: %v", m.release, m.tier, m.name, err)
			continue
		}
		var behind []uint64
		for i, e := range enters {
			behind = append(behind, e.Address)
			if i < len(m.behind) && (e.Object.String() != m.objects[i] || e.Mark.String() != m.markNames[i] ||
				e.Disp != 0) {
				t.Errorf("%d %s %s: %+v, want the object in %s and the mark in %s", m.release, m.tier, m.name, e,
					m.objects[i], m.markNames[i])
			}
			if e.Lightweight != (m.release == 25) {
				t.Errorf("%d %s %s: %+v", m.release, m.tier, m.name, e)
			}
		}
		if !slices.Equal(behind, m.behind) {
			t.Errorf("%d %s %s: %#x, want %#x", m.release, m.tier, m.name, behind, m.behind)
		}
		// If the code is cut anywhere, no false enters are found.
		for n := 0; n < len(m.code); n += 5 {
			fewer, _ := MonitorEnters(m.code[:n], m.address, m.release)
			if len(fewer) > len(enters) || !slices.Equal(fewer, enters[:len(fewer)]) {
				t.Fatalf("%d %s %s: %+v in the first %d bytes", m.release, m.tier, m.name, fewer, n)
			}
		}
	}
}

func TestMonitorEntersPatterns(t *testing.T) {
	const (
		load     = "488b02 "         // mov (%rdx),%rax
		setBit   = "4883c801 "       // or $1,%rax
		box      = "488907 "         // mov %rax,(%rdi)
		exchange = "f0480fb13a "     // lock cmpxchg %rdi,(%rdx)
		stack    = "493b541ff8 "     // cmp -8(%r15,%rbx),%rdx
		clear    = "4889c7 4883e7fe" // mov %rax,%rdi; and $-2,%rdi
		setNext  = "4889c7 4883cf01" // mov %rax,%rdi; or $1,%rdi
	)
	for _, test := range []struct {
		name    string
		code    string
		release int
		enter   bool
		unclear bool
	}{
		{"in the frame", load + setBit + box + exchange, 17, true, false},
		{"in the frame, by option", load + setBit + box + exchange, 25, true, false},
		{"lightweight", load + stack + clear + setBit + exchange, 25, true, false},
		{"lightweight, before there was any", load + stack + clear + setBit + exchange, 17, false, false},
		{"a lightweight exit", load + stack + setNext + exchange, 25, false, false},
		{"no stack of locks: of a release between", load + clear + setBit + exchange, 21, false, true},
		{"a stack of locks, but no bit", load + stack + exchange, 25, false, true},
		{"a bit in both", load + stack + setNext + setBit + exchange, 25, false, true},
		{"without the box", load + setBit + exchange, 17, false, false},
		{"without the bit", load + box + exchange, 17, false, false},
		{"another bit", load + "4883c802" + box + exchange, 17, false, false},
		{"the mark of another object", "488b01" + setBit + box + exchange, 17, false, false},
		{"a field, as atomics exchange", "488b4210" + setBit + box + exchange, 17, false, false},
		{"the object's register changes", load + "4889ca" + setBit + box + exchange, 17, false, false},
		{"a call between", load + "e800000000" + setBit + box + exchange, 17, false, false},
		{"a jump on a flag between", load + "7500" + setBit + box + exchange, 17, true, false},
		{"not locked", load + setBit + box + "480fb13a", 17, false, false},
		{"of 32 bits", load + setBit + box + "f00fb13a", 17, false, false},
		{"of an element", load + setBit + box + "f0480fb13c0a", 17, false, false},
		{"far before", load + strings.Repeat("90", maxBack) + setBit + box + exchange, 17, false, false},
		{"bytes before that are none", "06 06" + load + setBit + box + exchange, 17, true, false},
		{"bytes between that are none", load + "06" + setBit + box + exchange, 17, false, false},
	} {
		enters, err := MonitorEnters(unhex(t, test.code), 0x1000, test.release)
		if errors.Is(err, ErrLightweightLocking) != test.unclear || (len(enters) == 1) != test.enter {
			t.Errorf("%s: %+v, %v", test.name, enters, err)
		}
		if test.enter && len(enters) == 1 && (enters[0].Object != elffile.RDX || enters[0].Mark != elffile.RAX) {
			t.Errorf("%s: %+v", test.name, enters[0])
		}
	}
}

// Enters are instructions of the code, in their order.
func FuzzMonitorEnters(f *testing.F) {
	for _, m := range readRecorded(f) {
		f.Add(m.code, m.release)
	}
	f.Fuzz(func(t *testing.T, code []byte, release int) {
		const address = 0xffff_ffff_ffff_0000 // an overflow would show
		enters, err := MonitorEnters(code[:min(len(code), 0x8000)], address, release)
		if err != nil && enters != nil {
			t.Fatalf("%+v and %v", enters, err)
		}
		last := uint64(address)
		for _, e := range enters {
			if e.Address <= last || e.Address-address >= uint64(len(code)) || e.Object == elffile.NoReg ||
				e.Mark == elffile.NoReg {
				t.Fatalf("%+v", e)
			}
			last = e.Address
		}
	})
}
