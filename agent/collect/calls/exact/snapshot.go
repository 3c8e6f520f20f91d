package exact

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A Snapshot is the state of a recording at one moment, in the kernel side's own terms. It is
// immutable.
type Snapshot struct {
	nodes   []bpf.ExactNode // by number
	edges   map[bpf.ExactEdge]uint64
	threads map[uint32]bpf.ExactThread // by number of the root
	counts  bpf.ExactCounts
	objects map[bpf.ExactAllocation]bpf.ExactAllocations
}

// Snapshot reads what was recorded so far: some 100 ms for a million contexts. While recording goes
// on, sums miss calls that are made during the reading.
func (r *Recorder) Snapshot() (*Snapshot, error) {
	s := &Snapshot{edges: map[bpf.ExactEdge]uint64{}, threads: map[uint32]bpf.ExactThread{},
		objects: map[bpf.ExactAllocation]bpf.ExactAllocations{}}
	var err error
	if s.counts, err = r.objects.ReadCounts(); err != nil {
		return nil, err
	}
	if err := s.readNodes(r.objects); err != nil {
		return nil, fmt.Errorf("read contexts: %w", err)
	}
	if err := readAll(r.objects.Edges, s.edges); err != nil {
		return nil, fmt.Errorf("read edges: %w", err)
	}
	if err := readAll(r.objects.ThreadRecords, s.threads); err != nil {
		return nil, fmt.Errorf("read threads: %w", err)
	}
	if err := readAll(r.objects.Allocations, s.objects); err != nil {
		return nil, fmt.Errorf("read allocations: %w", err)
	}
	return s, nil
}

// readNodes reads all existing nodes.
func (s *Snapshot) readNodes(o *bpf.ExactObjects) error {
	var last uint32
	if err := o.LastNode.Get(&last); err != nil {
		return err
	}
	count := min(int(last)+1, int(o.Nodes.MaxEntries()))
	s.nodes = make([]bpf.ExactNode, 0, count+chunk)
	values, keys := make([]bpf.ExactNode, chunk), make([]uint32, chunk)
	for cursor := new(ebpf.MapBatchCursor); len(s.nodes) < count; {
		n, err := o.Nodes.BatchLookup(cursor, keys, values, nil)
		s.nodes = append(s.nodes, values[:n]...)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			break
		}
		if err != nil {
			return err
		}
	}
	s.nodes = s.nodes[:min(count, len(s.nodes))]
	return nil
}

// chunk is how many entries of a map are read at once: more than one bucket of a hash map ever
// holds.
const chunk = 4096

// readAll reads a hash map.
func readAll[K comparable, V any](m *ebpf.Map, to map[K]V) error {
	keys, values := make([]K, chunk), make([]V, chunk)
	for cursor := new(ebpf.MapBatchCursor); ; {
		n, err := m.BatchLookup(cursor, keys, values, nil)
		for i := range n {
			to[keys[i]] = values[i]
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Methods returns every method that was called so far, as it was announced. It covers methods whose
// announcement was lost.
func (r *Recorder) Methods() ([]Method, error) {
	found := map[bpf.ExactMethod]uint8{}
	if err := readAll(r.objects.Methods, found); err != nil {
		return nil, fmt.Errorf("read methods: %w", err)
	}
	methods := make([]Method, 0, len(found))
	for m := range found {
		methods = append(methods, Method{Addr: m.Method, Epoch: m.ClassEpoch})
	}
	return methods, nil
}
