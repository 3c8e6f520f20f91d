package cpython

import (
	"encoding/binary"
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Symbols that every build exports, as extension modules use them. They are in the table for dynamic
// linking, which stripping leaves.
const (
	symbolRuntime = "_PyRuntime"
	symbolCode    = "PyCode_Type"
	symbolEval    = "_PyEval_EvalFrameDefault"
	symbolVersion = "Py_Version" // 3.11 and later

	// Functions that a version was the first to have, for those without Py_Version.
	symbolSince39  = "PyModule_AddType"
	symbolSince310 = "PyModule_AddObjectRef"
)

// A version is PY_VERSION_HEX: 0x030b02f0 is 3.11.2. Only the two upper bytes are known of 3.9 and
// 3.10.
type version uint32

// minor is 11 for 3.11.
func (v version) minor() int { return int(v >> 16 & 0xff) }

// String is "3.11.2", "3.13.0rc1"; "3.9" if no more is known.
func (v version) String() string {
	if v&0xffff == 0 {
		return fmt.Sprintf("%d.%d", v>>24, v.minor())
	}
	text := fmt.Sprintf("%d.%d.%d", v>>24, v.minor(), v>>8&0xff)
	if kind, ok := map[version]string{0xa: "a", 0xb: "b", 0xc: "rc"}[v>>4&0xf]; ok {
		text += fmt.Sprintf("%s%d", kind, v&0xf)
	}
	return text
}

// The versions that can be read.
const (
	oldest = 9
	newest = 14
)

// An Image is what one build of the interpreter taught. It is immutable and may be used for many
// processes at once. Addresses are those of the file.
type Image struct {
	version           version
	runtime, codeType uint64
	evalLow, evalHigh uint64 // the loop of the interpreter; 0 and 0 if it is not known
}

func newImage(file *elffile.File) (*Image, error) {
	found, err := file.FindSymbols(symbolRuntime, symbolCode, symbolEval, symbolVersion, symbolSince39, symbolSince310)
	if err != nil {
		return nil, fmt.Errorf("symbols of CPython: %w", err)
	}
	runtime, ok1 := found[symbolRuntime]
	codeType, ok2 := found[symbolCode]
	if !ok1 || !ok2 {
		if starts, err := file.Needs(loads...); err == nil && starts {
			return nil, fmt.Errorf("libpython is not loaded yet: %w", vmruntime.ErrStarting)
		}
		return nil, nil
	}
	image := &Image{runtime: runtime.Value, codeType: codeType.Value}
	if eval, ok := found[symbolEval]; ok && eval.Size > 0 {
		image.evalLow, image.evalHigh = eval.Value, eval.Value+eval.Size
	}
	switch number, ok := found[symbolVersion]; {
	case ok:
		var b [8]byte
		if err := file.ReadLoaded(b[:], number.Value); err != nil {
			return nil, fmt.Errorf("version of CPython: %w", err)
		}
		image.version = version(binary.LittleEndian.Uint64(b[:]))
	case has(found, symbolSince310):
		image.version = 0x030a0000
	case has(found, symbolSince39):
		image.version = 0x03090000
	default:
		return nil, fmt.Errorf("CPython before 3.%d is not supported", oldest)
	}
	if v := image.version; v>>24 != 3 || v.minor() < oldest || v.minor() > newest {
		return nil, fmt.Errorf("CPython %v is not supported: 3.%d to 3.%d are", v, oldest, newest)
	}
	return image, nil
}

// loads are the libraries that have the interpreter if an executable does not.
var loads = func() (names []string) {
	for minor := oldest; minor <= newest; minor++ {
		names = append(names, fmt.Sprintf("libpython3.%d.so.1.0", minor), fmt.Sprintf("libpython3.%dt.so.1.0", minor))
	}
	return names
}()

func has(found map[string]elffile.Symbol, name string) bool {
	_, ok := found[name]
	return ok
}
