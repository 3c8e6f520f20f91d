package javavm

import (
	"errors"
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

// Up to JDK 9 the list is a linked one, and begins with the newest thread.
func TestLinkedThreads(t *testing.T) {
	const javaThread, compilerThread = 0x7000_0100, 0x7000_0200
	m := &vmtest.Image{Base: 0x1000}
	add := func(vtable, id, next uint64) uint64 { return m.Words(vtable, m.Words(id), next) }
	first := add(javaThread, 11, 0)
	second := add(javaThread, 12, first)
	compiler := add(compilerThread, 13, second)
	dying := m.Words(javaThread, 0, compiler)    // its OSThread is gone
	unreadable := m.Words(javaThread, 16, dying) // where that cannot be
	newest := add(javaThread, 14, unreadable)
	head := m.Words(newest)
	empty := m.Words(0)

	p := New(&Build{}, vmruntime.Target{Memory: m.Memory()})
	p.Build.Low, p.Build.High, p.Bias = 0x100, 0x300, 0x7000_0000
	p.Thread.firstThread, p.Thread.nextThread = head, vmstructs.Field{Offset: 16, Width: 8, Known: true}
	p.Thread.osThread, p.Thread.osThreadID = vmstructs.Field{Offset: 8, Width: 8, Known: true},
		vmstructs.Field{Offset: 0, Width: 4, Known: true}
	p.Layout.Thread.OSThread = 8

	if err := p.layoutThreadIDs(); err != nil || !p.Layout.Thread.ByID || p.Layout.Thread.Vtable != javaThread {
		t.Fatalf("%+v, %v, missing %q", p.Layout.Thread, err, p.Layout.Missing)
	}
	got, err := p.Threads()
	if want := []vmruntime.Thread{{ID: 14, Address: newest}, {ID: 12, Address: second},
		{ID: 11, Address: first}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("threads %+v, %v; want %+v", got, err, want)
	}

	p.Build.Low = 0x200 // the oldest thread's vtable is none of libjvm's
	p.Layout.Thread = ThreadLayout{OSThread: 8}
	if err := p.layoutThreadIDs(); err != nil || p.Layout.Thread.ByID || len(p.Layout.Missing) != 1 {
		t.Errorf("%+v, %v, missing %q", p.Layout.Thread, err, p.Layout.Missing)
	}
	p.Thread.firstThread, p.Layout.Thread = empty, ThreadLayout{OSThread: 8}
	if err := p.layoutThreadIDs(); !errors.Is(err, vmruntime.ErrStarting) {
		t.Errorf("no threads: %v", err)
	}
}

// A list that leads in circles ends.
func TestLinkedThreadsAreBounded(t *testing.T) {
	m := &vmtest.Image{Base: 0x1000}
	at := m.Base + 8
	head := m.Words(at, 0x7000_0100, 0, at)
	p := New(&Build{}, vmruntime.Target{Memory: m.Memory()})
	p.Thread.firstThread, p.Thread.nextThread = head, vmstructs.Field{Offset: 16, Width: 8, Known: true}
	if got, err := p.javaThreadVtable(); err == nil {
		t.Errorf("vtable %#x", got)
	}
}

// JDK 8 does not say where a frame of the interpreter has its caller's stack pointer. At 0, where
// it has the caller's frame pointer, the callers of compiled methods that the interpreter was
// called from would be lost.
func TestSenderSP(t *testing.T) {
	const name = "frame::interpreter_frame_sender_sp_offset"
	for _, test := range []struct {
		constants map[string]int64
		want      int64
	}{
		{nil, -1}, {map[string]int64{name: -1}, -1}, {map[string]int64{name: -2}, -2},
	} {
		s := newThreadSchema(&vmstructs.Resolver{Tables: &vmstructs.Tables{Constants: test.constants}})
		if s.senderSPWord != test.want {
			t.Errorf("with %v: word %d, want %d", test.constants, s.senderSPWord, test.want)
		}
	}
}
