package javaobject

import (
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaheap"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// An objectSchema leads from the VM's variables to what javaheap.ObjectLayout says. What each JDK
// moved is in the table in hotspot/jdks.go.
type objectSchema struct {
	narrowKlass, klass    vmstructs.Field // fields of oopDesc, one place read in two ways; each where the VM has it
	klassBase, klassShift uint64          // statics
	oopBase, oopShift     uint64          // statics
	markKlassBit          uint64          // where the class begins in a mark word, 0 if it is never there
	colours               javaheap.ColourSchema

	markBits                  uint64          // bits of a mark word, the hash included
	layoutHelper, name, super vmstructs.Field // fields of Klass
	// superCheck is a field of Klass: the offset in it of the pointer to itself among those to its
	// superclasses.
	superCheck vmstructs.Field
	// primary and secondary are fields of Klass: the first superclass pointer, and where superCheck
	// leads if there are more.
	primary, secondary vmstructs.Field
	primaryLimit       uint64
	mirror             vmstructs.Field // field of Klass: a handle of its java.lang.Class
	constants          vmstructs.Field // field of InstanceKlass
	// fieldArray and fieldCount are fields of InstanceKlass up to JDK 20: Array<u2>*, and how many
	// of them are declared.
	fieldArray, fieldCount vmstructs.Field
	fieldStream            vmstructs.Field // field of InstanceKlass from JDK 21 on: Array<u1>*
	arrayLength            vmstructs.Field
	shortArray, byteArray  vmstructs.Field
	fieldBits              javaheap.FieldBits
	vmSymbols              uint64 // static array of Symbol*, 0 if unknown

	// Statics: offsets in java.lang.Class of its Klass*, that of the array of it, and its size in
	// words.
	mirrorKlass, mirrorArray, mirrorSize uint64

	tlabStart, tlabTop, tlabEnd vmstructs.Field // fields of JavaThread
	allocated                   vmstructs.Field // field of JavaThread: bytes, without the used part of the buffer
	prefetchWords               uint64          // static: words behind a buffer's end that are its own, too
	threadObject                vmstructs.Field // field of JavaThread
	monitorObject, monitorOwner vmstructs.Field // fields of ObjectMonitor

	wellKnown uint64 // static: classes that the VM itself knows, from java.lang.Object on; 0 if unknown

	archiveLow, archiveHigh uint64 // statics: bounds of the CDS archives, 0 if unknown
	heap                    javaheap.Schema
	cards                   javaheap.CardSchema
	lacks                   []string
}

func newObjectSchema(from *vmstructs.Tables) objectSchema {
	r := &vmstructs.Resolver{Tables: from} // a resolver of its own: without it, only objects are unknown
	either := func(names ...string) uint64 {
		for _, name := range names {
			if addr := r.OptionalStatic(name); addr != 0 {
				return addr
			}
		}
		r.Missing = append(r.Missing, names[0])
		return 0
	}
	s := objectSchema{
		narrowKlass: r.Optional("oopDesc._metadata._compressed_klass", "oopDesc._compressed_klass"),
		klass:       r.Optional("oopDesc._metadata._klass"),
		klassBase: either("CompressedKlassPointers._base",
			"CompressedKlassPointers._narrow_klass._base", "Universe._narrow_klass._base"),
		klassShift: either("CompressedKlassPointers._shift",
			"CompressedKlassPointers._narrow_klass._shift", "Universe._narrow_klass._shift"),
		oopBase: either("CompressedOops._base",
			"CompressedOops._narrow_oop._base", "Universe._narrow_oop._base"),
		oopShift: either("CompressedOops._shift",
			"CompressedOops._narrow_oop._shift", "Universe._narrow_oop._shift"),
		markKlassBit: uint64(r.Constant("markWord::klass_shift")),
		colours:      javaheap.NewColourSchema(r),
		markBits: uint64(r.Constant("markWord::hash_shift", "markOopDesc::hash_shift") +
			r.Constant("markWord::hash_bits", "markOopDesc::hash_bits")),
		layoutHelper:  r.Field("Klass._layout_helper"),
		name:          r.Field("Klass._name"),
		super:         r.Field("Klass._super"),
		mirror:        r.Optional("Klass._java_mirror"),
		superCheck:    r.Field("Klass._super_check_offset"),
		primary:       r.Field("Klass._primary_supers[0]"),
		secondary:     r.Field("Klass._secondary_super_cache"),
		primaryLimit:  uint64(r.Constant("Klass::_primary_super_limit")),
		constants:     r.Field("InstanceKlass._constants"),
		fieldArray:    r.Optional("InstanceKlass._fields"),
		fieldCount:    r.Optional("InstanceKlass._java_fields_count"),
		fieldStream:   r.Optional("InstanceKlass._fieldinfo_stream"),
		arrayLength:   r.Field("Array<int>._length"),
		shortArray:    r.Optional("Array<u2>._data", "Array<u2>._data[0]"),
		byteArray:     r.Optional("Array<u1>._data", "Array<u1>._data[0]"),
		fieldBits:     javaheap.NewFieldBits(r),
		vmSymbols:     r.OptionalStatic("Symbol._vm_symbols[0]"),
		mirrorKlass:   r.OptionalStatic("java_lang_Class._klass_offset"),
		mirrorArray:   r.OptionalStatic("java_lang_Class._array_klass_offset"),
		mirrorSize:    r.OptionalStatic("java_lang_Class._oop_size_offset"),
		allocated:     r.Optional("Thread._allocated_bytes", "JavaThread._allocated_bytes"),
		prefetchWords: r.OptionalStatic("ThreadLocalAllocBuffer._reserve_for_allocation_prefetch"),
		threadObject:  r.Field("JavaThread._threadObj"),
		monitorObject: r.Field("ObjectMonitor._object"),
		monitorOwner:  r.Optional("ObjectMonitor._owner"),
		wellKnown:     r.OptionalStatic("vmClasses._klasses[static_cast<int>(vmClassID::Object_klass_knum)]"),
		archiveLow:    r.OptionalStatic("MetaspaceObj._shared_metaspace_base"),
		archiveHigh:   r.OptionalStatic("MetaspaceObj._shared_metaspace_top"),
		heap:          javaheap.NewSchema(r),
		cards:         javaheap.NewCardSchema(r),
	}
	if s.archiveLow == 0 { // JDK 26
		s.archiveLow = r.OptionalStatic("MetaspaceObj._aot_metaspace_base")
		s.archiveHigh = r.OptionalStatic("MetaspaceObj._aot_metaspace_top")
	}
	tlab := r.Field("Thread._tlab")
	for _, f := range []struct {
		to    *vmstructs.Field
		names []string
	}{
		{&s.tlabStart, []string{"ThreadLocalAllocBuffer._start"}},
		{&s.tlabTop, []string{"ThreadLocalAllocBuffer._top"}},
		{&s.tlabEnd, []string{"ThreadLocalAllocBuffer._end", "ThreadLocalAllocBuffer._allocation_end"}},
	} {
		*f.to = r.Field(f.names...)
		f.to.Offset += tlab.Offset
	}
	const mostSupers = 64
	if s.primaryLimit == 0 || s.primaryLimit > mostSupers {
		r.Missing = append(r.Missing, "plausible Klass::_primary_super_limit")
	}
	s.primary.Width = uint8(vmstructs.WordSize * s.primaryLimit) // all of them
	if s.markBits == 0 || s.markBits >= 64 {
		r.Missing = append(r.Missing, "plausible markWord::hash_shift and hash_bits")
	}
	if s.markKlassBit >= 64 {
		r.Missing = append(r.Missing, "plausible markWord::klass_shift")
	}
	s.lacks = r.Missing
	return s
}

// headSize is how many bytes of a Klass show whether it is one.
func (s *objectSchema) headSize() uint64 {
	return vmstructs.LastEnd(s.layoutHelper, s.name, s.super, s.superCheck, s.primary, s.secondary)
}

// instanceSize is how many bytes of an InstanceKlass are read to find its fields.
func (s *objectSchema) instanceSize() uint64 {
	return vmstructs.LastEnd(s.constants, s.fieldArray, s.fieldCount, s.fieldStream)
}
