package vmruntime

import (
	"errors"
	"os"
)

// A CodeMapper is a Runtime whose VMs write a map of their code into a file. There is no library
// that shows what they are: a process with such a file is one. The kernel side walks their code
// like native code.
type CodeMapper interface {
	Runtime
	// MapFile is where the VM with that pid writes its map, in its own mount namespace, and the
	// most bytes that a map may have. The pid is the one that the VM itself knows.
	MapFile(pid int) (path string, maxBytes int64)
	// ReadMap reads on in a map from a position, if it still is the same file and has not shrunk;
	// otherwise it begins anew. The file must be that user's or root's (ErrForeignMap). A read may
	// hang, as the file is in a file system of the process's: the caller may give up waiting for
	// it.
	ReadMap(f *os.File, uid uint32, from MapPosition) (MapPiece, error)
	// NewMap returns an empty map.
	NewMap() CodeMap
}

// A CodeMap is what a VM has said of its code, as far as it was read. It is for one goroutine at a
// time.
type CodeMap interface {
	// Position is where the next piece should begin.
	Position() MapPosition
	// Continues reports whether a piece follows what was read. If not, the file was written anew.
	Continues(MapPiece) bool
	// Add takes in a piece. One that does not continue what was read replaces it. ErrMapFull if
	// that is too much: then no name of the map can be trusted.
	Add(MapPiece) (MapAdded, error)
	// Forget drops all code. Position stays.
	Forget()
	// Find returns the code that holds an address.
	Find(addr uint64) (MappedCode, bool)
	// Bounds are the first address of all code, and the one after the last; 0 and 0 if there is
	// none.
	Bounds() (low, high uint64)
	// Epoch changes when code that Find gave is not right any more.
	Epoch() uint32
	// Bytes is the memory that the map holds.
	Bytes() int64
}

// A MapPosition says how far a map's file was read. The zero value is the beginning of any file.
type MapPosition struct {
	Device, Inode uint64 // identity of the file: distinguishes it from those that have its name later
	Offset        int64  // bytes
}

// A MapPiece is some of a map's file.
type MapPiece struct {
	Begin MapPosition // position of Text
	Text  []byte
	More  bool // follows in the file
}

// MapAdded is what a piece added to a CodeMap.
type MapAdded struct {
	Bytes     int  // bytes that were read: to the last end of an entry
	Malformed int  // entries that say nothing
	Replaced  bool // code that Find gave is not right any more
}

// A MappedCode is code that an entry of a CodeMap describes.
type MappedCode struct {
	Begin, End uint64 // addresses: [Begin, End)
	Line       int    // counts entries that speak of code, from 0
	// Name is the function's. Its length is bounded, and the VM may have put anything into it: it
	// must be cleaned before it is shown.
	Name string
}

// Errors of maps that callers distinguish.
var (
	// ErrMapFull: the map is longer than what is kept of one. The rest may speak of the same memory
	// again.
	ErrMapFull = errors.New("map of compiled code is too long")
	// ErrForeignMap: somebody else may have written the file, as programs share /tmp.
	ErrForeignMap = errors.New("its owner is neither the process's user nor root")
)
