package hotspot

// threadSchema is what a walker of stacks needs to know about threads and frames.
type threadSchema struct {
	anchor, stackBase, stackSize field  // of JavaThread
	state                        field  // of JavaThread
	inJava                       int64  // its value while a thread runs Java code
	osThread                     field  // of JavaThread
	osThreadID                   field  // of OSThread
	contEntry                    field  // of JavaThread, from JDK 21 on
	lastSP, lastPC, lastFP       field  // of JavaFrameAnchor
	wrapperAnchor                field  // of JavaCallWrapper
	wrapperWord                  int64  // word of an entry frame that points to its JavaCallWrapper
	senderSPWord                 int64  // word of an interpreter frame that has the caller's stack pointer
	contReturn                   uint64 // static: see LoomLayout.EnterReturn
	contParent                   field  // of ContinuationEntry; exported from JDK 28 on
	contBarrier                  uint64 // static: see LoomLayout.ReturnBarrier; exported from JDK 28 on
}

func newThreadSchema(r *resolver) threadSchema {
	s := threadSchema{
		anchor:        r.field("JavaThread._anchor"),
		stackBase:     r.field("JavaThread._stack_base", "Thread._stack_base"),
		stackSize:     r.field("JavaThread._stack_size", "Thread._stack_size"),
		state:         r.field("JavaThread._thread_state"),
		inJava:        r.constant("_thread_in_Java"),
		osThread:      r.optional("JavaThread._osthread", "Thread._osthread"),
		osThreadID:    r.optional("OSThread._thread_id"),
		contEntry:     r.optional("JavaThread._cont_entry"),
		lastSP:        r.field("JavaFrameAnchor._last_Java_sp"),
		lastPC:        r.field("JavaFrameAnchor._last_Java_pc"),
		lastFP:        r.field("JavaFrameAnchor._last_Java_fp"),
		wrapperAnchor: r.field("JavaCallWrapper._anchor"),
		wrapperWord:   r.constant("frame::entry_frame_call_wrapper_offset"),
		senderSPWord:  r.constant("frame::interpreter_frame_sender_sp_offset"),
		contReturn:    r.optionalStatic("ContinuationEntry._return_pc"),
		contParent:    r.optional("ContinuationEntry._parent"),
		contBarrier:   r.optionalStatic("StubRoutines._cont_returnBarrier"),
	}
	if s.inJava == 0 {
		s.inJava = usualInJava
	}
	if s.inJava < 0 || s.inJava > maxThreadState {
		r.missing = append(r.missing, "plausible _thread_in_Java")
	}
	return s
}

// Numbers of JavaThreadState (src/hotspot/share/utilities/globalDefinitions.hpp): a bound, and that of _thread_in_Java where
// the VM does not export it. JDK 28 counts them anew, as the states in between are gone: there it is 4.
const (
	maxThreadState = 64
	usualInJava    = 8
)

func (s *threadSchema) layout() ThreadLayout {
	return ThreadLayout{
		Anchor:        s.anchor.offset,
		LastSP:        s.lastSP.offset,
		LastPC:        s.lastPC.offset,
		LastFP:        s.lastFP.offset,
		StackBase:     s.stackBase.offset,
		StackSize:     s.stackSize.offset,
		State:         s.state.offset,
		InJava:        uint32(s.inJava),
		OSThread:      s.osThread.offset,
		OSThreadID:    s.osThreadID.offset,
		CallWrapper:   int32(s.wrapperWord) * wordSize,
		WrapperAnchor: s.wrapperAnchor.offset,
	}
}
