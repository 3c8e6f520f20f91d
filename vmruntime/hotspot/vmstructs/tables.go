// Package vmstructs reads how a HotSpot VM describes itself: four arrays of fields, types and
// constants, the command line flags, and the encodings of its texts.
//
//	tables, err := vmstructs.ReadTables(reader, symbols)
//	r := &vmstructs.Resolver{Tables: tables}
//	name := r.Field("Klass._name")                         // offset and width
//	err = r.Err()                                          // all names that are missing, in one error
//	symbol, err := reader.Word(name.At(klass))
//
// Files:
//
//	memory   typed reads of the VM's memory, one by one and in batches
//	text     names out of the VM's memory, made fit for people
//	tables   the arrays, as they are
//	field    looking names up in them
//	flags    command line flags
//	weave    reads of several functions, done together
//
// Every count and length that is read has a bound next to the code that follows it.
package vmstructs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// HotSpot describes itself to debuggers in four arrays (src/hotspot/share/runtime/vmStructs.cpp):
// fields of C++ classes, sizes of types, and named constants of two widths. Exported symbols have
// their addresses and layouts. The arrays must be read from a running process, because the dynamic
// linker fills in addresses.

// Bounds on one array. JDK 17 has 788 fields, 768 types and 398 constants.
const (
	maxEntries   = 8 << 10
	maxEntrySize = 256 // bytes
)

// A Array is one of the arrays: the symbol of the pointer to it, the prefix of the symbols that
// describe an entry, and the columns that are read.
type Array struct {
	array, entry string
	columns      []string
}

// Arrays are the arrays, that of fields first.
var (
	fieldTable = Array{"VMStructs", "VMStructEntry",
		[]string{"TypeName", "FieldName", "TypeString", "IsStatic", "Offset", "Address"}}
	typeTable = Array{"VMTypes", "VMTypeEntry", []string{"TypeName", "Size"}}
	intTable  = Array{"VMIntConstants", "VMIntConstantEntry", []string{"Name", "Value"}}
	longTable = Array{"VMLongConstants", "VMLongConstantEntry", []string{"Name", "Value"}}
	Arrays    = []Array{fieldTable, typeTable, intTable, longTable}
)

const symbolPrefix = "gHotSpot"

// Symbols are the names of the exported variables: the pointer to the array, the size of an entry,
// and for each column where in the entry it is.
func (t Array) Symbols() []string {
	names := []string{symbolPrefix + t.array, symbolPrefix + t.entry + "ArrayStride"}
	for _, column := range t.columns {
		names = append(names, symbolPrefix+t.entry+column+"Offset")
	}
	return names
}

// Tables is what the arrays say, by name. Fields are named Class._field.
type Tables struct {
	Fields    map[string]StructField
	Sizes     map[string]uint64
	Constants map[string]int64
}

// A StructField is a field of a C++ class or a static variable.
type StructField struct {
	static bool
	value  uint64 // address of a static variable, offset of another field
	width  uint8  // bytes, 8 if unknown
}

// ReadTables reads the arrays. symbols returns addresses in the process. It returns ErrStarting if
// the dynamic linker or the constructors of libjvm have not filled the arrays in yet. If only some
// entries are missing it is another error, as nothing shows whether they will come.
func ReadTables(t Reader, symbols func(string) (uint64, bool)) (*Tables, error) {
	tables := make(map[string][][]uint64)
	var pointers []uint64
	for _, table := range Arrays {
		rows, err := readTable(t, table, symbols)
		if err != nil {
			return nil, fmt.Errorf("%s%s: %w", symbolPrefix, table.array, err)
		}
		tables[table.array] = rows
		for _, row := range rows {
			for i, column := range table.columns {
				if isString(column) {
					pointers = append(pointers, row[i])
				}
			}
		}
	}
	name, err := t.Texts(pointers)
	if err != nil {
		return nil, fmt.Errorf("names of fields: %w", err)
	}
	// A name that is not there has the address that it has in the file: the dynamic linker is not
	// done with the array.
	for _, table := range Arrays {
		for _, row := range tables[table.array] {
			for i, column := range table.columns {
				if _, ok := name[row[i]]; !ok && strings.HasSuffix(column, "Name") {
					return nil, fmt.Errorf("%s%s: name at %#x: %w", symbolPrefix, table.array, row[i],
						vmruntime.ErrStarting)
				}
			}
		}
	}
	s := &Tables{make(map[string]StructField), make(map[string]uint64), make(map[string]int64)}
	for _, row := range tables[fieldTable.array] {
		f := StructField{static: uint32(row[3]) != 0, value: row[4], width: typeWidth(name[row[2]])}
		if f.static {
			f.value = row[5]
		}
		s.Fields[name[row[0]]+"."+name[row[1]]] = f
	}
	for _, row := range tables[typeTable.array] {
		s.Sizes[name[row[0]]] = row[1]
	}
	for _, row := range tables[intTable.array] {
		s.Constants[name[row[0]]] = int64(int32(row[1]))
	}
	for _, row := range tables[longTable.array] {
		s.Constants[name[row[0]]] = int64(row[1])
	}
	return s, nil
}

// readTable reads one array up to the entry whose first column is null. A row has the values of the
// columns.
func readTable(t Reader, table Array, symbols func(string) (uint64, bool)) ([][]uint64, error) {
	var b Batch
	for _, name := range table.Symbols() {
		addr, ok := symbols(name)
		if !ok {
			return nil, fmt.Errorf("symbol %s is missing", name)
		}
		b.Add(addr, 8)
	}
	if err := b.Read(t.Mem); err != nil {
		return nil, err
	}
	header := make([]uint64, len(b.Ranges)) // array, entry size, columns
	for i := range b.Ranges {
		var ok bool
		if header[i], ok = b.Word(i); !ok {
			return nil, fmt.Errorf("variables are not mapped: %w", vmruntime.ErrStarting)
		}
	}
	array, size, columns := header[0], header[1], header[2:]
	if array == 0 || size == 0 { // relocations, and then constructors, set them
		return nil, fmt.Errorf("entries of %d bytes at %#x: %w", size, array, vmruntime.ErrStarting)
	}
	if size < 8 || size > maxEntrySize || slices.Max(columns) > size-8 {
		return nil, fmt.Errorf("entries of %d bytes at %#x: %w", size, array, vmruntime.ErrMalformed)
	}
	var rows [][]uint64
	for len(rows) < maxEntries {
		chunk, err := readRows(t, array+uint64(len(rows))*size, size)
		if err != nil && len(rows) == 0 { // the address is still that of the file
			return nil, fmt.Errorf("entries at %#x: %w: %w", array, vmruntime.ErrStarting, err)
		}
		if err != nil {
			return nil, err
		}
		for ; len(chunk) > 0; chunk = chunk[size:] {
			row := make([]uint64, len(columns))
			for i, at := range columns {
				row[i] = Number(chunk[at : at+8])
			}
			if row[0] == 0 {
				return rows, nil
			}
			rows = append(rows, row)
		}
	}
	return nil, fmt.Errorf("more than %d entries: %w", maxEntries, vmruntime.ErrMalformed)
}

// readRows reads some entries, or one if the process's memory ends behind it.
func readRows(t Reader, addr, size uint64) ([]byte, error) {
	const many = 128
	if chunk, err := t.Bytes(addr, many*size); err == nil {
		return chunk, nil
	}
	return t.Bytes(addr, size)
}

func isString(column string) bool {
	return strings.HasSuffix(column, "Name") || column == "TypeString"
}

// typeWidth is the size in bytes of a C++ type as the VM spells it. Pointers and unknown types have
// 8, which is right for all fields that are read.
func typeWidth(name string) uint8 {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "volatile "), "const ")
	switch name {
	case "int", "jint", "uint", "juint", "unsigned int", "unsigned", "u4", "uint32_t", "int32_t", "pid_t":
		return 4
	case "u2", "jushort", "jshort", "short", "unsigned short", "int16_t", "uint16_t":
		return 2
	case "CompLevel": // an int up to JDK 20, a byte later: the lowest byte has all of it
		return 1
	case "u1", "bool", "jbyte", "char", "signed char", "unsigned char", "int8_t", "uint8_t":
		return 1
	}
	return 8
}
