package methodcounts

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/calldata"
)

// Flow reads a method's bytecode, and the counts of its branches in its MethodData: some ten
// microseconds.
func (p *Profiler) Flow(method uint64) (*vmruntime.MethodFlow, error) {
	s := &p.schema
	if err := s.Err(p.Version.JDK); err != nil {
		return nil, err
	}
	r := callReader{p.MethodReader(), s}
	reads, err := r.Headers([]uint64{method})
	if err != nil {
		return nil, fmt.Errorf("bytecode: %w", err)
	}
	if len(reads) != 1 || !reads[0].OK {
		return nil, fmt.Errorf("bytecode of the method at %#x: %w", method, vmruntime.ErrUnknown)
	}
	code, err := p.Memory.Bytes(r.BytecodeOf(&reads[0]))
	if err != nil {
		return nil, fmt.Errorf("bytecode of the method at %#x: %w", method, err)
	}
	blocks, err := calldata.Flow(code)
	if err != nil {
		return nil, err
	}
	flow := &vmruntime.MethodFlow{Blocks: blocks, Writes: calldata.Writes(code)}
	if p.decoder == nil {
		p.decoder = calldata.NewDecoder(p.Memory, &p.Flags, &p.schema.Tags, p.Version.JDK)
	}
	c := &counting{calling: &calling{}, method: method}
	list := []*counting{c}
	if err := r.pointers(list); err != nil || c.data == 0 {
		return flow, err
	}
	if err := r.objects(list); err != nil {
		return flow, err
	}
	if c.object == nil || c.dataSize == 0 || uint64(len(c.object)) < c.dataSize {
		return flow, nil
	}
	counts, err := p.decoder.Branches(c.object[s.Header():c.dataSize])
	if err != nil {
		return flow, nil // it is written to while it is read: it has no counts now
	}
	calldata.CountFlow(blocks, s.Invocations.Read(c.object)>>s.CountShift, counts)
	flow.Counted = true
	return flow, nil
}
