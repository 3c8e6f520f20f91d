//go:build linux && amd64

package bpf

import "testing"

// Every form of frame that C1 and C2 were seen to build and take down, JDK 8 to 25.
var templates = []template{
	{name: "bang", frame: 48, prologue: prologueC2(48), epilogue: epilogue17(48)},
	{name: "large", frame: 400, prologue: prologueC2(400), epilogue: epilogue17(400)},
	{name: "smallest", frame: 16, prologue: []instruction{bang, pushRBP}, epilogue: []instruction{popRBP, ret}},
	{name: "no bang", frame: 32, prologue: []instruction{subRSPWide(24), storeRBP(16)}, epilogue: epilogue17(32)},
	{name: "no bang, large", frame: 304, prologue: []instruction{subRSPWide(296), storeRBP(288)},
		epilogue: epilogue17(304)},
	{name: "no bang, barrier", frame: 32,
		prologue: []instruction{subRSPWide(24), storeRBP(16), nop3, barrier, jneSlow}, epilogue: epilogue17(32)},
	{name: "C2 barrier", frame: 64, prologue: append(prologueC2(64), barrier, jneSlow), epilogue: epilogue17(64)},
	{name: "C1 barrier", frame: 192, prologue: append(prologueC2(192), nop, barrier, jeDone, callSlow),
		epilogue: epilogue17(192)},
	{name: "frame pointer", frame: 48, keepsRBP: true,
		prologue: []instruction{bang, pushRBP, movRBP, subRSP(32)}, epilogue: epilogue17(48)},
	{name: "frame pointer, no bang", frame: 304, keepsRBP: true,
		prologue: []instruction{subRSPWide(296), storeRBP(288), movRBP, addRBP(288), nop3, barrier, jneSlow},
		epilogue: epilogue17(304)},
	{name: "poll with short displacement", frame: 48, prologue: prologueC2(48),
		epilogue: []instruction{addRSP(32), popRBP, pollStack, jaSlow, ret}},
	{name: "JDK 11 poll", frame: 48, prologue: prologueC2(48),
		epilogue: []instruction{addRSP(32), popRBP, loadPoll, pollThread, ret}},
	{name: "JDK 8 poll", frame: 48, prologue: prologueC2(48), epilogue: []instruction{addRSP(32), popRBP, pollPage,
		ret}},
	{name: "JDK 8 poll, large", frame: 400, prologue: prologueC2(400),
		epilogue: []instruction{addRSP(384), popRBP, pollPage, ret}},
	{name: "rethrow", frame: 48, prologue: prologueC2(48), epilogue: []instruction{addRSP(32), popRBP, rethrow}},
	{name: "native method, 17", frame: 80, keepsRBP: true, prologue: []instruction{bang, pushRBP, movRBP, subRSP(64)},
		epilogue: []instruction{leave, exceptionWide, jneException, ret}},
	{name: "native method, 25", frame: 80, keepsRBP: true, prologue: []instruction{bang, pushRBP, movRBP, subRSP(64)},
		epilogue: []instruction{leave, exception, jneException, ret}},
}

// Stops before every instruction of compiled code. The rule must lead to the caller's stack pointer
// and rbp, and so must the walk, whether the caller needs the one (compiled) or the other
// (interpreted).
func TestKernelLeafRule(t *testing.T) {
	w := newWalker(t)
	for _, b := range builds {
		for _, tmpl := range templates {
			t.Run(b.name+"/"+tmpl.name, func(t *testing.T) {
				vm := newFakeVM(t, b)
				w.attach(t, vm)
				caller, m := vm.typical(64), vm.newMethod(100)
				asm := tmpl.assemble(0x100)
				leaf := vm.compile(asm.bytes, tmpl.frame, asm.complete)

				for _, compiled := range []bool{false, true} {
					s := vm.newStack(t, 8<<10).entry(anchor{}).interpreted(m, 7)
					if compiled {
						s.compiled(caller, 0x40)
						s.bp = s.mem.word(s.sp + caller.frame - 16) // C1 leaves rbp alone
					}
					callerSP, callerBP := s.sp, s.bp
					s.called(leaf.begin)
					callers := s.frames
					for i, step := range asm.steps {
						s.pc = leaf.begin + step.off
						s.frames = append(callers[:len(callers):len(callers)], placedFrame{leaf.jit(s.pc), callerSP})
						rule, _ := w.run(t, w.Leaf, WalkTestRequest{Pc: s.pc, Begin: leaf.begin,
							Complete: asm.complete})
						sp, bp := leafRule(rule).caller(s, leaf.frame)
						if sp != callerSP || bp != callerBP {
							t.Errorf("rule %d: caller has sp %#x, bp %#x, want %#x, %#x", rule, sp, bp, callerSP,
								callerBP)
						}
						if s.check(t, w, s.request(), EndRoot); t.Failed() {
							t.Fatalf("before instruction %d, %s, called by compiled code: %v", i, step.text, compiled)
						}
						if step.do != nil {
							step.do(s)
						}
					}
				}
			})
		}
	}
}

// leafRule is enum leaf_rule in prologue.bpf.h.
type leafRule int32

const (
	leafFrame leafRule = iota
	leafFrameBP
	leafRetAtSP
	leafRetAtSP8
)

// caller is what the rule says of the caller's registers.
func (r leafRule) caller(s *fakeStack, frame uint64) (sp, bp uint64) {
	switch r {
	case leafFrame:
		return s.sp + frame, s.mem.word(s.sp + frame - 16)
	case leafFrameBP:
		return s.sp + frame, s.bp
	case leafRetAtSP:
		return s.sp + 8, s.bp
	case leafRetAtSP8:
		return s.sp + 16, s.mem.word(s.sp)
	}
	return 0, 0
}
