package cpython

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A Layout is what a walker must know of one process.
type Layout struct {
	Interpreters      uint64 // address of the word that leads to the first interpreter
	CodeType          uint64 // what the type of a code object is
	EvalLow, EvalHigh uint64 // the loop of the interpreter; 0 and 0 if it is not known
	GIL               uint64 // address of the lock, before 3.12; 0 otherwise
	Offsets
}

// A Process is one guest. Its methods are called from one goroutine at a time.
type Process struct {
	memory  vmruntime.Memory
	version version
	layout  Layout
	epoch   func() uint32 // nil if unknown
	seen    func(uint64) (vmruntime.SeenMethod, bool)
	codes   map[codeKey]*code
	bytes   int // of codes
	notes   []string
}

// Attach finds out where the interpreter has its threads. vmruntime.ErrStarting if it has none yet.
// The result is a *Process.
func (i *Image) Attach(guest vmruntime.Target) (vmruntime.Process, error) {
	p := &Process{
		memory: guest.Memory, version: i.version, epoch: guest.Epoch, seen: guest.Seen, codes: map[codeKey]*code{},
	}
	if err := p.attach(i, guest.Bias); err != nil {
		return nil, fmt.Errorf("attach to CPython: %w", err)
	}
	return p, nil
}

func (p *Process) attach(i *Image, bias uint64) error {
	runtime := i.runtime + bias
	o, ok := byVersion[i.version.minor()]
	if !ok {
		b := make([]byte, debugSize(i.version.minor()))
		err := p.memory.Read(runtime, b)
		if err != nil {
			return err
		}
		if o, err = parseDebugOffsets(b, i.version); err != nil {
			return err
		}
	}
	p.layout = Layout{Interpreters: runtime + o.InterpretersHead, CodeType: i.codeType + bias, Offsets: o}
	if i.evalHigh > i.evalLow {
		p.layout.EvalLow, p.layout.EvalHigh = i.evalLow+bias, i.evalHigh+bias
	}
	if o.RuntimeGIL != 0 {
		p.layout.GIL = runtime + o.RuntimeGIL
	}
	// The first interpreter is there before it has a thread.
	interpreter, err := p.word(p.layout.Interpreters)
	if err != nil {
		return err
	}
	if interpreter == 0 {
		return vmruntime.ErrStarting
	}
	thread, err := p.word(interpreter + o.ThreadsHead)
	if err != nil {
		return err
	}
	if thread == 0 {
		return vmruntime.ErrStarting
	}
	if o.FreeThreaded {
		p.notes = append(p.notes, "This CPython is a free-threaded build, in which threads run without a common lock.")
	}
	if o.CodeQualifiedName == 0 {
		p.notes = append(p.notes, fmt.Sprintf("CPython %v does not record in which class a function is: methods are "+
			"shown without their class.", p.version))
	}
	return nil
}

func (p *Process) word(addr uint64) (uint64, error) {
	var b [8]byte
	err := p.memory.Read(addr, b[:])
	return word(b[:], 0), err
}

// Layout is what a walker of the process's frames must know.
func (p *Process) Layout() *Layout { return &p.layout }

// Describe names the interpreter and its version: "CPython 3.11.2".
func (p *Process) Describe() string { return "CPython " + p.version.String() }

// Notes are what a reader of this guest's profile must know, one sentence each.
func (p *Process) Notes() []string { return p.notes }

// Loaded does nothing: CPython announces no code.
func (p *Process) Loaded(vmruntime.CodeLoad) {}
