package fold

import (
	"fmt"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// What a thread did counts for the name that it had; beyond the bound, for the last one.
func TestThreadNames(t *testing.T) {
	threads := map[ThreadKey]*Thread{}
	r := (&EventSet{}).ByKind(profile.OffCPU)
	for range 2 {
		for i := range maxThreadNames + 4 {
			name := []byte(fmt.Sprintf("task-%d", i))
			s := &Sample{Sample: &bpf.Sample{Header: &bpf.Header{Tid: 7}, Comm: name}}
			thread, event := threadOf(threads, s), r.threadOf(&Event{TID: 7, Comm: name})
			if thread.Comm != commOf(name) || r.comms[7][event.nth] != commOf(name) {
				t.Errorf("%s is %s, and %s of events", name, thread.Comm, r.comms[7][event.nth])
			}
			if last := min(i, maxThreadNames-1); threads[keyOf(7, last, false)] != thread || int(event.nth) != last ||
				event.tid != 7 {
				t.Errorf("%s is not number %d", name, last)
			}
		}
	}
	if len(threads) != maxThreadNames || len(r.comms[7]) != maxThreadNames {
		t.Errorf("%d names, and %d of events", len(threads), len(r.comms[7]))
	}
}
