package hotspot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Known is what a JVM knows of a method.
type Known struct {
	Method bool // its class is loaded and has it, with the signature if there is one
	Class  bool // its class is loaded
	// Near are methods that may be meant, the likeliest first; with signatures if only that is
	// wrong. Empty if Method is true.
	Near []string
}

const (
	// knownTime bounds how long the methods of a JVM are listed and named: some seconds for 100,000
	// classes.
	knownTime = 20 * time.Second
	// maxNear bounds Known.Near.
	maxNear = 3
	// maxCandidates bounds the names that are kept for Near.
	maxCandidates = 1 << 16
)

// Find reports whether a JVM has loaded a method. It looks at compiled code first, then at the
// methods of all classes: some tens of milliseconds per thousand of them. The error says why the
// methods are not known, as of a JVM whose classes cannot be listed; it is an *AmbiguousError if
// there are several of the name.
func Find(ctx context.Context, root proc.Root, pid int, method Method) (Known, error) {
	if root == "" {
		root = proc.DefaultRoot
	}
	p, err := attachProcess(ctx, root, proc.NewPool(proc.PoolOptions{}), pid, method)
	if err != nil {
		return Known{}, err
	}
	defer p.Close()
	if err := p.search(); len(p.methods) > 0 {
		var ambiguous *AmbiguousError
		if errors.As(err, &ambiguous) {
			return Known{}, err
		}
		return Known{Method: true, Class: true}, nil
	}
	lister, ok := p.vm.(vmruntime.MethodCounter)
	if !ok {
		return Known{}, fmt.Errorf("process %d: its classes cannot be listed: %w", pid, errors.ErrUnsupported)
	}
	methods, err := lister.Methods()
	if err != nil {
		return Known{}, err
	}
	f := newFinder(method)
	const chunk = 4096
	deadline := time.Now().Add(knownTime)
	for part := range slices.Chunk(methods, chunk) {
		if err := ctx.Err(); err != nil {
			return Known{}, err
		}
		if time.Now().After(deadline) {
			return Known{}, fmt.Errorf("process %d: naming its %d methods takes too long: %w", pid, len(methods),
				proc.ErrTimeout)
		}
		places := make([]vmruntime.Scope, len(part))
		for i, m := range part {
			places[i].Method = m
		}
		frames, err := p.vm.Names(places)
		if err != nil {
			return Known{}, err
		}
		for i := range frames {
			f.add(&frames[i])
		}
	}
	return f.known(), nil
}

// A finder looks for a method among many.
type finder struct {
	method     Method
	class      string
	found      Known
	signatures []string // signatures of methods of that name
	names      []string // candidates
}

func newFinder(m Method) *finder {
	return &finder{method: m, class: m.Function[:max(strings.LastIndexByte(m.Function, '.'), 0)]}
}

func (f *finder) add(frame *vmruntime.Frame) {
	name := frame.Function
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return
	}
	f.found.Class = f.found.Class || name[:dot] == f.class
	switch {
	case name == f.method.Function && (f.method.Signature == "" || f.method.Signature == frame.Signature):
		f.found.Method = true
	case name == f.method.Function:
		f.signatures = append(f.signatures, name+frame.Signature)
	case len(f.names) < maxCandidates && len(stored.Near([]string{name}, f.method.Function, 1)) > 0:
		f.names = append(f.names, name)
	}
}

func (f *finder) known() Known {
	known := f.found
	if known.Method {
		return known
	}
	slices.Sort(f.signatures)
	if known.Near = slices.Compact(f.signatures); len(known.Near) == 0 {
		known.Near = stored.Near(f.names, f.method.Function, maxNear)
	}
	known.Near = known.Near[:min(len(known.Near), maxNear)]
	return known
}
