package calldata

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// A MethodData (src/hotspot/share/oops/methodData.hpp) is what the interpreter and C1 counted in a
// method. After its header come entries in the order of the bytecode: one for each instruction that
// is worth it, a header of 8 bytes and some cells of 8. This file decodes them.

// Bounds on the rows of one entry. -XX:TypeProfileWidth is 2 by default and at most 8,
// -XX:BciProfileWidth likewise (JDK 17: 0 to 1000, which nobody sets).
const (
	usualRows = 2
	maxRows   = 1000
)

// MaxMethodData bounds one MethodData, in bytes. The longest that was seen has 60 kB.
const MaxMethodData = 1 << 20

// Layout of an entry's header: tag, flags, bytecode index in 16 bits, traps in 32.
const (
	dataTag     = 0
	dataBCI     = 2
	entryHeader = 8
	EntryCell   = 8
)

// dataKind sorts entries by how long they are.
type dataKind uint8

const (
	dataUnknown   dataKind = iota
	dataBit                // no cells
	dataCounter            // counter
	dataJump               // counter, displacement
	dataBranch             // counter, displacement, counter
	dataReceiver           // counter, maybe a cell, rows of {class, counter}: of casts
	dataVirtual            // likewise, of calls
	dataReturn             // counter, rows of {bytecode index, counter, displacement}
	dataArray              // number of cells, cells
	dataCallTypes          // counter, number of cells, cells
	dataVirtTypes          // as dataVirtual, then number of cells, cells
	dataTrap               // method
)

func dataKinds(r *vmstructs.Resolver) (kinds [256]dataKind) {
	for name, kind := range map[string]dataKind{
		"bit_data":               dataBit,
		"counter_data":           dataCounter,
		"jump_data":              dataJump,
		"receiver_type_data":     dataReceiver,
		"virtual_call_data":      dataVirtual,
		"ret_data":               dataReturn,
		"branch_data":            dataBranch,
		"multi_branch_data":      dataArray,
		"arg_info_data":          dataArray,
		"call_type_data":         dataCallTypes,
		"virtual_call_type_data": dataVirtTypes,
		"parameters_type_data":   dataArray,
		"speculative_trap_data":  dataTrap,
	} {
		if tag := r.Constant("DataLayout::" + name + "_tag"); tag > 0 && tag < int64(len(kinds)) {
			kinds[tag] = kind
		} else {
			r.Missing = append(r.Missing, "DataLayout::"+name+"_tag")
		}
	}
	return kinds
}

// A SiteCount is what was counted at a call.
type SiteCount struct {
	BCI   int
	Count uint64 // calls that are in no row
	Rows  []ReceiverRow
}

// Total is how often the call was made.
func (c *SiteCount) Total() uint64 {
	sum := c.Count
	for _, row := range c.Rows {
		sum += row.Count
	}
	return sum
}

// A ReceiverRow is how often receivers of a class were seen at a call. Klass is an address.
type ReceiverRow struct{ Klass, Count uint64 }

// A Decoder knows what of the layout depends on flags and on how the VM was built.
type Decoder struct {
	tags    *[256]dataKind
	rows    int // -XX:TypeProfileWidth
	retRows int // -XX:BciProfileWidth
	gap     int // cells before the rows: 0 or 1
}

// NewDecoder reads the VM's flags for the numbers of rows. Where a flag is missing it takes the
// default of the VM.
func NewDecoder(t vmstructs.Reader, flags *vmstructs.FlagSchema, tags *[256]dataKind, jdk int) *Decoder {
	rows := func(flag string) int {
		if n, err := vmstructs.ReadNumber(t, flags, flag); err == nil && n >= 0 && n <= maxRows {
			return int(n)
		}
		return usualRows
	}
	d := &Decoder{tags: tags, rows: rows("TypeProfileWidth"), retRows: rows("BciProfileWidth")}
	if jdk < 22 { // see the table in hotspot/jdks.go
		d.gap = 1
	}
	return d
}

// Decode lists the counts of calls. Whether there is a gap cannot be looked up: it is as it was for
// the last method, unless only the other way the entries end where they must end, in the order of
// the bytecode; that is kept then.
func (d *Decoder) Decode(data []byte) ([]SiteCount, error) {
	sites, err := d.entries(data)
	if err == nil {
		return sites, nil
	}
	other := *d
	other.gap = 1 - d.gap
	sites, otherErr := other.entries(data)
	if otherErr != nil {
		return nil, err
	}
	*d = other
	return sites, nil
}

func (d *Decoder) entries(data []byte) (sites []SiteCount, err error) {
	last := -1
	for at := 0; at < len(data); {
		entry := data[at:]
		size := d.size(entry)
		if size == 0 || size > len(entry) {
			return nil, fmt.Errorf("entry at %#x of a method's data: %w", at, vmruntime.ErrMalformed)
		}
		bci := int(vmstructs.Number(entry[dataBCI : dataBCI+2]))
		if bci <= last {
			return nil, fmt.Errorf("bytecode index %d after %d in a method's data: %w", bci, last,
				vmruntime.ErrMalformed)
		}
		last = bci
		if site, ok := d.site(entry[:size]); ok {
			site.BCI = bci
			sites = append(sites, site)
		}
		at += size
	}
	return sites, nil
}

// size is how many bytes an entry has, 0 if that is not known.
func (d *Decoder) size(entry []byte) int {
	if len(entry) < entryHeader {
		return 0
	}
	receivers := 1 + d.gap + 2*d.rows
	cells := 0
	switch d.tags[entry[dataTag]] {
	case dataBit:
	case dataCounter, dataTrap:
		cells = 1
	case dataJump:
		cells = 2
	case dataBranch:
		cells = 3
	case dataReceiver, dataVirtual:
		cells = receivers
	case dataReturn:
		cells = 1 + 3*d.retRows
	case dataArray:
		cells = 1 + counted(entry, 0)
	case dataCallTypes:
		cells = 2 + counted(entry, 1)
	case dataVirtTypes:
		cells = receivers + 1 + counted(entry, receivers)
	default:
		return 0
	}
	return entryHeader + cells*EntryCell
}

// counted is the number of cells that cell i says will follow: more than there can be if it makes
// no sense.
func counted(entry []byte, i int) int {
	if at := entryHeader + i*EntryCell; at+EntryCell <= len(entry) {
		return int(min(vmstructs.Number(entry[at:at+4]), MaxMethodData))
	}
	return MaxMethodData
}

// site takes what was counted out of a whole entry, if it is of a call. (Entries of casts are not.)
func (d *Decoder) site(entry []byte) (site SiteCount, ok bool) {
	cell := func(i int) uint64 { return vmstructs.Number(entry[entryHeader+i*EntryCell:][:EntryCell]) }
	switch d.tags[entry[dataTag]] {
	case dataVirtual, dataVirtTypes:
		for row := range d.rows {
			first := 1 + d.gap + 2*row
			if klass := cell(first); klass != 0 {
				site.Rows = append(site.Rows, ReceiverRow{klass, cell(first + 1)})
			}
		}
	case dataCounter, dataCallTypes:
	default:
		return SiteCount{}, false
	}
	site.Count = cell(0)
	return site, true
}
