//go:build linux

package bpf

import (
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
)

// A shelf has what tests loaded and gave back, by how it was loaded. Verifying the programs is most
// of a test's time, under emulation half a minute: the next test takes them with their maps as they
// were when they were new.
type shelf[K comparable, V interface {
	comparable
	maps() []*ebpf.Map
	Close() error
}] struct {
	mu   sync.Mutex
	idle map[K][]V
}

// take is what was loaded with these options, for this test alone until it ends. A test that fails
// may leave anything attached: what it had is not used again.
func (s *shelf[K, V]) take(t testing.TB, options K, load func(K) (V, error)) V {
	t.Helper()
	loaded := s.pick(options)
	var none V
	if loaded == none {
		var err error
		loaded, err = load(options)
		needKernel(t, err)
	} else {
		renew(t, loaded.maps()...)
	}
	t.Cleanup(func() {
		if t.Failed() {
			_ = loaded.Close()
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.idle[options] = append(s.idle[options], loaded)
	})
	return loaded
}

func (s *shelf[K, V]) pick(options K) (picked V) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle == nil {
		s.idle = map[K][]V{}
	}
	if n := len(s.idle[options]); n > 0 {
		picked, s.idle[options] = s.idle[options][n-1], s.idle[options][:n-1]
	}
	return picked
}

// mapsIn are the maps of structs that were generated for an object.
func mapsIn(structs ...any) (all []*ebpf.Map) {
	for _, s := range structs {
		fields := reflect.ValueOf(s)
		for i := range fields.NumField() {
			if m, ok := fields.Field(i).Interface().(*ebpf.Map); ok && m != nil {
				all = append(all, m)
			}
		}
	}
	return all
}

// renew makes maps as they are when they are new: arrays are 0, and the others empty.
func renew(t testing.TB, maps ...*ebpf.Map) {
	t.Helper()
	for _, m := range maps {
		var err error
		switch m.Type() {
		case ebpf.Hash, ebpf.LRUHash:
			err = deleteAll(m)
		case ebpf.Array:
			numbers := make([]uint32, m.MaxEntries())
			for i := range numbers {
				numbers[i] = uint32(i)
			}
			_, err = m.BatchUpdate(numbers, zeros(m, len(numbers)), nil)
		case ebpf.PerCPUArray:
			zero := zeros(m, ebpf.MustPossibleCPU())
			for i := uint32(0); i < m.MaxEntries() && err == nil; i++ {
				err = m.Put(i, zero)
			}
		case ebpf.RingBuf:
			drainRing(t, m, func([]byte) {})
		case ebpf.ProgramArray: // the object's own programs
		case ebpf.ArrayOfMaps: // unwind tables, which no process has once "unwound" is empty
		default:
			t.Fatalf("%v is of a type that this cannot make new", m)
		}
		if err != nil {
			t.Fatalf("make %v new: %v", m, err)
		}
	}
}

func deleteAll(m *ebpf.Map) error {
	var keys [][]byte
	key, err := m.NextKeyBytes(nil)
	for ; err == nil && key != nil; key, err = m.NextKeyBytes(key) {
		keys = append(keys, key)
	}
	for i := 0; i < len(keys) && err == nil; i++ {
		err = m.Delete(keys[i])
	}
	return err
}

// zeros is a slice of n values of the map.
func zeros(m *ebpf.Map, n int) any {
	value := reflect.ArrayOf(int(m.ValueSize()), reflect.TypeFor[byte]())
	return reflect.MakeSlice(reflect.SliceOf(value), n, n).Interface()
}

// What a test takes from the shelf has nothing of what the one before left in the maps.
func TestKernelShelf(t *testing.T) {
	var first *probing
	t.Run("first", func(t *testing.T) {
		first = probings.take(t, Options{}, loadProbing)
		for _, m := range first.maps() {
			fill(t, m)
		}
	})
	t.Run("second", func(t *testing.T) {
		second := probings.take(t, Options{}, loadProbing)
		if second != first {
			t.Fatal("what the first test gave back was not taken")
		}
		for _, m := range second.maps() {
			if n := used(t, m); n != 0 {
				t.Errorf("%v: %d entries have something in them", m, n)
			}
		}
		if slices.Contains(probings.idle[Options{}], second) {
			t.Error("what is in use can be taken")
		}
	})
}

// fill puts something into the map's first and last entries.
func fill(t *testing.T, m *ebpf.Map) {
	t.Helper()
	if m.Type() == ebpf.RingBuf || m.Type() == ebpf.ProgramArray {
		return // programs write to those, and what they have is no state
	}
	some := zeros(m, ebpf.MustPossibleCPU())
	each := reflect.ValueOf(some)
	for i := range each.Len() {
		each.Index(i).Index(0).SetUint(1)
	}
	if m.Type() != ebpf.PerCPUArray {
		some = each.Index(0).Interface()
	}
	var err error
	switch m.Type() {
	case ebpf.Array, ebpf.PerCPUArray:
		err = m.Put(uint32(0), some)
		if err == nil {
			err = m.Put(m.MaxEntries()-1, some)
		}
	case ebpf.Hash, ebpf.LRUHash:
		for i := byte(1); i <= 3 && err == nil; i++ {
			key := make([]byte, m.KeySize())
			key[0] = i
			err = m.Put(key, some)
		}
	}
	if err != nil {
		t.Fatalf("fill %v: %v", m, err)
	}
}

// used is how many entries of the map have something in them.
func used(t *testing.T, m *ebpf.Map) (n int) {
	t.Helper()
	switch m.Type() {
	case ebpf.Array:
		for i := range m.MaxEntries() {
			if value, err := m.LookupBytes(i); err != nil || !allZero(value) {
				n++
			}
		}
	case ebpf.PerCPUArray:
		for i := range m.MaxEntries() {
			values := zeros(m, ebpf.MustPossibleCPU())
			each := reflect.New(reflect.TypeOf(values))
			if err := m.Lookup(i, each.Interface()); err != nil || !reflect.DeepEqual(each.Elem().Interface(), values) {
				n++
			}
		}
	case ebpf.Hash, ebpf.LRUHash:
		key, err := m.NextKeyBytes(nil)
		for ; err == nil && key != nil; key, err = m.NextKeyBytes(key) {
			n++
		}
	case ebpf.RingBuf:
		drainRing(t, m, func([]byte) { n++ })
	}
	return n
}

func allZero(value []byte) bool {
	for _, b := range value {
		if b != 0 {
			return false
		}
	}
	return true
}
