package fold

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// While the names of a process are in use, no function with the State waits for them. Names that
// should be forgotten meanwhile are forgotten later.
func TestNamesDoNotBlock(t *testing.T) {
	o, _ := ownerOf(StateOptions{})
	h := &bpf.Header{Pid: 7, Start: 5, Exec: 1}
	frame := guest.RawFrame{Frame: 8, Kind: guest.RawAddress}
	p := Get(o, func(s *State) *Process { return s.Process(h) })
	o.Do(func(s *State) { s.Want(p, []guest.RawFrame{frame}, 0) })
	p.SetName(frame, guest.Name{Unknown: true})
	names := p.Names()
	done := make(chan error, 1)
	go func() {
		done <- o.Do(func(s *State) {
			s.Want(p, []guest.RawFrame{{Frame: 9, Kind: guest.RawAddress}}, 0)
			s.Loaded(&bpf.CodeLoad{Header: h})
			p.SetRuntime("test")
			p.Note("a note")
			p.Runtime()
			p.Trim(nil, &s.Names)
		})
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the State is not free while names are in use")
	}
	if names.Len() != 1 {
		t.Errorf("%d names, want 1: they changed while they were in use", names.Len())
	}
	names.Close()
	o.Do(func(s *State) { s.Trim(p) })
	if names = p.Names(); names.Len() != 0 {
		t.Errorf("%d names are left", names.Len())
	}
	names.Close()
}
