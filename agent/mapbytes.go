package agent

import (
	"reflect"

	"github.com/cilium/ebpf"
)

// mapBytes is what the kernel says that the maps of samples, of code and of events take. Objects share some of them, such as
// the ring: each counts once.
func (a *Agent) mapBytes() (n uint64) {
	maps := []any{a.objects.ProfileMaps, a.objects.CodeMap.CodeMapMaps}
	for source := range a.sources.all() {
		maps = append(maps, source.kernelMaps()...)
	}
	counted := map[ebpf.MapID]bool{}
	for _, m := range mapsIn(maps...) {
		info, err := m.Info()
		if err != nil {
			continue
		}
		if id, ok := info.ID(); ok {
			if counted[id] {
				continue
			}
			counted[id] = true
		}
		if b, ok := info.Memlock(); ok {
			n += b
		}
	}
	return n
}

// mapsIn returns the maps that are fields of generated structs, such as bpf.ProbeMaps.
func mapsIn(structs ...any) (all []*ebpf.Map) {
	for _, s := range structs {
		v := reflect.ValueOf(s)
		for i := range v.NumField() {
			if m, ok := v.Field(i).Interface().(*ebpf.Map); ok && m != nil {
				all = append(all, m)
			}
		}
	}
	return all
}
