package exact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// ObjectFlag is the command line flag that makes a JVM report its allocations.
const ObjectFlag = "DTraceAllocProbes"

// ErrObjectFlag says that the JVM runs without ObjectFlag, which cannot be changed while it runs.
var ErrObjectFlag = errors.New("the JVM does not report its allocations: start it with -XX:+" + ObjectFlag)

// errHeap: without the layout of objects nothing is known of their classes.
var errHeap = errors.New("the layout of the JVM's objects is not known: its allocations cannot be counted")

// CheckObjects returns nil if the VM reports its allocations, ErrObjectFlag if it does not, and
// another error if its flags cannot be read.
func CheckObjects(vm VM) error {
	on, err := vm.Flag(ObjectFlag)
	if err != nil {
		return fmt.Errorf("read the JVM's flag %s: %w", ObjectFlag, err)
	}
	if !on {
		return ErrObjectFlag
	}
	return nil
}

// An ObjectSite is where a libjvm reports an object.
type ObjectSite struct {
	Offset uint64 // position in the file
	Second bool   // the object is the second argument, after the thread
}

// FindObjectSites finds the entries of SharedRuntime::dtrace_object_alloc in a libjvm, whose bytes
// are in text: one for each overload.
func FindObjectSites(file *elffile.File, text io.ReaderAt) ([]ObjectSite, error) {
	found, err := probesite.New(file, text).Entries("SharedRuntime::dtrace_object_alloc")
	if err != nil {
		return nil, fmt.Errorf("probe of allocations: %w", err)
	}
	sites := make([]ObjectSite, len(found))
	for i, s := range found {
		sites[i] = ObjectSite{Offset: s.Offset, Second: strings.Contains(s.Function, "EP10JavaThread")}
	}
	return sites, nil
}

// classDeadline bounds the wait for the names of classes.
const classDeadline = 5 * time.Second

// nameClasses names the classes of allocated objects. Those of earlier epochs have no name: their
// structures may be those of other classes by now. unnamed is how many objects that concerns.
func (x *Source) nameClasses(
	ctx context.Context, p *fold.Process, r *Recording,
) (names map[Class]string, unnamed uint64, err error) {
	var latest uint32
	for _, t := range r.Threads {
		for _, a := range t.Allocations {
			latest = max(latest, a.Class.Epoch)
		}
	}
	klasses := map[uint64]bool{}
	for _, t := range r.Threads {
		for _, a := range t.Allocations {
			if a.Class.Epoch == latest {
				klasses[a.Class.Addr] = true
			} else {
				unnamed += a.Objects
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, classDeadline)
	defer cancel()
	found, err := x.Resolver.ClassNames(ctx, p.Process, func(yield func(uint64) bool) {
		for k := range klasses {
			if !yield(k) {
				return
			}
		}
	})
	if err != nil {
		return nil, 0, err
	}
	names = make(map[Class]string, len(found))
	for k, name := range found {
		names[Class{Addr: k, Epoch: latest}] = name
	}
	return names, unnamed, nil
}

// objectNotes describe the counting of objects for people.
func objectNotes(r *Recording, unnamed uint64) []string {
	notes := []string{fmt.Sprintf("exact: %d allocated objects counted", r.Objects)}
	if unnamed > 0 {
		notes = append(notes, stored.Plural(int(unnamed), "allocated object")+
			" without a class: allocated before the JVM unloaded classes.")
	}
	return notes
}

// allocationsOf makes the profile of allocated objects: a row for each context, thread and class.
func allocationsOf(r *Recording, name func(Method) symbol.Symbol, classes map[Class]string) *profile.Events {
	limit := 1
	for i := range r.Threads {
		limit += r.Threads[i].Tree.Len()
	}
	e := &profile.Events{Kind: profile.Allocations, Tree: &cct.Tree[symbol.Symbol]{Limit: limit}}
	type key struct {
		context cct.NodeID
		tid     int
		class   string
	}
	rows := map[key]*profile.EventRow{}
	var stack []symbol.Symbol
	for i := range r.Threads {
		t := &r.Threads[i]
		for _, a := range t.Allocations {
			stack = stack[:0]
			for id := a.Context; id != cct.Root; id = t.Tree.Node(id).Parent {
				stack = append(stack, name(t.Tree.Node(id).Key))
			}
			k := key{e.Tree.Add(stack, a.Objects), t.TID, classes[a.Class]}
			row := rows[k]
			if row == nil {
				row = &profile.EventRow{
					Context: k.context, TID: t.TID, Thread: symbol.CleanName(t.Name),
					EventLabels: profile.EventLabels{Class: k.class, What: profile.ExactAllocations},
				}
				rows[k] = row
			}
			row.Events += a.Objects
			row.Values[0] += float64(a.Objects)
			row.Values[1] += float64(a.Bytes)
		}
	}
	for _, row := range rows {
		e.Rows = append(e.Rows, *row)
	}
	slices.SortFunc(e.Rows, func(a, b profile.EventRow) int {
		return cmp.Or(cmp.Compare(a.Context, b.Context), cmp.Compare(a.TID, b.TID), strings.Compare(a.Class, b.Class))
	})
	return e
}
