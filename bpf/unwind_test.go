//go:build linux && amd64

package bpf

import (
	"encoding/binary"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tabled is where code without frame pointers is, as far as frames are concerned.
const tabled = 0x7e12_3456_0000

// ruleOf is a rule with the caller's rbp at CFA - 8 * saved.
func ruleOf(kind ProfileRuleKind, saved, operand uint32) uint32 {
	return uint32(kind)<<28 | saved<<16 | operand
}

// Code of which each 256 bytes have one rule, from tabled on.
var (
	ruleLeaf        = ruleOf(ProfileRuleKindRULE_RSP, 0, 1)
	rulePlain       = ruleOf(ProfileRuleKindRULE_RSP, 0, 7) // 48 bytes of locals
	rulePushed      = ruleOf(ProfileRuleKindRULE_RSP, 3, 5) // rbp is the second of two saved registers
	ruleFramed      = ruleOf(ProfileRuleKindRULE_RBP, 2, 2) // a frame pointer
	ruleOldSP       = ruleOf(ProfileRuleKindRULE_DEREF_RSP, 0, 2<<4|1)
	ruleAligned     = ruleOf(ProfileRuleKindRULE_DEREF_RBP, uint32(ProfileRuleSavedRULE_RBP_AT_RBP), 0xfff<<4)
	rulePLT         = ruleOf(ProfileRuleKindRULE_PLT, 0, 11)
	ruleSignal      = ruleOf(ProfileRuleKindRULE_SIGNAL, 0, 0)
	ruleRoot        = ruleOf(ProfileRuleKindRULE_ROOT, 0, 0)
	ruleUnsupported = ruleOf(ProfileRuleKindRULE_UNSUPPORTED, 0, 0)
	ruleLost        = ruleOf(ProfileRuleKindRULE_RSP, uint32(ProfileRuleSavedRULE_RBP_LOST), 2)
	ruleNone        = uint32(0)
	tabledRules     = []uint32{ruleLeaf, rulePlain, rulePushed, ruleFramed, ruleOldSP, ruleAligned, rulePLT, ruleSignal,
		ruleRoot, ruleUnsupported, ruleLost, ruleNone}
)

// codeOf returns an address in code of that rule, behind a call.
func codeOf(rule uint32) uint64 {
	for i, r := range tabledRules {
		if r == rule {
			return tabled + uint64(i)<<8 + 0x40
		}
	}
	panic("no such code")
}

var lastUnwound atomic.Uint32

// ownMemory is what the kernel side compares of this process.
func ownMemory(t testing.TB) (stack, pages uint64) {
	t.Helper()
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))
	if stack, err = strconv.ParseUint(fields[25], 10, 64); err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if name, value, _ := strings.Cut(line, ":"); name == "VmExe" || name == "VmLib" {
			kb, err := strconv.ParseUint(strings.Fields(value)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			pages += kb << 10 / uint64(os.Getpagesize())
		}
	}
	return stack, pages
}

// useTable has the rows of a table, of code from tabled on, be those of a process. change may spoil what
// is known of the process.
func (w *walker) useTable(t testing.TB, pid uint32, end uint64, rows []uint64, change func(*UnwoundProcess)) {
	t.Helper()
	_ = w.UnwindWanted.Delete(pid) // a test before may have left it
	serial := lastUnwound.Add(1)
	slot := uint16(serial % MaxUnwindTables)
	table, err := NewUnwindTable(serial, len(rows), func(i int) uint64 { return rows[i] })
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	if err := w.UnwindTables.Put(uint32(slot), table); err != nil {
		t.Fatal(err)
	}
	p := UnwoundProcess{Serial: serial}
	p.Stack, p.CodePages = ownMemory(t)
	p.SetMappings([]UnwindMapping{
		{Begin: 0x1000, End: 0x2000, Table: NoUnwindTable}, // others are around it
		{Begin: tabled, End: end, Base: tabled, Table: slot, Generation: serial},
		{Begin: libc &^ 0xfff, End: libc | 0xfff, Table: NoUnwindTable},
	})
	if change != nil {
		change(&p)
	}
	if err := w.Unwound.Put(pid, &p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.Unwound.Delete(pid)
		_ = w.UnwindTables.Delete(uint32(slot))
		_ = w.UnwindWanted.Delete(pid)
	})
}

func (w *walker) useRules(t testing.TB, pid uint32, change func(*UnwoundProcess)) {
	t.Helper()
	var rows []uint64
	for i, r := range tabledRules {
		rows = append(rows, uint64(r)<<32|uint64(i)<<8)
	}
	w.useTable(t, pid, tabled+uint64(len(rows))<<8, rows, change)
}

// want is the request that the walks of process 0 left, and takes it out; nil if there is none.
func (w *walker) want(t testing.TB) *UnwindWant {
	t.Helper()
	var want UnwindWant
	if w.UnwindWanted.LookupAndDelete(uint32(0), &want) != nil {
		return nil
	}
	return &want
}

// unwinds calls code of a rule, which uses rbp for itself if it keeps no frame pointer.
func (s *fakeStack) unwinds(rule uint32) *fakeStack { return s.unwindsAt(codeOf(rule), rule) }

func (s *fakeStack) unwindsAt(pc uint64, rule uint32) *fakeStack {
	s.cfa = s.sp
	s.push(s.pc)
	switch rule {
	case ruleLeaf:
	case rulePlain:
		s.sp -= 48
	case rulePushed:
		s.push(poison)
		s.push(s.bp)
		s.sp -= 16
		s.bp = poison
	case ruleFramed:
		s.push(s.bp)
		s.bp = s.sp
		s.sp -= 80
	case ruleOldSP:
		sp := s.sp
		s.sp = sp&^63 - 64
		s.mem.put64(s.sp+16, sp)
	case ruleAligned:
		sp := s.sp
		s.sp &^= 31
		s.push(poison)
		s.push(s.bp)
		s.bp = s.sp
		s.push(sp + 8)
		s.sp -= 256
	case ruleLost:
		s.push(s.bp)
		s.bp = poison
	}
	s.pc = pc
	s.seen(native(pc))
	return s
}

// interrupt has a signal come where the thread stands. The handler's frames are on another stack.
func (s *fakeStack) interrupt(onto uint64) *fakeStack {
	s.frames[len(s.frames)-1].Frame = native(s.pc + 1) // as if it were a return address
	sp, bp, pc := s.sp, s.bp, s.pc
	s.sp = onto
	s.mem.put64(onto+120, bp)
	s.mem.put64(onto+160, sp)
	s.mem.put64(onto+168, pc)
	s.bp, s.pc = poison, codeOf(ruleSignal)
	s.cfa = 0
	s.seen(native(s.pc))
	return s
}

// rootedStack is the stack of a thread whose first function says that it has no caller.
func rootedStack(t testing.TB) *fakeStack {
	s := (&fakeVM{}).newStack(t, 1<<20)
	s.pc, s.bp = codeOf(ruleRoot), poison
	s.frames = []placedFrame{{native(s.pc), 0}}
	return s
}

func TestKernelUnwind(t *testing.T) {
	w := newWalker(t)
	for _, c := range []struct {
		name string
		end  WalkEnd
		call func(*fakeStack)
	}{
		{"one caller", EndRoot, func(s *fakeStack) { s.unwinds(rulePlain) }},
		{"leaf", EndRoot, func(s *fakeStack) { s.unwinds(rulePlain).unwinds(ruleLeaf) }},
		{"saved rbp", EndRoot, func(s *fakeStack) { s.unwinds(ruleFramed).unwinds(rulePushed).unwinds(rulePlain) }},
		{"frame pointer", EndRoot, func(s *fakeStack) { s.unwinds(ruleFramed).unwinds(ruleFramed).unwinds(rulePlain) }},
		{"old rsp in memory", EndRoot, func(s *fakeStack) { s.unwinds(rulePlain).unwinds(ruleOldSP) }},
		{"realigned", EndRoot, func(s *fakeStack) { s.unwinds(ruleFramed).unwinds(ruleAligned).unwinds(rulePlain) }},
		{"plt", EndRoot, func(s *fakeStack) { s.unwinds(rulePlain).unwindsAt(codeOf(rulePLT), ruleLeaf) }},
		{"plt, second half", EndRoot, func(s *fakeStack) {
			s.unwinds(rulePlain).unwindsAt(codeOf(rulePLT)+11, ruleLeaf)
			s.push(3)
		}},
		{"many", EndRoot, func(s *fakeStack) {
			for range 200 {
				s.unwinds(ruleFramed).unwinds(rulePlain).unwinds(rulePushed).unwinds(ruleAligned).unwinds(ruleOldSP)
			}
		}},
		{"signal", EndRoot, func(s *fakeStack) {
			s.unwinds(rulePlain).unwindsAt(codeOf(ruleLeaf)&^0xff, ruleLeaf).interrupt(s.mem.base + 4096)
			s.unwinds(rulePlain).unwinds(rulePushed)
		}},
		{"signal on the same stack", EndRoot, func(s *fakeStack) {
			s.unwinds(ruleFramed).unwinds(rulePlain).interrupt(s.sp - 1024)
			s.unwinds(rulePlain)
		}},
		{"return address 0", EndRoot, func(s *fakeStack) {
			s.pc = 0
			s.frames = nil
			s.unwinds(rulePlain).unwinds(rulePushed)
		}},
		{"lost rbp", EndRoot, func(s *fakeStack) { s.unwinds(ruleFramed).unwinds(ruleFramed).unwinds(rulePlain) }},
		{"no rule, with a frame pointer", EndRoot, func(s *fakeStack) {
			s.unwindsAt(codeOf(ruleNone), ruleFramed).unwinds(rulePlain)
		}},
		{"no rule, rbp is lost", EndPointer, func(s *fakeStack) {
			s.unwindsAt(codeOf(ruleNone), ruleFramed).unwinds(ruleLost)
			s.innermost(2)
		}},
		{"unsupported", EndRule, func(s *fakeStack) {
			s.unwindsAt(codeOf(ruleUnsupported), rulePlain).unwinds(rulePlain)
			s.innermost(2)
		}},
		{"frame that is not above", EndDirection, func(s *fakeStack) {
			s.unwinds(ruleFramed)
			s.bp = s.sp - 512
			s.innermost(1)
		}},
		{"frame that is not aligned", EndDirection, func(s *fakeStack) {
			s.unwinds(ruleFramed)
			s.bp += 4
			s.innermost(1)
		}},
		{"frame that cannot be read", EndRead, func(s *fakeStack) {
			s.unwinds(ruleFramed)
			s.bp = s.mem.end() + 64
			s.innermost(1)
		}},
		{"return address is data", EndPointer, func(s *fakeStack) {
			s.pc = poison
			s.unwinds(rulePlain)
			s.innermost(1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.useRules(t, 0, nil)
			s := rootedStack(t)
			c.call(s)
			for range 2 { // the second time, rules are known
				s.check(t, w, s.request(), c.end)
			}
			if want := w.want(t); want != nil && c.end != EndPointer {
				t.Errorf("wanted: %#x", *want)
			}
		})
	}
}

// Rules of every row are found, also where blocks begin and end.
func TestKernelUnwindRows(t *testing.T) {
	w := newWalker(t)
	const rows, step = 3*unwindRows + 5, 48
	table := make([]uint64, rows)
	for i := range table {
		rule := rulePlain
		if i%3 == 1 {
			rule = ruleFramed
		}
		table[i] = uint64(rule)<<32 | uint64(step*i+16)
	}
	const end = tabled + rows*step + 1<<20
	w.useTable(t, 0, end, table, nil)
	for i := 0; i < rows; i++ {
		if i > 4 && i < rows-4 && i%unwindRows > 2 && i%unwindRows < unwindRows-2 && i%97 != 0 {
			continue
		}
		for _, offset := range []uint64{1, step} { // return addresses behind the first byte, and behind the last
			s := rootedStack(t)
			s.pc, s.frames = 0, nil
			s.unwindsAt(tabled+step*uint64(i)+16+offset, table32(table[i])).unwindsAt(tabled+17, rulePlain)
			s.check(t, w, s.request(), EndRoot)
			if t.Failed() {
				t.Fatalf("row %d, offset %d", i, offset)
			}
		}
	}
	s := rootedStack(t) // before the first row, and behind the last
	s.pc, s.frames, s.bp = 0, nil, 0
	s.unwindsAt(tabled+8, ruleFramed).unwindsAt(end-1, table32(table[rows-1]))
	s.check(t, w, s.request(), EndRoot)
}

func table32(row uint64) uint32 { return uint32(row >> 32) }

// What is out of date is not used, is counted, and is asked for.
func TestKernelUnwindAsks(t *testing.T) {
	w := newWalker(t)
	for _, c := range []struct {
		name    string
		change  func(*UnwoundProcess)
		counter Counter
	}{
		{"another stack", func(p *UnwoundProcess) { p.Stack += 16 }, UnwindStale},
		{"another library", func(p *UnwoundProcess) { p.CodePages++ }, UnwindStale},
		{"another table", func(p *UnwoundProcess) { p.Mappings[1].Generation-- }, UnwindGone},
		{"a table that was taken away", func(p *UnwoundProcess) { p.Mappings[1].Table ^= 1 }, UnwindGone},
		{"a mapping without a record", func(p *UnwoundProcess) { p.Mappings[1].End = tabled + 1 }, UnwindUntabled},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.useRules(t, 0, c.change)
			s := rootedStack(t).unwinds(rulePlain)
			s.innermost(1)
			before := w.counter(t, c.counter)
			s.check(t, w, s.request(), EndPointer)
			if w.counter(t, c.counter) == before {
				t.Errorf("counter %d stands still", c.counter)
			}
			want := w.want(t)
			if want == nil || want.Sampled != s.pc || want.Untabled != s.pc {
				t.Errorf("wanted: %+v", want)
			}
		})
	}
	t.Run("process without a record", func(t *testing.T) {
		s := rootedStack(t).unwinds(rulePlain)
		s.innermost(1)
		s.check(t, w, s.request(), EndPointer)
		want := w.want(t)
		if want == nil || want.Sampled != s.pc || want.Untabled != s.pc {
			t.Errorf("wanted: %+v", want)
		}
		whole := nativeStack(t, 5)
		whole.check(t, w, whole.request(), EndRoot)
		if want := w.want(t); want != nil {
			t.Errorf("a whole stack wants %+v", want)
		}
	})
	t.Run("young process", func(t *testing.T) {
		s := rootedStack(t).unwinds(rulePlain)
		s.innermost(1)
		before := w.counter(t, UnwindYoung)
		r := s.request()
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
			t.Fatal(err)
		}
		r.Start = uint64(now.Nano()) + uint64(time.Minute) // It stays young during the test.
		s.check(t, w, r, EndPointer)
		if want, n := w.want(t), w.counter(t, UnwindYoung)-before; want != nil || n != 1 {
			t.Errorf("%d young walks, wanted: %+v", n, want)
		}
		r.Start = uint64(now.Nano()) - uint64(LeastUnwoundAge)
		s.check(t, w, r, EndPointer)
		if want, n := w.want(t), w.counter(t, UnwindYoung)-before; want == nil || n != 1 {
			t.Errorf("old enough: %d young walks, wanted: %+v", n, want)
		}
	})
	t.Run("code that gets no table", func(t *testing.T) {
		w.useRules(t, 0, nil)
		s := rootedStack(t).unwindsAt(libc+16, rulePlain)
		s.innermost(1)
		s.check(t, w, s.request(), EndPointer)
		if want := w.want(t); want != nil {
			t.Errorf("wanted: %+v", want)
		}
	})
	// rbp of 0 is a root only behind frames with frame pointers.
	t.Run("caller without a table, rbp is 0", func(t *testing.T) {
		w.useRules(t, 0, nil)
		s := rootedStack(t).unwindsAt(libjvm, rulePlain).unwinds(rulePlain)
		s.bp = 0
		s.innermost(2)
		s.check(t, w, s.request(), EndPointer)
		if want := w.want(t); want == nil || want.Untabled != libjvm-1 {
			t.Errorf("wanted: %+v", want)
		}
	})
}

// Where calls are made with a frame pointer it leads on without a search. Where the thread stands may
// have none yet.
func TestKernelUnwindFramed(t *testing.T) {
	w := newWalker(t)
	w.useRules(t, 0, func(p *UnwoundProcess) { p.Mappings[1].Framed = 1 })
	for _, leaf := range []uint32{ruleFramed, ruleLeaf, rulePlain} {
		s := rootedStack(t)
		s.pc, s.frames = 0, nil
		for range 20 {
			s.unwindsAt(codeOf(ruleUnsupported), ruleFramed) // a rule that no call asks for
		}
		s.unwinds(leaf)
		before := w.counter(t, UnwindMisses)
		s.check(t, w, s.request(), EndRoot)
		if n := w.counter(t, UnwindMisses) - before; n > 1 {
			t.Errorf("%d rules were looked up", n)
		}
	}
}

// Whatever tables say and whatever is on a stack, a walk ends, within its bounds, for a reason it can
// give. A signal frame may lead to another stack, and back: the time of a walk is bounded as well.
func FuzzKernelUnwind(f *testing.F) {
	w := newWalker(f)
	f.Add([]byte{}, []byte{})
	f.Add(binary.NativeEndian.AppendUint32(nil, rulePlain), binary.NativeEndian.AppendUint64(nil, tabled+1))
	f.Add(binary.NativeEndian.AppendUint32(nil, ruleSignal), binary.NativeEndian.AppendUint64(nil, tabled+2))
	f.Add(binary.NativeEndian.AppendUint32(nil, ruleOldSP|0xffff), binary.NativeEndian.AppendUint64(nil, ^uint64(0)))
	f.Fuzz(func(t *testing.T, rules, stack []byte) {
		const most = 64
		var rows []uint64
		for i := 0; len(rules) >= 4 && i < most; i++ {
			rows = append(rows, uint64(binary.NativeEndian.Uint32(rules))<<32|uint64(i))
			rules = rules[4:]
		}
		if len(rows) == 0 {
			rows = []uint64{uint64(rulePlain) << 32}
		}
		w.useTable(t, 0, tabled+most, rows, nil)
		s := rootedStack(t)
		s.sp -= 32 << 10
		s.pc, s.bp = tabled+uint64(len(stack)%most), s.sp+8*uint64(len(rules)%64)
		for at := s.sp; at+8 <= s.mem.end() && len(stack) >= 8; at += 8 { // the same words again and again
			word := binary.NativeEndian.Uint64(stack[(at-s.sp)%uint64(len(stack)&^7):])
			if word&0xff00 == 0x5500 { // one that leads up the stack
				word = at + word&0xf8
			}
			s.mem.put64(at, word)
		}
		got := w.walk(t, s.request())
		if got.End <= EndNone || got.End >= EndCount || len(got.User) > 1024 || len(got.Kernel) != 0 {
			t.Fatalf("%d frames, %d of the kernel, ended by %v", len(got.User), len(got.Kernel), got.End)
		}
		for i, fr := range got.User {
			if fr.Kind() != FrameNative {
				t.Fatalf("frame %d is %v", i, fr)
			}
		}
	})
}

// Native code without frame pointers leads to the Java code that called it.
func TestKernelUnwindToJava(t *testing.T) {
	forBuilds(t, func(t *testing.T, w *walker, vm *fakeVM) {
		s := vm.newStack(t, 64<<10)
		th := vm.newThread(s.mem.end())
		w.attach(t, vm)
		w.useRules(t, vm.pid(), nil)
		const flags = SampleAttached | SampleJavaThread | SampleJavaFrames
		show := func(test string) {
			t.Helper()
			if got := s.check(t, w, th.addTo(s.request()), EndRoot); got.Flags != flags {
				t.Errorf("flags %#x", got.Flags)
			}
			if t.Failed() {
				t.Fatal(test)
			}
		}
		s.entry(anchor{}).interpreted(vm.newMethod(9), 4).compiled(vm.typical(64), 0x40)
		th.enter(inNative, s.here())
		java := *s
		s.unwinds(rulePlain)
		show("by the anchor, one function")
		s.unwinds(rulePushed).unwinds(ruleAligned).unwinds(ruleOldSP)
		show("by the anchor, several functions")
		s.native(libjvm)
		s.unwinds(rulePlain)
		show("by the anchor, one of them with a frame pointer and without a table")

		*s = java
		th.enter(inJava, anchor{})
		s.unwinds(ruleLeaf)
		show("leaf call, nothing pushed")
		s.unwinds(rulePlain).unwinds(rulePushed)
		show("leaf call, three functions")
		s.mem.put64(s.sp+8, vm.typical(80).returnTo(0x40)) // return address of a call of the past
		show("leaf call, and one of the past")

		*s = java
		th.enter(inNative, s.here())
		s.unwinds(rulePlain)
		s.sp -= 8 // the frame is larger than the table says
		s.frames = java.below(native(s.pc))
		s.mem.put64(s.sp+48, poison)
		show("by the anchor, the table leads nowhere")
	})
}
