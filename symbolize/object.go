package symbolize

import (
	"io"

	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/elffile/pclntab"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// An Object is the data read from one ELF file. It holds no file open. Take it from a Files for
// each use: a caller that keeps it keeps its memory, beyond the bound of the cache.
type Object struct {
	id       uint64 // unique among all objects that one Files loaded
	buildID  string
	segments elffile.Segments
	table    *elffile.Table  // nil if the file has no names
	starts   *elffile.Starts // starts of functions, for a stripped file; nil if unknown
	bottoms  []uint64        // those of starts at which stacks of threads end, without a symbol
	lines    *pclntab.Table  // line tables of a Go program, nil for others
	names    *nameCache
}

// objectOverhead is the memory of an Object and its entry in the cache, roughly, in bytes.
const objectOverhead = 1 << 10

// readObject reads the needed parts of an ELF file. A file without readable symbols is not an
// error: its build id and its segments are still useful. A stripped file gets the symbols of its
// debug file, if debug finds one.
func readObject(r io.ReaderAt, size int64, debug DebugFiles) (*Object, error) {
	file, err := elffile.Open(r, size)
	if err != nil {
		return nil, err
	}
	o := &Object{buildID: file.BuildID(), segments: file.Segments()}
	o.table, _ = file.Symbols()
	o.lines, _ = pclntab.Find(file)
	if !file.Stripped() {
		return o, nil
	}
	if table := debug.symbols(file, o.buildID); table != nil && (o.table == nil || table.Len() > o.table.Len()) {
		o.table = table
		return o, nil
	}
	o.starts, _ = file.FunctionStarts()
	o.bottoms = file.ThreadStarts(o.starts)
	return o, nil
}

// functionStart returns the start of the function around an address of the file that no symbol
// covers.
func (o *Object) functionStart(vaddr uint64) (uint64, bool) { return o.starts.Find(vaddr) }

// Lookup returns the function at an address of the file (an address of a process minus the load
// bias).
func (o *Object) Lookup(vaddr uint64) (Name, bool) {
	if o.table == nil {
		return Name{}, false
	}
	i, ok := o.table.Find(vaddr)
	if !ok {
		return Name{}, false
	}
	return o.names.get(symbolID{o.id, i}, func() Name {
		mangled := o.table.Name(i)
		return Name{Function: functionName(mangled), System: symbol.CleanName(mangled)}
	}), true
}

// bytes is the memory that the object holds.
func (o *Object) bytes() int64 {
	const segment = 56
	n := int64(objectOverhead + len(o.buildID) + segment*len(o.segments))
	if o.table != nil {
		n += o.table.Bytes()
	}
	return n + o.starts.Bytes()
}
