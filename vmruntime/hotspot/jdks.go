package hotspot

// What each JDK moved, and what in the code handles it. Releases that docs/reference/jdks.md has are
// tested. The others were read from their sources.
//
// The VM's own tables decide wherever they can: a field with several spellings is looked up under
// all of them, and no code asks for the version. Only what no table has goes by version, in the
// methods of javavm.Version. A range or "<=" says that the change came at some release up to the one
// named. TestJDKs checks that every identifier in this table exists.
//
// Tables, flags and version:
//
//	8    Abstract_VM_Version._vm_major_version is 25, the version of HotSpot; JDK_Version._current has the release.
//	     In javavm.ReadVersion.
//	8    JVMFlag is called Flag.
//	     In vmstructs.NewFlagSchema.
//	21   CompLevel became a byte. It was an int.
//	     In vmstructs.typeWidth.
//	<=23 JDK_Version is not exported any more.
//	     In javavm.ReadVersion, javavm.versionSchema.
//
// Code cache and debug information:
//
//	9    CodeCache._heap became CodeCache._heaps, an array of up to three code heaps.
//	     In codecache.NewSchema, codecache.heapPointers.
//	9    The nmethod states zombie and unloaded, which were 2 and 3, became 3 and 4.
//	     In javavm.Live.
//	9    nmethod._method, _scopes_data_offset and _deoptimize_offset became CompiledMethod._method, _scopes_data_begin
//	     and _deopt_handler_begin. The latter two are pointers.
//	     In codecache.NewBlobSchema, debuginfo.NewSchema, debuginfo.spans.
//	<=17 GenericGrowableArray became GrowableArrayBase.
//	     In codecache.NewSchema.
//	20   UNSIGNED5 excludes zero bytes (JDK-8292758).
//	     In javavm.Unsigned5Bias, debuginfo.Unsigned5.
//	20   There are no zombie or unloaded nmethods any more.
//	     In javavm.Live.
//	23   CompiledMethod is gone again. CodeBlob has 32-bit offsets (_code_offset, _data_offset) in place of pointers
//	     (_code_begin, _code_end).
//	     In codecache.NewBlobSchema, codecache.Decode, nmethod.blobLayout.
//	23   Code positions and scopes moved to nmethod._immutable_data, scopes behind positions. Pointers to metadata did not.
//	     In debuginfo.spans.
//	23   The entry points of an nmethod are 16-bit offsets from its code. They were pointers.
//	     In codecache.Decode.
//	<=25 HeapBlock._length has 32 bits, CodeBlob._frame_complete_offset 16.
//	     In vmstructs.typeWidth, nmethod.blobLayout.
//	25   Pointers to metadata moved to CodeBlob._mutable_data, behind the relocations.
//	     In debuginfo.spans.
//	25   CodeBlob._kind says what a blob is.
//	     In codecache.IsAdapter.
//	26   nmethod._immutable_data ends in a reference count.
//	     In debuginfo.spans.
//	26   An adapter from an AOT cache is named by the signature that it is for.
//	     In codecache.IsAdapter.
//
// Code that the VM generates:
//
//	10   The poll for safepoints before ret changed its form, and again in 16 and 22.
//	     In nmethod.inEpilogue.
//	21   Some stub routines are generated when they are first needed.
//	     In nmethod.find.
//	25   The entry points of stub routines are not exported any more. StubCodeDesc still has them.
//	     In codecache.Routines.
//	25   "StubRoutines (continuation stubs)" lost its space, and later became "continuation_blob (stub gen)". The routine
//	     "Cont thaw return barrier" became "cont_returnBarrier".
//	     In codecache.KindOf, nmethod.isReturnBarrier.
//
// Methods and names:
//
//	<=17 Symbol._length was the upper half of Symbol._length_and_refcount for some releases after 11.
//	     In methodinfo.NewSchema.
//	<=17 The index of the source file's name moved from InstanceKlass to ConstantPool.
//	     In methodinfo.NewSchema, methodinfo.fileIndexes.
//	15   Classes of lambdas are hidden classes: their names end in + and an address. Before, it was / and a number, and
//	     from 11 on each lambda had a class loader of its own.
//	     In methodinfo.className, methodinfo.dropHiddenSuffix, javaobject.maxLoaders.
//	21   ConstMethod._flags became a struct, its constants ConstMethodFlags::_misc_...
//	     In methodinfo.NewSchema.
//
// Threads and frames:
//
//	9    Interpreter frames got a slot for the class mirror: the bytecode pointer moved from word -7 to -8 (amd64).
//	     In javavm.bytecodeWord.
//	9    Thread::_thr_current came.
//	     In javavm.layoutThreadIDs.
//	10   Threads moved from the linked list Threads::_thread_list to ThreadsSMRSupport::_java_thread_list.
//	     In javavm.ThreadAddresses, javavm.linkedThreads.
//	16   JavaThread::_threadObj became an OopHandle at about this release. Where it points to shows it.
//	     In javaobject.threadObjects.
//	16   ObjectMonitor::_object became a WeakHandle (JDK-8247281).
//	     In javavm.MonitorHandles.
//	16   Stubs for upcalls came. No table says where their frames keep the anchor up to JDK 24.
//	     In javavm.firstUpcallField, javavm.findText.
//	21   Virtual threads came. JavaThread._cont_entry and ContinuationEntry._return_pc are not exported yet.
//	     In javathread.firstLoom, javathread.LayoutLoom, javavm.newThreadSchema.
//	>21  StackChunk.argsize became StackChunk.bottom.
//	     In javathread.chunkLayout.
//	28   ContinuationEntry._parent and StubRoutines._cont_returnBarrier are exported.
//	     In javathread.chunkLayout, javathread.barrier.
//	28   JavaThreadState lost its states in between: _thread_in_Java is 4. It was 8.
//	     In javavm.newThreadSchema, javavm.usualInJava.
//
// Objects and the heap:
//
//	8    GenCollectedHeap._gens is an array of generations.
//	     In javaheap.NewSchema.
//	<=14 Universe::_narrow_oop and _narrow_klass moved to CompressedOops and CompressedKlassPointers, whose _base and
//	     _shift were in a struct at first.
//	     In javaobject.newObjectSchema.
//	15   UseAdaptiveGCBoundary, by which Parallel moved the boundary of its generations, is gone.
//	     In javaheap.parallel.
//	>11  The bounds of the archive of classes (CDS) are exported.
//	     In javaobject.archiveBounds, javaobject.checkThread.
//	21   The fields of a class are an UNSIGNED5 stream, _fieldinfo_stream. They were an array of 16-bit numbers.
//	     In javaobject.readFieldRecords, javaheap.ParseFieldStream, javaheap.ParseFieldArray.
//	21   Generational ZGC came: its coloured references are shifted. The other ZGC was called X until it went in 24.
//	     -XX:-ZGenerational selects it, and up to 22 it is the default.
//	     In javaheap.GenerationalZ, javaheap.Uncolour.
//	22   GenCollectedHeap became SerialHeap.
//	     In javaheap.NewSchema.
//	23   HeapRegion of G1 became G1HeapRegion. Its tags have other values.
//	     In javaheap.NewSchema.
//	24   Compact object headers came: UseCompactObjectHeaders. They are the default in 28.
//	     In javaobject.headerForms.
//	26   The bounds of the archive of classes became MetaspaceObj::_aot_metaspace_base and _top.
//	     In javaobject.newObjectSchema.
//	28   Classes are always narrow: UseCompressedClassPointers and oopDesc::_metadata are gone, and
//	     oopDesc::_compressed_klass is what _metadata._compressed_klass was.
//	     In javaobject.headerForms, javaobject.newObjectSchema.
//	28   Value classes came: flat fields have more numbers in _fieldinfo_stream.
//	     In javaheap.FieldBits.
//	28   Parallel may move the boundary of its generations: PSYoungGen::_reserved is gone.
//	     In javaheap.parallel.
//
// Counts of calls:
//
//	9    The bytecodes that HotSpot rewrites have today's numbers. JDK 8 is not supported here.
//	     In calldata.bytecodeLengths, calldata.Err.
//	9-25 The counts of invocations and back edges of a MethodData are in no table: they are four 32-bit numbers right
//	     before _tenure_traps: invocations, back edges, and both when profiling started.
//	     In calldata.NewSchema.
//	9-21 In builds with JVMCI, entries of receivers have a cell between the counter and the rows. It was seen in 17 and
//	     in the sources of 21, and is gone in 25. It is found by trial.
//	     In calldata.NewDecoder, calldata.Decode.
//	<=17 InvocationCounter has its number from bit 1 on, from bit 3 before (InvocationCounter::count_shift). Bit 0 is set
//	     when the VM found the number large enough, and the number goes on.
//	     In calldata.NewSchema.
//	21   Call sites of invokedynamic have an array of their own: ConstantPoolCache._resolved_indy_entries.
//	     In calldata.PoolSchema, methodcounts.entryOf.
//	22   Methods have one too, _resolved_method_entries, in place of ConstantPoolCacheEntry.
//	     In calldata.DecodeEntry, calldata.DecodeMethodEntry.
//	<=23 Indexes of invokedynamic are not negated any more. Both forms are understood.
//	     In calldata.invokeAt.
//	25   Klass and InstanceKlass have other sizes. The vtable still follows an InstanceKlass, and the itable follows it.
//	     In calldata.KlassSchema.
//	25   C1 inlines clone of an array and does not count it. Calls of intrinsics may be missing from the counts.
//	     In methodcounts.Profiles.
