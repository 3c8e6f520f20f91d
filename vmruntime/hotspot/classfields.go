package hotspot

import (
	"errors"
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// readFieldRecords reads the fields that a class itself declares, and the address of the constant pool that names
// them.
func (p *Process) readFieldRecords(klass uint64) (records []fieldRecord, pool uint64, err error) {
	s := &p.schema.object
	object, err := p.bytes(klass, s.instanceSize())
	if err != nil {
		return nil, 0, err
	}
	pool = s.constants.of(object)
	if s.fieldStream.known && s.byteArray.known {
		stream, err := p.array(s.fieldStream.of(object), s.byteArray, 1)
		if err != nil || len(stream) == 0 {
			return nil, 0, err
		}
		records, err = parseFieldStream(stream, p.version.unsigned5Bias(), s.fieldBits)
		return records, pool, err
	}
	if !s.fieldArray.known || !s.fieldCount.known || !s.shortArray.known {
		return nil, 0, errors.New("the VM does not export them")
	}
	data, err := p.array(s.fieldArray.of(object), s.shortArray, 2)
	return parseFieldArray(data, int(s.fieldCount.of(object))), pool, err
}

// array reads the elements of an Array of the VM, which have size bytes each.
func (p *Process) array(addr uint64, data field, size uint64) ([]byte, error) {
	if addr == 0 {
		return nil, nil
	}
	header, err := p.bytes(addr, p.schema.object.arrayLength.end())
	if err != nil {
		return nil, err
	}
	n := size * p.schema.object.arrayLength.of(header)
	if n > maxFieldBytes {
		return nil, fmt.Errorf("array of %d bytes: %w", n, vmruntime.ErrMalformed)
	}
	return p.bytes(data.at(addr), n)
}

// readFieldNames reads name and signature of each field, one after the other. Those that cannot be read are empty.
func (p *Process) readFieldNames(records []fieldRecord, pool uint64) ([]string, error) {
	var pointers batch
	slot := func(index uint32, injected bool) {
		addr := uint64(0)
		switch {
		case index > 1<<16-1: // no constant pool has as many
		case !injected:
			addr = p.methodReader().slot(pool, uint64(index))
		case p.schema.object.vmSymbols != 0:
			addr = p.schema.object.vmSymbols + wordSize*uint64(index)
		}
		pointers.add(addr, poolSlot)
	}
	for _, r := range records {
		slot(r.name, r.injected)
		slot(r.signature, r.injected)
	}
	if err := pointers.read(p.mem); err != nil {
		return nil, err
	}
	addrs := make([]uint64, 2*len(records))
	for i := range addrs {
		if addr, ok := pointers.word(i); ok {
			addrs[i] = untag(addr)
		}
	}
	symbols, err := p.methodReader().symbols(addrs)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(addrs))
	for i, addr := range addrs {
		names[i] = symbols[addr]
	}
	return names, nil
}
