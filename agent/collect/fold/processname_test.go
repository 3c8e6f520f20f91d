package fold

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// The records of a process that is gone when somebody looks at it have its name: those of its
// programs, and samples of its first thread.
func TestProcessName(t *testing.T) {
	NewOwner(NewState(StateOptions{Submit: func(*guest.Process) {}}), func(error) {}).Do(func(s *State) {
		id := foldtest.Identity{PID: 77, Start: 5, Exec: 1}
		execute := func(comm string) {
			e := bpf.ProcessEvent{Header: id.Header(bpf.EventProcessExec)}
			copy(e.Comm[:], comm)
			s.Executed(&e)
		}
		sample := func(tid uint32, comm string) guest.Description {
			h := id.Header(bpf.EventSample)
			h.Tid = tid
			p := s.Process(&h)
			name := make([]byte, 16)
			copy(name, comm)
			p.ObserveThread(&bpf.Sample{Header: &h, Comm: name})
			return p.Describe()
		}
		for _, step := range []struct {
			what string
			do   func() guest.Description
			want string
		}{
			{"a thread of a program whose begin was recorded",
				func() guest.Description { execute("build"); return sample(78, "worker") }, "build"},
			{"another program of the process",
				func() guest.Description { id.Exec++; execute("compile"); return sample(78, "worker") }, "compile"},
			{"another process with the pid, without a record of its program",
				func() guest.Description { id.Start++; return sample(78, "worker") }, ""},
			{"its first thread", func() guest.Description { return sample(77, "shell") }, "shell"},
			{"which has another name now", func() guest.Description { return sample(77, "(sd-pam)") }, "(sd-pam)"},
			{"and which a thread with a name of its own does not change",
				func() guest.Description { return sample(78, "worker") }, "(sd-pam)"},
		} {
			if d := step.do(); d.Comm != step.want || d.Service != step.want {
				t.Errorf("%s: %q, service %q, want %q", step.what, d.Comm, d.Service, step.want)
			}
		}
		execute("late")
		h := id.Header(bpf.EventProcessExit)
		if s.Ended(&h); len(s.executed) != 0 {
			t.Error("the program of a process that has ended is kept")
		}
	})
}
