package profile

import (
	"regexp"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// A CodeKind is a kind of work that CPU time goes to.
type CodeKind uint8

const (
	GuestCode    CodeKind = iota // the guest's own, compiled or interpreted, and stubs: Java, or Python
	NativeCode                   // libraries and the program itself
	KernelCode                   // system calls, faults, interrupts
	Compiling                    // threads of the VM's JIT compilers
	Collecting                   // threads of its garbage collector
	Housekeeping                 // its other threads
	CodeKinds                    // number of kinds
)

var codeKindNames = [CodeKinds]string{"Java", "native", "kernel", "JIT", "GC", "VM"}

// String is a short name for people.
func (k CodeKind) String() string { return codeKindNames[k] }

// hotspotThreads are the beginnings of the names of HotSpot's own threads. The kernel keeps 15
// bytes of a name, and from JDK 23 on HotSpot leaves out the middle of longer ones: C2
// Comp..hread0. Java threads may have the same names, so that a prefix is as long as it can be.
var hotspotThreads = []struct {
	prefix string
	kind   CodeKind
}{
	{"C1 CompilerThre", Compiling}, {"C2 CompilerThre", Compiling}, {"C1 Comp..", Compiling}, {"C2 Comp..", Compiling},
	{"Sweeper thread", Compiling},
	{"JVMCI CompilerT", Compiling}, {"JVMCI C..", Compiling},
	{"GC Thread#", Collecting}, {"G1 ", Collecting}, {"ZDriver", Collecting}, {"ZWorker", Collecting},
	{"ZDirector", Collecting}, {"ZUncommitter", Collecting}, {"ZUnmapper", Collecting}, {"ZStat", Collecting},
	{"RuntimeWorker#", Collecting},
	{"Shenandoah", Collecting}, {"Shenand..", Collecting}, {"ParGC Thread#", Collecting},
	{"Concurrent Mark", Collecting}, {"CMS ", Collecting}, {"Gang worker#", Collecting},
	{"VM Thread", Housekeeping}, {"VM Periodic Tas", Housekeeping}, {"VM Peri..", Housekeeping},
	{"Signal Dispatch", Housekeeping}, {"Signal ..", Housekeeping},
	{"Service Thread", Housekeeping}, {"Monitor Deflati", Housekeeping}, {"Monitor..", Housekeeping},
}

// VMThread is what a thread of the VM itself does, by the runtime of its process (Process.Runtime)
// and its name; false for all others.
func VMThread(runtime, name string) (CodeKind, bool) {
	if runtime != "hotspot" {
		return 0, false
	}
	for _, t := range hotspotThreads {
		if strings.HasPrefix(name, t.prefix) {
			return t.kind, true
		}
	}
	return 0, false
}

// VMThread is what a thread of the process does for the VM itself; false for all others.
func (p *Process) VMThread(name string) (CodeKind, bool) { return VMThread(p.Runtime, name) }

// classLibrary are how the names of the Java class library's packages begin.
var classLibrary = [...]string{"java.", "javax.", "jdk.", "sun.", "com.sun.", "org.ietf.jgss.", "org.jcp.xml.",
	"org.w3c.dom.", "org.xml.sax."}

// ClassLibrary lists the packages of the Java class library, for people.
func ClassLibrary() string { return strings.Join(classLibrary[:], "*, ") + "*" }

// pythonLibrary is the path of a module where installers put Python's own, and packages.
var pythonLibrary = regexp.MustCompile(`/(site|dist)-packages/|/python[0-9.]+t?(\.zip)?/`)

// InLibrary reports whether a method is in the Java class library, by its name, or in a module that
// came with Python or was installed, by its source file. Every other method of a VM is the
// application's.
func InLibrary(method, file string) bool {
	if strings.HasPrefix(file, "<frozen ") || strings.HasPrefix(file, "/") && pythonLibrary.MatchString(file) {
		return true
	}
	for _, begin := range classLibrary {
		if strings.HasPrefix(method, begin) {
			return true
		}
	}
	return false
}

// CodeOf is the kind of a leaf frame in a thread that is not the VM's own.
func CodeOf(leaf symbol.Kind) CodeKind {
	switch leaf {
	case symbol.KindJIT, symbol.KindInterpreted, symbol.KindStub:
		return GuestCode
	case symbol.KindKernel:
		return KernelCode
	}
	return NativeCode
}

// ByCode is the process's CPU time in ns by kind of code, given Profile.Period: the threads of the
// VM by their work, all others by the innermost frame. Stacks with code of the guest are the
// application's, whatever their thread is called.
func (p *Process) ByCode(period time.Duration) (sum [CodeKinds]float64) {
	for _, t := range p.Threads {
		if t.Tree == nil {
			continue
		}
		kind, ofVM := p.VMThread(t.Name)
		switch {
		case t.Unseen == 0:
		case ofVM:
			sum[kind] += float64(t.Unseen)
		default:
			sum[CodeOf(t.UnseenIn.Value().Kind)] += float64(t.Unseen)
		}
		// guest says, by node, whether the stack has code of the guest. Parents come before their
		// children.
		guest := make([]bool, t.Tree.Len()+1)
		for id, n := range t.Tree.Nodes() {
			if id != cct.Root {
				guest[id] = guest[n.Parent] || CodeOf(n.Key.Value().Kind) == GuestCode
			}
			switch {
			case ofVM && !guest[id]:
				sum[kind] += t.Time(n.Self, period)
			case id == cct.Root: // not even one frame is known
				sum[NativeCode] += t.Time(n.Self, period)
			case n.Self > 0:
				sum[CodeOf(n.Key.Value().Kind)] += t.Time(n.Self, period)
			}
		}
	}
	return sum
}
