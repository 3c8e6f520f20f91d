//go:build linux && amd64

package bpf

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A watcher has the program of values attached to announce.
type watcher struct {
	o *Objects
	p *ProbeObjects
}

const watched = 5 // the cookie

// stray is no address of a process.
const stray = 8

func newWatcher(t *testing.T, multi bool) *watcher {
	t.Helper()
	if multi && olderThan(t, 6, 6) {
		t.Skip("the kernel has no uprobe.multi: 6.6 has")
	}
	loaded, load, attach := probings.take, loadProbing, attachSingle
	if multi {
		loaded, load, attach = multiProbings.take, loadMultiProbing, attachMulti
	}
	w := loaded(t, Options{}, load)
	w.choose(t)
	o, p := w.o, w.p
	l := attach(t, p.ValueProbe, watched)
	t.Cleanup(func() { l.Close() })
	return &watcher{o, p}
}

func (w *watcher) ask(t *testing.T, every uint32, values ...ProbedValue) {
	t.Helper()
	var all ProbedValues
	all.Count = uint32(copy(all.Values[:], values))
	if err := w.p.ValueProbes.Put(uint32(watched), &all); err != nil {
		t.Fatal(err)
	}
	if err := w.p.Probes.Put(uint32(watched), &ProbeRate{Every: every}); err != nil {
		t.Fatal(err)
	}
}

// values are what the last executions recorded, one string for each: values in their order, ? for one that
// could not be read, and ~ behind a text that was cut.
func (w *watcher) values(t *testing.T, forms ...uint8) (all []string) {
	t.Helper()
	drain(t, w.o, func(raw []byte) {
		var o Observation
		if err := DecodeObservation(raw, &o); err != nil {
			t.Fatal(err)
		}
		if o.Seen.What != ObservedValues || o.Seen.Probe != watched || o.Pid != uint32(os.Getpid()) ||
			len(o.User) == 0 {
			t.Errorf("observation %+v of process %d with %d frames", o.Seen, o.Pid, len(o.User))
		}
		var values []string
		for i := range int(o.Seen.Count) {
			text, cut := o.ValueText(i)
			switch {
			case o.Failed(i):
				values = append(values, "?")
			case i < len(forms) && forms[i] == ValueNumber:
				values = append(values, fmt.Sprint(int64(o.Seen.Values[i])))
			case cut:
				values = append(values, string(text)+"~")
			default:
				values = append(values, string(text))
			}
			if cut != (cut && o.Seen.Flags&SeenCut != 0) {
				t.Errorf("value %d was cut without a flag", i)
			}
		}
		all = append(all, strings.Join(values, " "))
	})
	return all
}

func fromRegister(reg uint8, size int8) ValueOperand {
	return ValueOperand{Kind: OperandRegister, Reg: reg, Size: size}
}

func number(base ValueOperand) ProbedValue { return ProbedValue{Base: base, Size: 8} }

// text is what a register points to, up to a zero byte; share is how many texts are to come.
func text(reg, share uint8) ProbedValue {
	return ProbedValue{Base: fromRegister(reg, 8), Size: 8, Form: ValueText, Share: share}
}

func sized(v ProbedValue, length ValueOperand) ProbedValue {
	v.Length = length
	return v
}

func named(form, reg uint8) ProbedValue {
	return ProbedValue{Base: fromRegister(reg, 8), Size: 8, Form: form, Share: 1}
}

func follow(v ProbedValue, size int8, offset int32, offsets ...int32) ProbedValue {
	v.Followed, v.Size, v.Offset = uint8(copy(v.Offsets[:], offsets)), size, offset
	return v
}

// edge returns the address of the last n bytes before memory that nobody may read.
func edge(t *testing.T, n int) []byte {
	t.Helper()
	page := os.Getpagesize()
	m, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(m) })
	if err := unix.Mprotect(m[page:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	clear(m[:page]) // so that it is there
	return m[page-n : page]
}

func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// fire passes announce with a class in rax and rbx, a name in rcx and rdi, and frame in r11.
func fire(class, name string, r9 uint64, r10 int32, frame *[4]uint64) {
	c, n := unsafe.StringData(class+"\x00"), unsafe.StringData(name+"\x00")
	announce(c, len(class), n, len(name), c, 0, r9, r10, frame)
}

// pointedTo does not move.
var pointedTo = [3]uint64{11, 0xffff_ffff_ffff_fff6, 13} // -10 in the middle

func TestKernelValues(t *testing.T) {
	brink := edge(t, 4)
	copy(brink, "abc\x00")
	frame := [4]uint64{7, 0xffff_fffe_ffff_fffd, uint64(uintptr(unsafe.Pointer(&pointedTo))), 3}
	r9 := addressOf(brink)
	r11 := fromRegister(regR11, 8)
	atR11 := func(disp int64, size int8) ValueOperand {
		return ValueOperand{Kind: OperandMemory, Reg: regR11, Displacement: disp, Size: size}
	}
	long := strings.Repeat("x", 600) + "\x00"
	tests := []struct {
		name   string
		class  string
		method string
		values []ProbedValue
		want   string
	}{
		{"registers", "abc", "hello", []ProbedValue{number(fromRegister(regBX, 8)), number(fromRegister(regDI, -4)),
			number(fromRegister(regR10, -4)), number(fromRegister(regR10, 4)), number(fromRegister(regR10, -2)),
			number(fromRegister(regR10, 2)),
			number(fromRegister(regR10, 1)), number(fromRegister(regR10, -1))},
			"3 5 -70000 4294897296 -4464 61072 144 -112"},
		{"a constant", "", "", []ProbedValue{number(ValueOperand{Kind: OperandConstant, Displacement: -1, Size: -4})},
			"-1"},
		{"a cast", "", "", []ProbedValue{{Base: fromRegister(regR10, 8), Size: -1},
			{Base: fromRegister(regR10, -4), Size: 8, Offset: 70001}}, "-112 1"},
		{"memory", "", "", []ProbedValue{number(atR11(0, 8)), number(atR11(8, -4)), number(atR11(8, 4)),
			number(atR11(12, -2)), number(atR11(8, 1))},
			"7 -3 4294967293 -2 253"},
		{"an index", "", "abc", []ProbedValue{
			number(ValueOperand{Kind: OperandMemory, Reg: regR11, Index: regDI, Scale: 8, Size: 8}),
			number(ValueOperand{Kind: OperandMemory, Reg: regAX, Absolute: 1, Index: regR11, Scale: 1, Displacement: 24,
				Size: 8})}, "3 3"},
		{"no operand", "", "", []ProbedValue{{Size: 8}, number(fromRegister(regDI, 8))}, "? 0"},
		{"pointers followed", "", "", []ProbedValue{
			follow(number(r11), 8, 0, 0), follow(number(r11), -4, 0, 8), follow(number(r11), 8, 0, 16, 8),
			follow(number(r11), -1, 100, 16, 8),
			follow(number(r11), 1, 0, 16, 16)}, "7 -3 -10 90 13"},
		{"the last bytes of memory", "", "", []ProbedValue{follow(number(fromRegister(regR9, 8)), 4, 0, 0),
			follow(number(fromRegister(regR9, 8)), 8, 0, 0), follow(number(fromRegister(regR9, 8)), 2, 0, 2),
			text(regR9, 1)}, "6513249 ? 99 abc"},
		{"unreadable", "", "", []ProbedValue{
			number(ValueOperand{Kind: OperandMemory, Reg: regAX, Absolute: 1, Displacement: stray, Size: 8}),
			follow(number(fromRegister(regDI, 8)), 8, 0, 0), follow(number(r11), 8, 0, 0, 0), text(regDI, 1),
			sized(text(regDI, 1), fromRegister(regR8, 8)), number(fromRegister(regDI, 8))}, "? ? ? ?  0"},
		{"strings", "a class\x00", "name\x00", []ProbedValue{text(regAX, 2), text(regCX, 1)}, "a class name"},
		{"strings with a length", "a class", "name", []ProbedValue{sized(text(regAX, 2), fromRegister(regBX, -4)),
			sized(text(regCX, 1), fromRegister(regDI, -4))},
			"a class name"},
		{"a length below zero", "a class", "name", []ProbedValue{sized(text(regAX, 2), fromRegister(regR10, -4)),
			number(fromRegister(regDI, 8))}, "? 4"},
		{"an empty string", "\x00", "\x00x", []ProbedValue{text(regAX, 2), text(regCX, 1)}, " "},
		{"cut", long, "name\x00", []ProbedValue{text(regAX, 2), text(regCX, 1)}, long[:239] + "~ name"},
		{"cut with a length", long, "name\x00", []ProbedValue{sized(text(regAX, 1), fromRegister(regBX, 8))},
			long[:480] + "~"},
		{"room that is left", "ab\x00", long, []ProbedValue{text(regAX, 2), text(regCX, 1)}, "ab " + long[:477] + "~"},
		{"what just fits", long[:239] + "\x00", long[:241], []ProbedValue{text(regAX, 2),
			sized(text(regCX, 1), fromRegister(regDI, 8))},
			long[:239] + " " + long[:241]},
		{"no room left", long[:480], "b\x00", []ProbedValue{sized(text(regAX, 1), fromRegister(regBX, 8)),
			text(regCX, 1)}, long[:480] + " ~"},
		{"a string far away", "", "", []ProbedValue{follow(ProbedValue{Base: r11, Form: ValueText, Share: 1,
			Length: ValueOperand{Kind: OperandConstant, Displacement: 1}}, 8, 16, 16)},
			"\r"},
	}
	for _, multi := range []bool{false, true} {
		t.Run(map[bool]string{false: "single", true: "multi"}[multi], func(t *testing.T) {
			w := newWatcher(t, multi)
			for _, test := range tests {
				w.ask(t, 1, test.values...)
				forms := make([]uint8, len(test.values))
				for i, v := range test.values {
					forms[i] = v.Form
				}
				fire(test.class, test.method, r9, -70000, &frame)
				if got := w.values(t, forms...); !slices.Equal(got, []string{test.want}) {
					t.Errorf("%s: recorded %q, want %q", test.name, got, test.want)
				}
			}
		})
	}
}

// What is not ended by a zero byte before memory ends is no string.
func TestProbeValueWithoutEnd(t *testing.T) {
	w := newWatcher(t, false)
	open := edge(t, 4)
	copy(open, "abcd")
	w.ask(t, 1, text(regR9, 1), sized(text(regR9, 1), ValueOperand{Kind: OperandConstant, Displacement: 4, Size: 4}))
	fire("", "", addressOf(open), 0, new([4]uint64))
	if got := w.values(t, ValueText, ValueText); !slices.Equal(got, []string{"? abcd"}) {
		t.Errorf("recorded %q", got)
	}
}

// Names of HotSpot: a Symbol, a class, and the class of an object, in memory that plays the VM.
func TestKernelValueNames(t *testing.T) {
	w := newWatcher(t, false)
	var vm HotspotProcess
	vm.Serial = 9
	symbol := make([]byte, 32)
	binary.NativeEndian.PutUint16(symbol[4:], 16)
	copy(symbol[6:], "java/lang/String")
	klass, object := make([]uint64, 8), make([]uint64, 4)
	klass[3] = addressOf(symbol)
	at := uint64(uintptr(unsafe.Pointer(&klass[0])))
	heap := HotspotHeap{
		Serial: 9, Flags: HeapNarrowKlass, NarrowKlassBase: at - 5<<3, NarrowKlassShift: 3, ObjectKlass: 8,
		KlassName: 24, SymbolLength: 4, SymbolBody: 6,
	}
	object[1] = 5
	frame := &[4]uint64{}
	values := []ProbedValue{named(ValueSymbol, regR9), named(ValueKlass, regAX), named(ValueClass, regCX),
		named(ValueClass, regDI)}
	for i := range values {
		values[i].Share = uint8(len(values) - i)
	}
	w.ask(t, 1, values...)
	pass := func() []string {
		announce((*byte)(unsafe.Pointer(&klass[0])), 0, (*byte)(unsafe.Pointer(&object[0])), 0,
			unsafe.SliceData(symbol), 0, addressOf(symbol), 0, frame)
		return w.values(t, ValueSymbol, ValueKlass, ValueClass, ValueClass)
	}
	if got := pass(); !slices.Equal(got, []string{"? ? ? ?"}) {
		t.Errorf("without a VM: %q", got)
	}
	pid := uint32(os.Getpid())
	if err := w.o.Processes.Put(pid, &vm); err != nil {
		t.Fatal(err)
	}
	if err := w.p.Heaps.Put(pid, &heap); err != nil {
		t.Fatal(err)
	}
	const name = "java/lang/String"
	if got := pass(); !slices.Equal(got, []string{name + " " + name + " " + name + " ?"}) {
		t.Errorf("recorded %q", got)
	}
	heap.Serial = 8 // serial of a VM that was there before
	if err := w.p.Heaps.Put(pid, &heap); err != nil {
		t.Fatal(err)
	}
	if got := pass(); !slices.Equal(got, []string{"? ? ? ?"}) {
		t.Errorf("of another VM: %q", got)
	}
}

// One in 97 executions is recorded, of each 97 in a row, whatever was before.
func TestProbeValuesEvery(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var one, all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu) // each CPU counts for itself
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	defer unix.SchedSetaffinity(0, &all)
	for _, every := range []uint32{0, 1, 97} {
		const hits = 97*5 + 1
		w := newWatcher(t, false)
		w.ask(t, every, number(fromRegister(regDI, 8)))
		for i := range hits {
			fire("", strings.Repeat("x", i), 0, 0, new([4]uint64))
		}
		got := w.values(t, ValueNumber)
		if blocks := hits / max(int(every), 1); every == 0 && len(got) > 0 || every > 0 && len(got) != blocks &&
			len(got) != blocks+1 {
			t.Errorf("every %d: recorded %d of %d", every, len(got), hits)
		}
		for block, text := range got {
			if i, err := strconv.Atoi(text); err != nil || i/int(every) != block {
				t.Errorf("every %d: recorded %s as the %dth", every, text, block)
			}
		}
		var counts []ProbeCount
		if err := w.p.ProbeCounts.Lookup(uint32(watched), &counts); err != nil {
			t.Fatal(err)
		}
		var sum ProbeCount
		for _, c := range counts {
			sum.Hits, sum.Told = sum.Hits+c.Hits, sum.Told+c.Told
		}
		if sum.Hits != hits || sum.Told != uint64(len(got)) {
			t.Errorf("every %d: counted %+v, want %d and %d", every, sum, hits, len(got))
		}
	}
}

func TestValueText(t *testing.T) {
	seen := ProbeObservation{Count: 4, Failed: 1 << 1, Cut: 1 << 2,
		Values: [8]uint64{0: 3, 1: 1, 2: 3<<32 | 2, 3: 4<<32 | 2}}
	o := Observation{Seen: &seen, Text: []byte("abcde")}
	for i, want := range []struct {
		text string
		cut  bool
	}{{"abc", false}, {"", false}, {"de", true}, {"", false}, {"", false}} {
		if text, cut := o.ValueText(i); string(text) != want.text || cut != want.cut {
			t.Errorf("text %d is %q, %v; want %+v", i, text, cut, want)
		}
	}
	if o.Failed(0) || !o.Failed(1) || !o.Failed(4) || !o.Failed(-1) {
		t.Errorf("failed: %v %v %v %v", o.Failed(0), o.Failed(1), o.Failed(4), o.Failed(-1))
	}
}
