package hotspot

// threadSchema is what a walker of stacks needs to know about threads and frames.
type threadSchema struct {
	anchor, stackBase, stackSize field // of JavaThread
	state                        field // of JavaThread
	contEntry                    field // of JavaThread, from JDK 21 on
	lastSP, lastPC, lastFP       field // of JavaFrameAnchor
	wrapperAnchor                field // of JavaCallWrapper
	wrapperWord                  int64 // word of an entry frame that points to its JavaCallWrapper
	senderSPWord                 int64 // word of an interpreter frame that has the caller's stack pointer
	contReturn                   uint64
}

func newThreadSchema(r *resolver) threadSchema {
	return threadSchema{
		anchor:        r.field("JavaThread._anchor"),
		stackBase:     r.field("JavaThread._stack_base", "Thread._stack_base"),
		stackSize:     r.field("JavaThread._stack_size", "Thread._stack_size"),
		state:         r.field("JavaThread._thread_state"),
		contEntry:     r.optional("JavaThread._cont_entry"),
		lastSP:        r.field("JavaFrameAnchor._last_Java_sp"),
		lastPC:        r.field("JavaFrameAnchor._last_Java_pc"),
		lastFP:        r.field("JavaFrameAnchor._last_Java_fp"),
		wrapperAnchor: r.field("JavaCallWrapper._anchor"),
		wrapperWord:   r.constant("frame::entry_frame_call_wrapper_offset"),
		senderSPWord:  r.constant("frame::interpreter_frame_sender_sp_offset"),
		contReturn:    r.optionalStatic("ContinuationEntry._return_pc"),
	}
}

func (s *threadSchema) layout() ThreadLayout {
	return ThreadLayout{
		Anchor:        s.anchor.offset,
		LastSP:        s.lastSP.offset,
		LastPC:        s.lastPC.offset,
		LastFP:        s.lastFP.offset,
		StackBase:     s.stackBase.offset,
		StackSize:     s.stackSize.offset,
		State:         s.state.offset,
		CallWrapper:   int32(s.wrapperWord) * wordSize,
		WrapperAnchor: s.wrapperAnchor.offset,
	}
}
