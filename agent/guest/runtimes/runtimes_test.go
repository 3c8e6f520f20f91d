package runtimes

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes/bridge"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Each runtime has names of its own, and one way in which its VMs are found.
func TestTable(t *testing.T) {
	names := map[string]bool{}
	for _, r := range Table() {
		for _, name := range []string{r.Name(), r.Title()} {
			if name == "" || names[name] {
				t.Errorf("%q is empty, or the name of two runtimes", name)
			}
			names[name] = true
		}
		_, library := r.Runtime.(vmruntime.Library)
		_, mapper := r.Runtime.(vmruntime.CodeMapper)
		if library == mapper {
			t.Errorf("%s is found by a library: %t, by a map: %t", r.Name(), library, mapper)
		}
		if library != (r.Kernel != nil) {
			t.Errorf("%s is found by a library: %t, and has a connection to the kernel side: %t", r.Name(), library,
				r.Kernel != nil)
		}
	}
}

// A VM is found by the code of its library. What has a map of its code needs none.
func TestFindLibrary(t *testing.T) {
	lib := proc.Mapping{Path: "/usr/lib/jvm/lib/server/libjvm.so", Exec: true}
	data, other := lib, proc.Mapping{Path: "/usr/lib/libc.so.6", Exec: true}
	data.Exec = false
	for name, c := range map[string]struct {
		maps proc.Maps
		want int // index, -1 for none
	}{
		"code":      {proc.Maps{other, data, lib}, 2},
		"data only": {proc.Maps{other, data}, -1},
		"a map":     {proc.Maps{{Path: "/tmp/perf-1.map", Exec: true}}, -1},
		"nothing":   {nil, -1},
	} {
		found := bridge.FindLibrary(Table(), c.maps)
		if c.want < 0 && found != nil || c.want >= 0 && found != &c.maps[c.want] {
			t.Errorf("%s: found %v", name, found)
		}
	}
}
