package exactcalls

import (
	"errors"
	"os"
	"sync"
	"time"
	"unique"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/exact"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot"
)

// names names methods as they are announced.
type names struct {
	ring    *ringbuf.Reader
	codeLow uint64
	done    chan struct{}

	mu      sync.Mutex
	vm      *hotspot.Process
	methods map[exact.Method]symbol.Symbol
	places  map[exact.Site][]exact.Place
	failed  int // methods that were announced but could not be named
}

func newNames(o *bpf.Objects, vm *hotspot.Process) (*names, error) {
	ring, err := ringbuf.NewReader(o.Events)
	if err != nil {
		return nil, err
	}
	n := &names{
		ring: ring, codeLow: vm.Layout().Cache.Low, done: make(chan struct{}), vm: vm,
		methods: map[exact.Method]symbol.Symbol{}, places: map[exact.Site][]exact.Place{},
	}
	go n.drain()
	return n, nil
}

// drain names methods until the ring is closed. Classes are rarely unloaded, and methods are named
// within some ms.
func (n *names) drain() {
	defer close(n.done)
	const interval = 5 * time.Millisecond
	var record ringbuf.Record
	for {
		n.ring.SetDeadline(time.Now().Add(interval))
		err := n.ring.ReadInto(&record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			return
		}
		if bpf.Kind(record.RawSample) != bpf.EventNewMethod {
			continue
		}
		if m, err := bpf.DecodeMethodSeen(record.RawSample); err == nil {
			n.Method(exact.Method{Addr: m.Method, Epoch: m.ClassEpoch})
		}
	}
}

// Method names a method or a marker.
func (n *names) Method(m exact.Method) symbol.Symbol {
	if text := m.Marker(); text != "" {
		return symbol.Intern(symbol.Frame{Function: text, SystemName: text, Kind: symbol.KindMarker})
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if s, ok := n.methods[m]; ok {
		return s
	}
	s := symbol.Intern(symbol.Frame{Function: "[unknown]", SystemName: "[unknown]"})
	if frames, err := n.vm.Lookup(m.Site()); err == nil {
		s = symbolOf(frames[0])
	} else {
		n.failed++
	}
	n.methods[m] = s
	return s
}

var mapping = unique.Make(symbol.Mapping{File: "[jit:HotSpot]"})

func symbolOf(f vmruntime.Frame) symbol.Symbol {
	return symbol.Intern(symbol.Frame{
		Function: f.Function, SystemName: f.Function + f.Signature, File: f.File, Kind: symbol.KindJIT,
		Mapping: mapping,
	})
}

// Places names the call site of a call.
func (n *names) Places(s exact.Site) []exact.Place {
	n.mu.Lock()
	defer n.mu.Unlock()
	if places, ok := n.places[s]; ok {
		return places
	}
	site := vmruntime.Site{Epoch: s.Epoch}
	switch f := s.Frame; f.Kind() {
	case bpf.FrameJIT:
		site.Kind, site.PC, site.Version = vmruntime.Compiled, n.codeLow+uint64(f.CodeOffset()), f.CompileID()
	case bpf.FrameInterpreted:
		site.Kind, site.Method, site.BCI = vmruntime.Interpreted, f.Method(), f.BCI()
	default: // what calls from there is the VM
		return nil
	}
	var places []exact.Place
	if frames, err := n.vm.Lookup(site); err == nil {
		for _, f := range frames {
			places = append(places, exact.Place{
				Method: symbolOf(f), Site: profile.Site{Line: int32(f.Line), Offset: int32(f.BCI)},
			})
		}
	}
	n.places[s] = places
	return places
}

func (n *names) close() error {
	err := n.ring.Close()
	<-n.done
	return err
}
