package perfmap

import (
	"fmt"
	"os"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Runtime stands for all programs that write a map for perf.
type Runtime struct{}

var _ vmruntime.CodeMapper = Runtime{}

// Name is "perfmap".
func (Runtime) Name() string { return "perfmap" }

// Title is "perf map".
func (Runtime) Title() string { return "perf map" }

// Language is empty: programs of any may write a map.
func (Runtime) Language() string { return "" }

// MapFile is /tmp/perf-PID.map, and MaxBytes.
func (Runtime) MapFile(pid int) (path string, maxBytes int64) {
	return fmt.Sprintf("/tmp/perf-%d.map", pid), MaxBytes
}

// ReadMap is ReadPiece.
func (Runtime) ReadMap(f *os.File, uid uint32, from vmruntime.MapPosition) (vmruntime.MapPiece, error) {
	return ReadPiece(f, uid, from)
}

// NewMap returns an empty *Map.
func (Runtime) NewMap() vmruntime.CodeMap { return &Map{} }
