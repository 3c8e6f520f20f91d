package history

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// A CodeKind says what kind of code CPU time was spent in.
type CodeKind uint8

const (
	Java      CodeKind = iota // of a managed runtime: compiled or interpreted, and what the VM generated for it
	JIT                       // threads that compile
	GC                        // threads that collect garbage
	Kernel                    // on any other thread
	Native                    // anything else, including the VM itself
	CodeKinds                 // number of kinds
)

var codeKindNames = [CodeKinds]string{"java", "jit", "gc", "kernel", "native"}

// String is the kind in lower case.
func (k CodeKind) String() string { return codeKindNames[k] }

// A Sum is what one service used in a window.
type Sum struct {
	Service string
	CPU     [CodeKinds]time.Duration
	// Events are the sums of the main value of each kind (profile.EventKind.Main), without rows that stand apart.
	Events [profile.EventKinds]float64
}

// maxSums bounds the services of a window with sums of their own. The sums of all others are under "".
const maxSums = 500

// sumsOf adds up a window by service, ordered by name.
func sumsOf(p *profile.Profile) (list []Sum) {
	index := make(map[string]int)
	for _, proc := range p.Processes {
		service := proc.Service
		if _, known := index[service]; !known && len(index) >= maxSums {
			service = ""
		}
		at, known := index[service]
		if !known {
			at = len(list)
			index[service], list = at, append(list, Sum{Service: service})
		}
		list[at].addProcess(p, proc)
	}
	slices.SortFunc(list, func(a, b Sum) int { return cmp.Compare(a.Service, b.Service) })
	return list
}

func (s *Sum) addProcess(p *profile.Profile, proc *profile.Process) {
	for _, t := range proc.Threads {
		if t.Tree == nil || p.Unit != profile.Samples {
			continue
		}
		of := threadKind(proc, t.Name)
		for id, n := range t.Tree.Nodes() {
			if n.Self > 0 {
				s.CPU[codeKind(t.Tree, id, of)] += time.Duration(n.Self) * p.Period
			}
		}
	}
	for _, e := range proc.Events {
		for i := range e.Rows {
			if row := &e.Rows[i]; !e.Kind.Apart(&row.EventLabels) {
				s.Events[e.Kind] += row.Values[e.Kind.Main()]
			}
		}
	}
}

func (s *Sum) add(o *Sum) {
	for k := range o.CPU {
		s.CPU[k] += o.CPU[k]
	}
	for k := range o.Events {
		s.Events[k] += o.Events[k]
	}
}

// Beginnings of the names of HotSpot's threads, of which the kernel keeps 15 bytes (src/hotspot/share/gc, compiler/compileBroker.cpp).
var (
	collectorThreads = []string{"GC Thread", "G1 ", "ParGC Thread", "ParallelGC", "Concurrent Mark", "CMS ", "ZWorker", "ZDriver", "ZDirector", "ZStat",
		"ZUnmapper", "ZUncommitter", "XWorker", "XDriver", "XDirector", "Shenandoah"}
	compilerThreads = []string{"C1 Compiler", "C2 Compiler", "JVMCI Native", "JVMCI Compiler", "JVMCI-native"}
)

// threadKind is GC or JIT of threads that do nothing else; otherwise Native.
func threadKind(proc *profile.Process, name string) CodeKind {
	begins := func(beginnings []string) bool {
		return slices.ContainsFunc(beginnings, func(b string) bool { return strings.HasPrefix(name, b) })
	}
	switch {
	case proc.Runtime != "hotspot":
		return Native
	case begins(collectorThreads):
		return GC
	case begins(compilerThreads):
		return JIT
	}
	return Native
}

// codeKind is the kind of a context's innermost code, on a thread of that kind. A Java thread may have any name, so Java code comes first.
func codeKind(t *cct.Tree[symbolize.Symbol], id cct.NodeID, thread CodeKind) CodeKind {
	for ; id != cct.Root; id = t.Node(id).Parent {
		switch t.Node(id).Key.Value().Kind {
		case symbolize.KindMarker: // no code: [rare stacks], [stale]
			continue
		case symbolize.KindJIT, symbolize.KindInterpreted, symbolize.KindStub:
			return Java
		case symbolize.KindKernel:
			if thread == Native {
				return Kernel
			}
		}
		return thread
	}
	return thread
}
