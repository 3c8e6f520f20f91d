package calldata

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// Instructions that end a basic block (JVM specification, section 6.5).
const (
	opIfFirst, opIfLast         = 153, 166
	opGoto, opJSR, opRet        = 167, 168, 169
	opReturnFirst, opReturnLast = 172, 177
	opThrow                     = 191
	opIfNull, opIfNonNull       = 198, 199
	opGotoW, opJSRW             = 200, 201
	opReturnRegister            = 232 // return of Object.<init>, HotSpot's own
)

// MaxFlowBlocks bounds the blocks of a method, and the edges of each.
const MaxFlowBlocks = 1 << 12

// A BranchCount is what was counted at a jump, a branch or a switch.
type BranchCount struct {
	BCI      int
	Taken    uint64   // how often it was taken; for a switch, its default
	NotTaken uint64   // for a branch: how often it was not taken
	Cases    []uint64 // counts for a switch, in the order of its targets
}

// Branches lists the counts of jumps, branches and arrays of counts, by ascending bytecode index.
// Which arrays are those of switches only the bytecode shows.
func (d *Decoder) Branches(data []byte) (counts []BranchCount, err error) {
	if _, err := d.Decode(data); err != nil {
		return nil, err // and d knows whether there is a gap
	}
	for at := 0; at < len(data); {
		entry := data[at:]
		size := d.size(entry)
		if size == 0 || size > len(entry) {
			return nil, fmt.Errorf("entry at %#x of a method's data: %w", at, vmruntime.ErrMalformed)
		}
		at += size
		cell := func(i int) uint64 { return vmstructs.Number(entry[entryHeader+i*EntryCell:][:EntryCell]) }
		c := BranchCount{BCI: int(vmstructs.Number(entry[dataBCI : dataBCI+2]))}
		switch d.tags[entry[dataTag]] {
		case dataJump:
			c.Taken = cell(0)
		case dataBranch:
			c.Taken, c.NotTaken = cell(0), cell(2)
		case dataArray: // the length; count and displacement of the default and of each target
			cells := (size - entryHeader) / EntryCell
			if cells < 3 {
				continue
			}
			c.Taken = cell(1)
			for i := 3; i < cells; i += 2 {
				c.Cases = append(c.Cases, cell(i))
			}
		default:
			continue
		}
		counts = append(counts, c)
	}
	return counts, nil
}

// Flow divides a method's bytecode into basic blocks, by ascending index, with the costs of their
// instructions. Handlers of exceptions are blocks only where something else leads to them or ends
// before them. An error says that it is no bytecode, or more than the bounds allow.
func Flow(code []byte) ([]vmruntime.FlowBlock, error) {
	begins := make([]bool, len(code)+1)
	instruction := make([]bool, len(code))
	targets := map[int][]int{} // targets of instructions that end a block; -1: no next one
	for bci := 0; bci < len(code); {
		length := bytecodeLength(code, bci)
		if length == 0 || length > len(code)-bci {
			return nil, fmt.Errorf("bytecode at %d: %w", bci, vmruntime.ErrMalformed)
		}
		instruction[bci] = true
		if to, ends := jumps(code, bci, length); ends {
			targets[bci] = to
			begins[bci+length] = true
			for _, t := range to {
				if t < 0 || t >= len(code) {
					return nil, fmt.Errorf("bytecode at %d leads to %d: %w", bci, t, vmruntime.ErrMalformed)
				}
				begins[t] = true
			}
		}
		bci += length
	}
	var blocks []vmruntime.FlowBlock
	number := make([]int, len(code))
	for bci := range code {
		if bci == 0 || begins[bci] {
			if !instruction[bci] || len(blocks) == MaxFlowBlocks {
				return nil, fmt.Errorf("%d blocks, another begins at %d: %w", len(blocks), bci, vmruntime.ErrMalformed)
			}
			blocks = append(blocks, vmruntime.FlowBlock{Begin: bci})
		}
		number[bci] = len(blocks) - 1
	}
	for bci := range code {
		if !instruction[bci] {
			continue
		}
		b := &blocks[number[bci]]
		b.Cost += opcodeCost(code[bci])
		b.Last, b.End = bci, bci+bytecodeLength(code, bci)
	}
	for i := range blocks {
		b := &blocks[i]
		to, ends := targets[b.Last]
		for _, t := range to {
			b.Successors = append(b.Successors, number[t])
		}
		if !ends && i+1 < len(blocks) {
			b.Successors = []int{i + 1}
		}
	}
	return blocks, nil
}

// jumps are the indexes that an instruction can lead to, if it ends a block: for a branch its
// target and the next instruction, for a switch the default and then its targets.
func jumps(code []byte, bci, length int) (to []int, ends bool) {
	short := func() int { return bci + int(int16(binary.BigEndian.Uint16(code[bci+1:]))) }
	long := func(at int) int { return bci + int(int32(binary.BigEndian.Uint32(code[at:]))) }
	const word = 4
	table := (bci/word + 1) * word
	switch op := code[bci]; {
	case op >= opIfFirst && op <= opIfLast, op == opIfNull, op == opIfNonNull:
		return []int{short(), bci + length}, true
	case op == opGoto, op == opJSR:
		return []int{short()}, true
	case op == opGotoW, op == opJSRW:
		return []int{long(bci + 1)}, true
	case op >= opReturnFirst && op <= opReturnLast, op == opThrow, op == opReturnRegister, op == opRet, op == opWide &&
		code[bci+1] == opRet:
		return nil, true
	case op == opTableSwitch:
		to = []int{long(table)}
		for at := table + 3*word; at+word <= bci+length; at += word {
			to = append(to, long(at))
		}
		return to, true
	case op == opLookupSwitch, op == opFastLinear, op == opFastBinary:
		to = []int{long(table)}
		for at := table + 3*word; at+word <= bci+length; at += 2 * word {
			to = append(to, long(at))
		}
		return to, true
	}
	return nil, false
}

// Instructions that change a local variable: one each for int, long, float, double and reference,
// with its number behind it, then four each for the numbers 0 to 3.
const (
	opStoreFirst, opStoreLast           = 54, 58
	opStoreNumberFirst, opStoreNumbered = 59, 4
	opStoreNumberLast                   = 78
)

// Writes are the instructions of a method that change a local variable, by ascending bytecode
// index. It ends at what is no instruction.
func Writes(code []byte) (writes []vmruntime.LocalWrite) {
	for bci := 0; bci < len(code); {
		length := bytecodeLength(code, bci)
		if length == 0 || length > len(code)-bci {
			return writes
		}
		w, op := vmruntime.LocalWrite{BCI: bci}, code[bci]
		wide := op == opWide
		if wide {
			op = code[bci+1]
		}
		switch {
		case op >= opStoreNumberFirst && op <= opStoreNumberLast:
			w.Local = int(op-opStoreNumberFirst) % opStoreNumbered
		case (op == opIInc || op >= opStoreFirst && op <= opStoreLast) && wide:
			w.Local = int(binary.BigEndian.Uint16(code[bci+2:]))
			if op == opIInc {
				w.Step = int(int16(binary.BigEndian.Uint16(code[bci+4:])))
			}
		case op == opIInc:
			w.Local, w.Step = int(code[bci+1]), int(int8(code[bci+2]))
		case op >= opStoreFirst && op <= opStoreLast:
			w.Local = int(code[bci+1])
		default:
			bci += length
			continue
		}
		writes = append(writes, w)
		bci += length
	}
	return writes
}

// CountFlow sets how often the blocks were executed, by the counts of invocations and of jumps:
// what enters a block is counted where it comes from, or it falls through from the block before.
// Blocks that only exceptions reach count what leaves them.
func CountFlow(blocks []vmruntime.FlowBlock, invocations uint64, counts []BranchCount) {
	entered := make([]uint64, len(blocks))
	if len(blocks) == 0 {
		return
	}
	entered[0] = invocations
	edges := make([][]uint64, len(blocks)) // nil: nothing was counted
	for i := range blocks {
		b := &blocks[i]
		at, ok := slices.BinarySearchFunc(counts, b.Last, func(c BranchCount, bci int) int { return c.BCI - bci })
		if !ok {
			continue
		}
		c, edge := &counts[at], make([]uint64, len(b.Successors))
		switch {
		case len(edge) == 1 && c.Cases == nil:
			edge[0] = c.Taken
		case len(edge) == 2 && c.Cases == nil:
			edge[0], edge[1] = c.Taken, c.NotTaken
		case len(edge) > 0 && len(c.Cases) == len(edge)-1:
			edge[0] = c.Taken
			copy(edge[1:], c.Cases)
		default:
			continue
		}
		edges[i] = edge
		for k, n := range edge {
			entered[b.Successors[k]] += n
		}
	}
	for i := range blocks {
		b := &blocks[i]
		var left uint64
		for _, n := range edges[i] {
			left += n
		}
		b.Count = max(entered[i], left)
		if edges[i] == nil && len(b.Successors) == 1 && b.Successors[0] == i+1 {
			entered[i+1] += b.Count
		}
	}
}

// opcodeCost is about what an instruction costs in compiled code, in units of an addition. Calls
// have at least the cost of a call.
func opcodeCost(op byte) float64 {
	const (
		free, simple, memory, multiply, checked, divide, call, allocate, raise = 0.5, 1, 3, 3, 4, 20,
			vmruntime.CallCost, 20, 50
	)
	switch {
	case op < 46 || op >= 54 && op < 79 || op >= 87 && op < 96: // constants, local variables, the stack
		return free
	case op >= 46 && op < 54, op >= 79 && op < 87, op >= 178 && op <= 181: // elements of arrays, fields
		return memory
	case op >= 104 && op < 108: // multiplications
		return multiply
	case op >= 108 && op < 116: // divisions and remainders
		return divide
	case op >= OpInvokeVirtual && op <= OpInvokeDynamic, op == OpFastInvokeFinal, op == OpInvokeHandle:
		return call
	case op >= 187 && op <= 189, op == 197, op == 194, op == 195: // new objects, monitors
		return allocate
	// casts, switches
	case op == 192, op == 193, op == opTableSwitch, op == opLookupSwitch, op == opFastLinear, op == opFastBinary:
		return checked
	case op == opThrow:
		return raise
	case op >= 203 && op < OpFastInvokeFinal: // HotSpot's own for fields and elements
		return memory
	}
	return simple
}
