package methodcounts

import (
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/calldata"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javavm"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/methodinfo"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// A dispatch asks for the method that a class has for a call.
type dispatch struct {
	klass uint64
	calldata.Resolution
	callee methodRef // method that is called, if that is not resolved
}

// dispatch asks where a call goes for a class of receivers.
func (s *callSite) dispatch(klass uint64) dispatch {
	d := dispatch{klass: klass, Resolution: s.Resolution}
	if !s.Resolved {
		d.Vtable, d.callee = calldata.NoVtable, s.callee
	}
	return d
}

// A dispatchKey is what the answer depends on. Classes that are unloaded leave their addresses to
// others.
type dispatchKey struct {
	klass, method   uint64
	name, signature uint64
	vtable          int
	epoch           uint32
}

func (d dispatch) key(epoch uint32) dispatchKey {
	return dispatchKey{d.klass, d.Method, d.callee.name, d.callee.signature, d.Vtable, epoch}
}

// A dispatchTarget is a method, 0 if it could not be found.
type dispatchTarget uint64

func (dispatchTarget) Bytes() int { return 80 }

// A klassName is the name of a class as in Java source.
type klassName string

func (n klassName) Bytes() int { return 80 + len(n) }

// A klassReader finds receivers' methods, many at a time.
type klassReader struct {
	methodinfo.Reader
	schema *calldata.Schema
}

// A klassRead is one dispatch on the way.
type klassRead struct {
	dispatch
	target uint64 // what was found
	holder uint64 // the interface that declares the method: the call may name one that extends it
	table  uint64 // address of the itable
	length uint64 // bytes of the itable
	index  uint64 // index of the method among the interface's
}

// targets finds the methods that classes dispatch to, 0 for those that cannot be found. The caller
// bounds how many it asks for.
func (r *methodSearch) targets(asked []dispatch) ([]uint64, error) {
	reads := make([]klassRead, len(asked))
	for i, d := range asked {
		reads[i].dispatch = d
	}
	for _, step := range []func([]klassRead) error{r.readHolders, r.readVtables, r.readItables} {
		if err := step(reads); err != nil {
			return nil, err
		}
	}
	targets := make([]uint64, len(reads))
	var byName []wanted
	for i := range reads {
		targets[i] = reads[i].target
		byName = append(byName, wanted{})
		if d := &reads[i]; !d.Resolved {
			byName[i] = wanted{d.klass, d.callee.name, d.callee.signature}
		}
	}
	found, err := r.find(byName)
	for i, target := range found {
		if target != 0 {
			targets[i] = target
		}
	}
	return targets, err
}

// readHolders finds the interfaces that declare what is called.
func (r klassReader) readHolders(reads []klassRead) error {
	var asked []uint64
	for _, d := range reads {
		asked = append(asked, d.Method)
	}
	methods, err := r.WithPools(asked)
	if err != nil {
		return err
	}
	holder := make(map[uint64]uint64, len(methods))
	for _, m := range methods {
		if m.OK {
			holder[m.Addr] = m.Klass
		}
	}
	for i := range reads {
		reads[i].holder = holder[reads[i].Method]
	}
	return nil
}

// readVtables takes what a vtable says, and finds out where the itables are.
func (r klassReader) readVtables(reads []klassRead) error {
	k := &r.schema.Klass
	var headers, slots vmstructs.Batch
	for _, d := range reads {
		headers.Add(k.VtableLength.At(d.klass), 4)
		headers.Add(k.ItableLength.At(d.klass), 4)
		headers.Add(r.schema.VtableIndex.Of(d.Method), 4)
	}
	if err := headers.Read(r.Mem); err != nil {
		return err
	}
	for i := range reads {
		d := &reads[i]
		vtable, ok1 := headers.Word(3 * i)
		itable, ok2 := headers.Word(3*i + 1)
		index, ok3 := headers.Word(3*i + 2)
		slot := uint64(0) // not mapped
		switch {
		case !ok1 || !d.Resolved || vtable > calldata.MaxVtable:
		case d.Vtable >= 0 && uint64(d.Vtable) < vtable:
			slot = d.klass + k.Size + vmstructs.WordSize*uint64(d.Vtable)
		case d.holder != 0 && ok2 && ok3 && itable <= calldata.MaxItable && int32(index) <= calldata.ItableFirst:
			d.table, d.length = d.klass+k.Size+vmstructs.WordSize*vtable, vmstructs.WordSize*itable
			d.index = uint64(calldata.ItableFirst - int64(int32(index)))
		}
		slots.Add(slot, vmstructs.WordSize)
	}
	if err := slots.Read(r.Mem); err != nil {
		return err
	}
	for i := range reads {
		if target, ok := slots.Word(i); ok {
			reads[i].target = target
		}
	}
	return nil
}

// readItables looks interfaces up in itables: at first among the first ones only, as most classes
// have few.
func (r klassReader) readItables(reads []klassRead) error {
	const first = 16
	var more []*klassRead
	var slots vmstructs.Batch
	var waiting []*klassRead
	find := func(list []*klassRead, entries uint64) error {
		var tables vmstructs.Batch
		for _, d := range list {
			tables.Add(d.table, min(entries*calldata.ItableEntry, d.length))
		}
		if err := tables.Read(r.Mem); err != nil {
			return err
		}
		for i, d := range list {
			table, ok := tables.Bytes(i)
			if !ok {
				continue
			}
			offset, end := itableFind(table, d.holder)
			switch {
			case offset != 0 && uint64(offset)+vmstructs.WordSize*d.index < d.table-d.klass+d.length:
				slots.Add(d.klass+uint64(offset)+vmstructs.WordSize*d.index, vmstructs.WordSize)
				waiting = append(waiting, d)
			case !end && entries < calldata.MaxInterfaces && entries*calldata.ItableEntry < d.length:
				more = append(more, d)
			}
		}
		return nil
	}
	var list []*klassRead
	for i := range reads {
		if reads[i].length >= calldata.ItableEntry {
			list = append(list, &reads[i])
		}
	}
	if err := find(list, first); err != nil {
		return err
	}
	list, more = more, nil
	if err := find(list, calldata.MaxInterfaces); err != nil {
		return err
	}
	if err := slots.Read(r.Mem); err != nil {
		return err
	}
	for i, d := range waiting {
		if target, ok := slots.Word(i); ok {
			d.target = target
		}
	}
	return nil
}

// itableFind returns where an interface's methods are, 0 if it is not in the part of the table that
// is given; end says that it is not in the rest of the table either.
func itableFind(table []byte, iface uint64) (offset uint32, end bool) {
	for ; len(table) >= calldata.ItableEntry; table = table[calldata.ItableEntry:] {
		switch vmstructs.Number(table[:8]) {
		case 0:
			return 0, true
		case iface:
			return uint32(vmstructs.Number(table[calldata.ItableOffset : calldata.ItableOffset+4])), true
		}
	}
	return 0, false
}

// Memory that a profiler keeps of receivers at most: methods that calls lead to, and names of
// classes.
const (
	dispatchBytes = 2 << 20
	klassBytes    = 1 << 20
)

// A receiverTable answers which method a receiver has, and what its class is called.
type receiverTable struct {
	schema *calldata.Schema
	epoch  uint32
	*Profiler
	names map[uint64]string
}

// readReceivers looks methods up that are not known in this epoch, and names classes.
func (p *Profiler) readReceivers(
	asked []dispatch, klasses []uint64, epoch uint32, search *methodSearch,
) (receiverTable, error) {
	table := receiverTable{schema: &p.schema, epoch: epoch, Profiler: p, names: make(map[uint64]string)}
	targets, err := search.targets(asked)
	if err != nil {
		return table, err
	}
	for i, d := range asked {
		p.dispatched.Add(d.key(epoch), dispatchTarget(targets[i]))
	}
	var unknown []uint64
	for _, klass := range vmstructs.Distinct(klasses) {
		if name, ok := p.klasses.Get(javavm.Key{Addr: klass, Epoch: epoch}); ok {
			table.names[klass] = string(name)
		} else if len(unknown) < maxReceivers {
			unknown = append(unknown, klass)
		}
	}
	names, err := p.MethodReader().KlassNames(unknown)
	if err != nil {
		return table, err
	}
	for klass, name := range names {
		table.names[klass] = name
		p.klasses.Add(javavm.Key{Addr: klass, Epoch: epoch}, klassName(name))
	}
	return table, nil
}

// receiver describes a class of which receivers were seen at a call.
func (t receiverTable) receiver(site *callSite, row calldata.ReceiverRow) vmruntime.Receiver {
	target := site.Target
	if target == 0 {
		found, _ := t.dispatched.Get(site.dispatch(row.Klass).key(t.epoch))
		target = uint64(found)
	}
	return vmruntime.Receiver{Class: t.names[row.Klass], Klass: row.Klass, Count: row.Count, Target: target}
}
