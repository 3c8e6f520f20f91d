package hotspot

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// Bounds on Methods. JVMs with 100,000 classes have been seen, some ten methods each.
const (
	maxLoaders    = 1 << 17 // class loaders; every lambda of JDK 11 to 14 has one of its own
	maxClasses    = 1 << 19
	maxAllMethods = 1 << 21
)

// A classListSchema leads to all classes: a list of the loaders' data
// (src/hotspot/share/classfile/classLoaderData.hpp), and in each a list of classes.
type classListSchema struct {
	head         uint64          // static
	next, first  vmstructs.Field // fields of ClassLoaderData
	nextClass    vmstructs.Field // field of Klass
	layoutHelper vmstructs.Field // field of Klass
	lacks        []string
}

func newClassListSchema(from *vmstructs.Tables) classListSchema {
	r := &vmstructs.Resolver{Tables: from} // a resolver of its own: without it, only this does not work
	s := classListSchema{
		head:         r.Static("ClassLoaderDataGraph._head"),
		next:         r.Field("ClassLoaderData._next"),
		first:        r.Field("ClassLoaderData._klasses"),
		nextClass:    r.Field("Klass._next_link"),
		layoutHelper: r.Field("Klass._layout_helper"),
	}
	s.layoutHelper.Width = 4
	s.lacks = r.Missing
	return s
}

// Methods lists the methods of all classes: some tens of milliseconds per thousand classes, nearly
// all of it for system calls. If classes are unloaded during that, it starts again; after three
// attempts it returns ErrStale.
func (p *Process) Methods() ([]uint64, error) {
	s := &p.schema.classes
	if err := p.schema.profile.Err(p.version.jdk); err != nil {
		return nil, err
	}
	if len(s.lacks) > 0 {
		return nil, fmt.Errorf("list methods: %w", (&vmstructs.Resolver{Missing: s.lacks}).Err())
	}
	const attempts = 3 // classes are unloaded in bursts, with long pauses between
	for range attempts {
		epoch := p.currentEpoch()
		methods, err := p.listMethods(s)
		if p.currentEpoch() != epoch {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list methods: %w", err)
		}
		return methods, nil
	}
	return nil, fmt.Errorf("list methods: %w", vmruntime.ErrStale)
}

func (p *Process) listMethods(s *classListSchema) ([]uint64, error) {
	classes, err := p.listClasses(s)
	if err != nil {
		return nil, err
	}
	k := &p.schema.profile.Klass
	var pointers, lengths, arrays vmstructs.Batch
	for _, c := range classes {
		pointers.Add(s.layoutHelper.At(c), 4)
		pointers.Add(k.Methods.At(c), vmstructs.WordSize)
	}
	if err := pointers.Read(p.memory.Mem); err != nil {
		return nil, err
	}
	var lists []uint64
	for i := range classes {
		helper, ok := pointers.Word(2 * i)
		list, ok2 := pointers.Word(2*i + 1)
		if instances := int32(helper) > 0; ok && ok2 && instances && list != 0 {
			lists = append(lists, list)
			lengths.Add(p.schema.profile.Pool.ArrayLength.At(list), 4)
		}
	}
	if err := lengths.Read(p.memory.Mem); err != nil {
		return nil, err
	}
	sum := uint64(0)
	for i, list := range lists {
		n, ok := lengths.Word(i)
		if !ok || n > maxClassMethods {
			n = 0
		}
		if sum += n; sum > maxAllMethods {
			return nil, fmt.Errorf("more than %d methods: %w", maxAllMethods, vmruntime.ErrMalformed)
		}
		arrays.Add(k.MethodArray.At(list), vmstructs.WordSize*n)
	}
	if err := arrays.Read(p.memory.Mem); err != nil {
		return nil, err
	}
	methods := make([]uint64, 0, sum)
	for i := range lists {
		list, ok := arrays.Bytes(i)
		for ; ok && len(list) >= vmstructs.WordSize; list = list[vmstructs.WordSize:] {
			methods = append(methods, vmstructs.Number(list[:vmstructs.WordSize]))
		}
	}
	return vmstructs.Distinct(methods), nil
}

// listClasses follows the lists of all loaders side by side: each step of all of them is one batch.
func (p *Process) listClasses(s *classListSchema) ([]uint64, error) {
	head, err := p.memory.Word(s.head)
	if err != nil {
		return nil, err
	}
	var heads []uint64 // heads of the loaders' lists
	seen := map[uint64]bool{}
	for loader := head; loader != 0; {
		if len(seen) == maxLoaders || seen[loader] {
			return nil, fmt.Errorf("a list of more than %d class loaders: %w", len(seen), vmruntime.ErrMalformed)
		}
		seen[loader] = true
		var b vmstructs.Batch
		b.Add(s.first.At(loader), vmstructs.WordSize)
		b.Add(s.next.At(loader), vmstructs.WordSize)
		if err := b.Read(p.memory.Mem); err != nil {
			return nil, err
		}
		first, ok1 := b.Word(0)
		next, ok2 := b.Word(1)
		if !ok1 || !ok2 {
			return nil, fmt.Errorf("class loader at %#x: %w", loader, vmruntime.ErrMalformed)
		}
		heads = append(heads, first)
		loader = next
	}
	var classes []uint64
	clear(seen)
	for at := vmstructs.Distinct(heads); len(at) > 0; {
		for _, c := range at {
			if len(classes) == maxClasses || seen[c] {
				return nil, fmt.Errorf("a list of more than %d classes: %w", len(classes), vmruntime.ErrMalformed)
			}
			seen[c] = true
			classes = append(classes, c)
		}
		var b vmstructs.Batch
		for _, c := range at {
			b.Add(s.nextClass.At(c), vmstructs.WordSize)
		}
		if err := b.Read(p.memory.Mem); err != nil {
			return nil, err
		}
		next := at[:0]
		for i := range at {
			if c, ok := b.Word(i); ok && c != 0 {
				next = append(next, c)
			}
		}
		at = next
	}
	return classes, nil
}
