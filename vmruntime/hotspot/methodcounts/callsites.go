package methodcounts

import (
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/calldata"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/methodinfo"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// A callSite is a call in a method's bytecode, and what it was resolved to so far.
type callSite struct {
	calldata.Invoke
	entry    uint64 // address of what the VM remembers of it, 0 if there is none
	constant uint16 // index in the constant pool
	calldata.Resolution
	callee methodRef
	tries  int // how often the callee was searched
}

// A methodRef is how a class file names a method: Symbols, which the VM has once each.
type methodRef struct {
	loaded                 uint64 // address of a pointer to the class, null until that is loaded; 0 if unknown
	class, name, signature uint64 // Symbols
}

// A calling is what is known of a method that can make calls. Only resolutions that are missing are
// read again.
type calling struct {
	epoch               uint32 // epoch in which it was last seen to be what it is
	seen                int    // how many times, in that epoch
	function, signature string
	lines               *methodinfo.Method // with the line table; nil until Names reads it
	read                bool               // what follows is known; else only the name, of a compilation
	sites               []callSite
	callees             []calleeName // by site
	cut                 bool         // the bytecode could not be understood to its end
	bytecode            int          // bytes of it
	constMethod         uint64
	data                uint64 // its MethodData when it was last read, 0 if it had none
	dataSize            uint64 // bytes of that, header included
}

type calleeName struct{ function, signature string }

// enoughSeen is how often a method must be seen to be what it is in an epoch. Once could be in the
// moment after its class was unloaded, when its memory is not yet used again; nobody asks for it
// twice after that.
const enoughSeen = 2

// current reports whether c need not be compared with the guest's memory.
func (c *calling) current(epoch uint32) bool {
	return c.read && c.epoch == epoch && c.seen >= enoughSeen
}

// Bytes is about how much memory c holds.
func (c *calling) Bytes() int {
	n := 300 + len(c.function) + len(c.signature)
	if c.lines != nil {
		n += c.lines.Bytes()
	}
	for _, name := range c.callees {
		n += 144 + len(name.function) + len(name.signature)
	}
	return n
}

// A callReader reads what methods can call, many at a time.
type callReader struct {
	methodinfo.Reader
	schema *calldata.Schema
}

// A callRead is one method on the way.
type callRead struct {
	*calling
	methodinfo.Read
	cache             uint64 // ConstantPoolCache
	methods, dynamics uint64 // arrays of the cache's, from JDK 22 and 21 on
	constants         uint64 // their number
	loaded            uint64 // array of the loaded classes among them
}

// sites reads the calls in the bytecode of methods whose ConstMethod and pool are known already.
func (r callReader) sites(reads []*callRead) error {
	for _, step := range []func([]*callRead) error{r.readCode, r.readCaches, r.readArrays} {
		if err := step(reads); err != nil {
			return err
		}
	}
	var sites []*callSite
	for _, m := range reads {
		for i := range m.sites {
			s := &m.sites[i]
			s.entry = r.entryOf(m, s)
			sites = append(sites, s)
		}
	}
	if err := r.resolve(sites); err != nil {
		return err
	}
	return r.readRefs(reads)
}

// readCode reads the bytecode.
func (r callReader) readCode(reads []*callRead) error {
	var codes vmstructs.Batch
	for _, m := range reads {
		addr, size := r.BytecodeOf(&m.Read)
		m.bytecode = int(size)
		codes.Add(addr, size)
	}
	if err := codes.Read(r.Mem); err != nil {
		return err
	}
	for i, m := range reads {
		code, ok := codes.Bytes(i)
		if !ok {
			m.cut = len(code) > 0
			continue
		}
		list, complete := calldata.Invokes(code)
		m.cut = !complete
		m.sites = make([]callSite, len(list))
		for i, call := range list {
			m.sites[i].Invoke = call
		}
	}
	return nil
}

// readCaches goes from the constant pools to their caches. Methods of a class share both.
func (r callReader) readCaches(reads []*callRead) error {
	var caches vmstructs.Batch
	for _, m := range reads {
		caches.Add(r.schema.Pool.Cache.At(m.Pool), vmstructs.WordSize)
		caches.Add(r.schema.Pool.Length.At(m.Pool), 4)
		caches.Add(r.schema.Pool.ResolvedKlasses.Of(m.Pool), vmstructs.WordSize)
	}
	if err := caches.Read(r.Mem); err != nil {
		return err
	}
	for i, m := range reads {
		if cache, ok := caches.Word(3 * i); ok {
			m.cache = cache
		}
		if length, ok := caches.Word(3*i + 1); ok {
			m.constants = length
		}
		m.loaded, _ = caches.Word(3*i + 2)
	}
	return nil
}

// readArrays finds the arrays that the caches have from JDK 21 on.
func (r callReader) readArrays(reads []*callRead) error {
	p := &r.schema.Pool
	if !p.Methods.Known && !p.Dynamics.Known {
		return nil
	}
	var caches vmstructs.Batch
	for _, m := range reads {
		caches.Add(m.cache, p.CacheSize)
	}
	if err := caches.Read(r.Mem); err != nil {
		return err
	}
	for i, m := range reads {
		if cache, ok := caches.Bytes(i); ok {
			m.methods, m.dynamics = p.Methods.Read(cache), p.Dynamics.Read(cache)
		}
	}
	return nil
}

// entryOf is where the VM remembers what a call was resolved to.
func (r callReader) entryOf(m *callRead, s *callSite) uint64 {
	p := &r.schema.Pool
	index := uint64(s.Index)
	switch {
	case index >= 1<<20: // there are at most 65,535 constants, and as many calls in a method
	case s.Op == calldata.OpInvokeDynamic && p.Dynamics.Known:
		if m.dynamics != 0 {
			return m.dynamics + uint64(p.DynamicArray.Offset) + index*p.DynamicSize
		}
	case p.Methods.Known:
		if m.methods != 0 {
			return m.methods + uint64(p.MethodArray.Offset) + index*p.MethodSize
		}
	case m.cache != 0:
		return m.cache + p.CacheSize + index*p.EntrySize
	}
	return 0
}

// resolve reads what calls were resolved to by now.
func (r callReader) resolve(sites []*callSite) error {
	p := &r.schema.Pool
	var entries vmstructs.Batch
	for _, s := range sites {
		switch {
		case s.Op == calldata.OpInvokeDynamic && p.Dynamics.Known:
			entries.Add(s.entry, vmstructs.WordSize) // it begins with the Method
		case p.Methods.Known:
			entries.Add(s.entry, p.MethodSize)
		default:
			entries.Add(s.entry, p.EntrySize)
		}
	}
	if err := entries.Read(r.Mem); err != nil {
		return err
	}
	for i, s := range sites {
		entry, ok := entries.Bytes(i)
		switch {
		case !ok || s.entry == 0:
		case s.Op == calldata.OpInvokeDynamic && p.Dynamics.Known:
			if target := vmstructs.Number(entry); target != 0 {
				s.Resolution = calldata.Resolution{Resolved: true, Target: target, Vtable: calldata.NoVtable}
			}
		case p.Methods.Known:
			s.constant, s.Resolution = p.DecodeMethodEntry(entry, s.Op)
		default:
			s.constant, s.Resolution = p.DecodeEntry(entry, s.Op)
		}
	}
	return nil
}

// only is the only method that can be called, 0 if that is not known.
func (s *callSite) only() uint64 {
	if s.Kind == vmruntime.DynamicCall && s.named() {
		return 0
	}
	return s.Target
}

// named reports whether the class file names the method that is called.
func (s *callSite) named() bool {
	return s.Op != calldata.OpInvokeDynamic && s.Op != calldata.OpInvokeHandle && s.constant != 0
}
