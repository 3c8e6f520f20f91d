package hotspot

import (
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/calldata"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/debuginfo"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// What each JDK moved, as far as it matters here. A name that is exported under several spellings is asked for under
// all of them, so that the VM's own tables decide and not its version; only what is in no table goes by version.
//
//	JDK   change
//	9     CodeCache._heap became CodeCache._heaps, an array: up to three code heaps.
//	9     interpreter frames got a slot for the class mirror: the bytecode pointer moved from word -7 to -8 (amd64).
//	9     nmethod states zombie and unloaded, which were 2 and 3, became 3 and 4.
//	9     nmethod._method and _scopes_data_offset and _deoptimize_offset became CompiledMethod._method,
//	      _scopes_data_begin and _deopt_handler_begin, the latter two pointers.
//	<=17  Symbol._length was the upper half of Symbol._length_and_refcount for some releases after 11.
//	<=17  the index of the source file's name moved from InstanceKlass to ConstantPool.
//	<=17  GenericGrowableArray became GrowableArrayBase.
//	15    classes of lambdas are hidden classes: their names end in +0x and an address.
//	20    UNSIGNED5 excludes zero bytes; no zombie or unloaded nmethods any more.
//	21    ConstMethod._flags became a struct, its constants ConstMethodFlags::_misc_...; virtual threads.
//	23    CompiledMethod is gone again. CodeBlob has 32-bit offsets (_code_offset, _data_offset) in place of pointers
//	      (_code_begin, _code_end). Code positions and scopes moved out of the code cache, to
//	      nmethod._immutable_data, with the scopes behind the positions; pointers to metadata did not.
//	<=25  HeapBlock._length has 32 bits, _frame_complete_offset 16.
//	25    the pointers to metadata moved to CodeBlob._mutable_data, behind the relocations. The entry points of stub
//	      routines are not exported any more (StubCodeDesc still has them).
//	26    nmethod._immutable_data ends in a reference count.
//	28    JavaThreadState has no states in between any more: _thread_in_Java is 4, which was 8.
//
// JDK 17 and 25 are tested; the others were read from their sources.

// A schema is what of the VM's structures this package uses: where each field is, in one process. It is not kept by
// build of libjvm, though it is the same for all: a process that lies about itself must only harm its own profile.
type schema struct {
	cache   codecache.Schema
	blob    codecache.BlobSchema
	scopes  debuginfo.Schema
	method  methodSchema
	thread  threadSchema
	stubs   codecache.StubSchema
	flags   vmstructs.FlagSchema
	version versionSchema
	profile calldata.Schema
	object  objectSchema
	classes classListSchema
}

// newSchema looks up everything; the error names all that is missing at once.
func newSchema(s *vmstructs.Tables) (*schema, error) {
	r := &vmstructs.Resolver{Tables: s}
	schema := &schema{
		cache:   codecache.NewSchema(r),
		blob:    codecache.NewBlobSchema(r),
		scopes:  debuginfo.NewSchema(r),
		method:  newMethodSchema(r),
		thread:  newThreadSchema(r),
		stubs:   codecache.NewStubSchema(r),
		flags:   vmstructs.NewFlagSchema(r),
		version: newVersionSchema(r),
		profile: calldata.NewSchema(s),
		object:  newObjectSchema(s),
		classes: newClassListSchema(s),
	}
	return schema, r.Err()
}
