package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// What unwind.h defines: the layout of unwind tables, and of what the kernel side knows of processes
// whose code has some.
type (
	// UnwoundProcess says which code of a process has which table.
	UnwoundProcess = ProfileUnwoundProcess
	// UnwindMapping is a range of code with its table.
	UnwindMapping = ProfileUnwindMapping
	// UnwindWant has addresses of a process whose tables a walk lacked.
	UnwindWant = ProfileUnwindWant
)

// Bounds of the kernel side of unwind tables.
const (
	MaxUnwindTables   = 1024                      // MAX_UNWIND_TABLES
	MaxUnwound        = 2048                      // processes: MAX_UNWOUND
	MaxUnwindMappings = 128                       // of a process: MAX_UNWIND_MAPPINGS
	MaxUnwoundRows    = unwindBlocks * unwindRows // of a table; one block more would be its index

	unwindRows   = 1024 // UNWIND_ROWS
	unwindBlocks = 2048 // UNWIND_BLOCKS
	// UnwindBlockBytes is the unit in which tables take memory.
	UnwindBlockBytes = 8 + 8*unwindRows
	// NoUnwindTable is the table of code that has none.
	NoUnwindTable = 0xffffffff // NO_UNWIND_TABLE
	unwindNowhere = 1 << 62    // UNWIND_NOWHERE
)

// UnwindBlocks is how many blocks a table of that many rows has.
func UnwindBlocks(rows int) int { return 1 + (rows+unwindRows-1)/unwindRows }

// NewUnwindTable makes a table for Objects.UnwindTables. Its rows ascend: each is an offset in the
// lower half of a word, less than 1<<32 - 1, and a rule in the upper half. The caller closes the
// table, and may do so once it is among the others.
func NewUnwindTable(generation uint32, rows int, row func(int) uint64) (*ebpf.Map, error) {
	if rows == 0 || rows > MaxUnwoundRows {
		return nil, fmt.Errorf("unwind table of %d rows: %w", rows, unix.E2BIG)
	}
	blocks := UnwindBlocks(rows)
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "unwind_table", Type: ebpf.Array, KeySize: 4, ValueSize: UnwindBlockBytes, MaxEntries: uint32(blocks),
		Flags: unix.BPF_F_INNER_MAP,
	})
	if err != nil {
		return nil, fmt.Errorf("make unwind table: %w", err)
	}
	var index, block ProfileUnwindBlock
	for i := range index.Rows {
		index.Rows[i] = ^uint64(0)
	}
	index.Generation, block.Generation = uint64(generation), uint64(generation)
	for b := range blocks - 1 {
		first := b * unwindRows
		for i := range block.Rows {
			block.Rows[i] = ^uint64(0)
			if first+i < rows {
				block.Rows[i] = row(first + i)
			}
		}
		half, shift := &index.Rows[b/2], b%2*32
		*half = *half&^(0xffffffff<<shift) | uint64(uint32(block.Rows[0]))<<shift
		if err = m.Put(uint32(1+b), &block); err != nil {
			break
		}
	}
	if err == nil {
		err = m.Put(uint32(0), &index)
	}
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("fill unwind table: %w", err)
	}
	return m, nil
}

// SetMappings sets the code that has tables: at most MaxUnwindMappings ranges, ascending.
func (p *ProfileUnwoundProcess) SetMappings(mappings []UnwindMapping) {
	for i := copy(p.Mappings[:], mappings); i < len(p.Mappings); i++ {
		p.Mappings[i] = UnwindMapping{Begin: unwindNowhere, Table: NoUnwindTable}
	}
}
