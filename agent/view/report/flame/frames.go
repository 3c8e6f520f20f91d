package flame

// A frameTable numbers frames.
type frameTable struct {
	frames    []flameFrame
	index     map[flameFrame]int32
	processes map[int32]Process // by frame
}

// flameFrame identifies a frame. Addresses, lines and tiers of compilation are merged.
type flameFrame struct {
	name, file string
	kind       frameKind
}

// A frameKind is what a frame is, for its colour.
type frameKind uint8

const (
	kindMarker frameKind = iota
	kindProcess
	kindThread
	kindManaged // interpreted or compiled by a VM
	kindStub
	kindVM // the VM's own library
	kindNative
	kindKernel
	kindClass // or whatever else is a label of events
)

// Names of the kinds in JSON, by number.
var frameKindNames = [...]string{"marker", "process", "thread", "managed", "stub", "vm", "native", "kernel", "class"}

// Tiers of execution of a managed frame.
const (
	tierInterpreted = iota
	tierC1
	tierC2
	tierCompiled // compiled by an unknown compiler
	tierInlined  // inlined, in addition to one of the others
	tiers
)

var tierNames = [tiers]string{"interpreted", "C1", "C2", "compiled", "inlined"}

func newFrameTable() frameTable {
	return frameTable{index: make(map[flameFrame]int32), processes: make(map[int32]Process)}
}

// frame returns the place of a frame.
func (t *frameTable) frame(frame flameFrame) int32 {
	at, known := t.index[frame]
	if !known {
		at = int32(len(t.frames))
		t.frames = append(t.frames, frame)
		t.index[frame] = at
	}
	return at
}

// taking returns a function that takes frames of another table, each once: it returns their place
// in t. Processes are renamed.
func (t *frameTable) taking(
	o *frameTable, rename func(Process, flameFrame) (Process, flameFrame),
) func(of int32) int32 {
	frames := make([]int32, len(o.frames)) // in t, -1 until it is needed
	for i := range frames {
		frames[i] = -1
	}
	return func(of int32) int32 {
		if frames[of] < 0 {
			to := o.frames[of]
			p, process := o.processes[of]
			if process {
				p, to = rename(p, to)
			}
			frames[of] = t.frame(to)
			if known, ok := t.processes[frames[of]]; process && (!ok || known.Runtime == "") {
				t.processes[frames[of]] = p
			}
		}
		return frames[of]
	}
}

// keepNames renames no process.
func keepNames(p Process, frame flameFrame) (Process, flameFrame) { return p, frame }

// keeper returns a function that says whether a process, by its frame, is of a service and has a
// number. An empty service is all, and so is pid 0.
func (t *frameTable) keeper(service string, pid int64) func(process int32) bool {
	return func(process int32) bool {
		p := t.processes[process]
		return (service == "" || p.Service == service) && (pid == 0 || p.PID == pid)
	}
}
