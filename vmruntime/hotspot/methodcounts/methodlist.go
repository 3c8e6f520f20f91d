package methodcounts

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// maxAllMethods bounds Methods: classes have some ten methods each.
const maxAllMethods = 1 << 21

// Methods lists the methods of all classes: some tens of milliseconds per thousand classes, nearly
// all of it for system calls. If classes are unloaded during that, it starts again; after three
// attempts it returns ErrStale.
func (p *Profiler) Methods() ([]uint64, error) {
	if err := p.schema.Err(p.Version.JDK); err != nil {
		return nil, err
	}
	if err := p.CanListClasses(); err != nil {
		return nil, fmt.Errorf("list methods: %w", err)
	}
	const attempts = 3 // classes are unloaded in bursts, with long pauses between
	for range attempts {
		epoch := p.CurrentEpoch()
		var methods []uint64
		classes, err := p.ListClasses()
		if err == nil {
			methods, err = p.listMethods(classes)
		}
		if p.CurrentEpoch() != epoch {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list methods: %w", err)
		}
		return methods, nil
	}
	return nil, fmt.Errorf("list methods: %w", vmruntime.ErrStale)
}

// listMethods reads the methods of classes.
func (p *Profiler) listMethods(classes []uint64) ([]uint64, error) {
	k, helper := &p.schema.Klass, p.LayoutHelper()
	var pointers, lengths, arrays vmstructs.Batch
	for _, c := range classes {
		pointers.Add(helper.At(c), 4)
		pointers.Add(k.Methods.At(c), vmstructs.WordSize)
	}
	if err := pointers.Read(p.Memory.Mem); err != nil {
		return nil, err
	}
	var lists []uint64
	for i := range classes {
		word, ok := pointers.Word(2 * i)
		list, ok2 := pointers.Word(2*i + 1)
		if instances := int32(word) > 0; ok && ok2 && instances && list != 0 {
			lists = append(lists, list)
			lengths.Add(p.schema.Pool.ArrayLength.At(list), 4)
		}
	}
	if err := lengths.Read(p.Memory.Mem); err != nil {
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
	if err := arrays.Read(p.Memory.Mem); err != nil {
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
