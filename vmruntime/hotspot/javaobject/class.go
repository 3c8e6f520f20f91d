package javaobject

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaheap"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javavm"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/methodinfo"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// A Class is what the VM knows about the objects of one class. It is immutable.
type Class struct {
	Name    string  // java.util.HashMap$Node, byte[], java.lang.String[]
	fields  []Field // fields of its objects, inherited ones included, by offset
	statics []Field // fields of the class itself, by offset
	shape   javaheap.Shape
}

// A Field is a field of a Java class.
type Field struct {
	Class  string // class that declares it
	Name   string
	Type   string // in the form of Class.Name
	Offset uint32 // bytes from the object's start; of a static field from that of the java.lang.Class
	Size   uint32 // bytes
}

// Fields are those of the class's objects, inherited ones included, by ascending offset. The caller
// must not change them.
func (c *Class) Fields() []Field { return c.fields }

// Statics are the fields of the class itself, by ascending offset. The caller must not change them.
func (c *Class) Statics() []Field { return c.statics }

// Field returns the field that the byte at an offset belongs to: ok is false in headers, gaps and
// arrays.
func (c *Class) Field(offset uint64) (f Field, ok bool) { return fieldAt(c.fields, offset) }

// FieldNamed returns a field of the class's objects.
func (c *Class) FieldNamed(name string) (Field, bool) {
	for _, f := range c.fields {
		if f.Name == name {
			return f, true
		}
	}
	return Field{}, false
}

// InstanceSize is the size of the class's objects in bytes: 0 if they are arrays.
func (c *Class) InstanceSize() uint64 { return c.shape.Size }

// Bytes is about how much memory c holds.
func (c *Class) Bytes() int {
	n := 160 + len(c.Name)
	for _, fields := range [][]Field{c.fields, c.statics} {
		for i := range fields {
			n += 64 + len(fields[i].Name) + len(fields[i].Type) // the declaring class's name is shared
		}
	}
	return n
}

func fieldAt(fields []Field, offset uint64) (f Field, ok bool) {
	i, found := slices.BinarySearchFunc(fields, offset, func(f Field, offset uint64) int {
		return cmp.Compare(uint64(f.Offset), offset)
	})
	if !found {
		i--
	}
	if i < 0 || offset >= uint64(fields[i].Offset)+uint64(fields[i].Size) {
		return Field{}, false
	}
	return fields[i], true
}

// Bounds on classes.
const (
	maxAbove      = 64       // classes above one; 20 is a lot
	classBytes    = 4 << 20  // bytes of memory that a Heap keeps of them
	maxFieldBytes = 64 << 10 // bytes of the field information of one
)

// Klass reads the class whose VM structure is at addr, as of a class epoch (see Site.Epoch).
// ErrStale if classes were unloaded since; ErrMalformed if no class is there.
func (p *Heap) Klass(addr uint64, epoch uint32) (*Class, error) {
	if !p.Layout.HasObjects {
		return nil, fmt.Errorf("class at %#x: objects of this JVM are not known: see Layout.Missing", addr)
	}
	if p.CurrentEpoch() != epoch {
		return nil, vmruntime.ErrStale
	}
	if class, ok := p.objects.classes.Get(javavm.Key{Addr: addr, Epoch: epoch}); ok {
		return class, nil
	}
	if addr == 0 { // the header of memory that no object is in any more is zero
		return nil, fmt.Errorf("class at address 0: %w", vmruntime.ErrMalformed)
	}
	chain, above, err := p.superclasses(addr, epoch)
	if err != nil {
		return nil, err
	}
	if last := chain[len(chain)-1]; last.super == 0 && last.symbol == "java/lang/Object" {
		p.objects.object = last.addr // the boot loader's class: it is never unloaded
	}
	for _, head := range slices.Backward(chain) {
		class, err := p.readClass(head, above)
		if err != nil {
			return nil, err
		}
		// A class was unloaded, and what was read may be of two; or nobody would say.
		if p.CurrentEpoch() != epoch {
			return nil, vmruntime.ErrStale
		}
		if p.Epoch != nil {
			p.objects.classes.Add(javavm.Key{Addr: head.addr, Epoch: epoch}, class)
		}
		above = class
	}
	return above, nil
}

// superclasses reads the heads of a class and its superclasses, up to one that is known or to the
// last one.
func (p *Heap) superclasses(addr uint64, epoch uint32) (chain []klassHead, known *Class, err error) {
	for addr != 0 {
		if class, ok := p.objects.classes.Get(javavm.Key{Addr: addr, Epoch: epoch}); ok {
			return chain, class, nil
		}
		heads, err := p.readHeads([]uint64{addr})
		if err != nil {
			return nil, nil, err
		}
		head, ok := heads[addr]
		if !ok || len(chain) == maxAbove {
			return nil, nil, fmt.Errorf("class at %#x: %w", addr, vmruntime.ErrMalformed)
		}
		chain = append(chain, head)
		addr = head.super
	}
	return chain, nil, nil
}

// readClass reads what a class adds to the one above it, if there is one.
func (p *Heap) readClass(head klassHead, above *Class) (*Class, error) {
	class := &Class{Name: head.name, shape: head.shape}
	if head.shape.Array {
		return class, nil
	}
	records, pool, err := p.readFieldRecords(head.addr)
	if err != nil {
		return nil, fmt.Errorf("fields of %s: %w", class.Name, err)
	}
	names, err := p.readFieldNames(records, pool)
	if err != nil {
		return nil, err
	}
	if above != nil {
		class.fields = slices.Clone(above.fields)
	}
	reference := uint32(vmstructs.WordSize)
	if p.Layout.Objects.OopIsNarrow {
		reference = 4
	}
	for i, record := range records {
		name, signature := names[2*i], names[2*i+1]
		if name == "" || signature == "" {
			continue
		}
		f := Field{class.Name, name, methodinfo.TypeName(signature), record.Offset,
			methodinfo.TypeBytes(signature, reference)}
		if record.Static {
			class.statics = append(class.statics, f)
		} else {
			class.fields = append(class.fields, f)
		}
	}
	for _, fields := range [][]Field{class.fields, class.statics} {
		slices.SortStableFunc(fields, func(a, b Field) int { return cmp.Compare(a.Offset, b.Offset) })
	}
	return class, nil
}

// readFieldRecords reads the fields that a class itself declares, and the address of the constant
// pool that names them.
func (p *Heap) readFieldRecords(klass uint64) (records []javaheap.FieldRecord, pool uint64, err error) {
	s := &p.schema
	object, err := p.Memory.Bytes(klass, s.instanceSize())
	if err != nil {
		return nil, 0, err
	}
	pool = s.constants.Read(object)
	if s.fieldStream.Known && s.byteArray.Known {
		stream, err := p.array(s.fieldStream.Read(object), s.byteArray, 1)
		if err != nil || len(stream) == 0 {
			return nil, 0, err
		}
		records, err = javaheap.ParseFieldStream(stream, p.Version.Unsigned5Bias(), s.fieldBits)
		return records, pool, err
	}
	if !s.fieldArray.Known || !s.fieldCount.Known || !s.shortArray.Known {
		return nil, 0, errors.New("the VM does not export them")
	}
	data, err := p.array(s.fieldArray.Read(object), s.shortArray, 2)
	return javaheap.ParseFieldArray(data, int(s.fieldCount.Read(object))), pool, err
}

// array reads the elements of an Array of the VM, which have size bytes each.
func (p *Heap) array(addr uint64, data vmstructs.Field, size uint64) ([]byte, error) {
	if addr == 0 {
		return nil, nil
	}
	header, err := p.Memory.Bytes(addr, p.schema.arrayLength.End())
	if err != nil {
		return nil, err
	}
	n := size * p.schema.arrayLength.Read(header)
	if n > maxFieldBytes {
		return nil, fmt.Errorf("array of %d bytes: %w", n, vmruntime.ErrMalformed)
	}
	return p.Memory.Bytes(data.At(addr), n)
}

// readFieldNames reads name and signature of each field, one after the other. Those that cannot be
// read are empty.
func (p *Heap) readFieldNames(records []javaheap.FieldRecord, pool uint64) ([]string, error) {
	var pointers vmstructs.Batch
	slot := func(index uint32, injected bool) {
		addr := uint64(0)
		switch {
		case index > 1<<16-1: // no constant pool has as many
		case !injected:
			addr = p.MethodReader().Slot(pool, uint64(index))
		case p.schema.vmSymbols != 0:
			addr = p.schema.vmSymbols + vmstructs.WordSize*uint64(index)
		}
		pointers.Add(addr, methodinfo.PoolSlot)
	}
	for _, r := range records {
		slot(r.Name, r.Injected)
		slot(r.Signature, r.Injected)
	}
	if err := pointers.Read(p.Memory.Mem); err != nil {
		return nil, err
	}
	addrs := make([]uint64, 2*len(records))
	for i := range addrs {
		if addr, ok := pointers.Word(i); ok {
			addrs[i] = methodinfo.Untag(addr)
		}
	}
	symbols, err := p.MethodReader().Symbols(addrs)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(addrs))
	for i, addr := range addrs {
		names[i] = symbols[addr]
	}
	return names, nil
}
