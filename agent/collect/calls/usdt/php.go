package usdt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A phpBuild is the additional data of a PHP build: the location of its function table. Addresses
// are those of the file.
type phpBuild struct {
	version         Version
	layout          layout
	executorGlobals uint64
	// Where PHP keeps what it executes functions with, and the function there if it was started
	// without USE_ZEND_DTRACE=1; 0 in a file without these symbols.
	executeVariable, executePlain uint64
}

// Reasons why calls of a PHP cannot be sampled.
var (
	errZTS   = errors.New("this PHP is built for threads (ZTS), which this agent does not support")
	errPlain = errors.New("it was started without USE_ZEND_DTRACE=1 in its environment: restart it with that")
)

func readPHP(file *elffile.File, r io.ReaderAt, size int64) (b phpBuild, err error) {
	if b.version, err = findVersion(r, size); err != nil {
		return b, err
	}
	if b.layout, err = layoutOf(b.version); err != nil {
		return b, err
	}
	symbols, err := file.FindSymbols("executor_globals", "zend_execute_ex", "execute_ex")
	if err != nil {
		return b, err
	}
	if b.executorGlobals = symbols["executor_globals"].Value; b.executorGlobals == 0 {
		return b, errZTS // it has executor_globals_offset instead
	}
	b.executeVariable, b.executePlain = symbols["zend_execute_ex"].Value, symbols["execute_ex"].Value
	return b, nil
}

// passes checks that a process executes functions through the probe, as far as its file has the
// symbols for that.
func (b *phpBuild) passes(ctx context.Context, root proc.Root, pool *proc.Pool, id proc.Identity, bias uint64) error {
	if b.executeVariable == 0 {
		return nil
	}
	mem, err := proc.Call(ctx, pool, id.PID, func() (*proc.Memory, error) { return proc.OpenMemory(root, id, pool) })
	if err != nil {
		return err
	}
	defer mem.Close()
	var word [8]byte
	if err := mem.Read(bias+b.executeVariable, word[:]); err != nil {
		return fmt.Errorf("read zend_execute_ex: %w", err)
	}
	switch execute := binary.NativeEndian.Uint64(word[:]); {
	case execute == 0:
		return vmruntime.ErrStarting
	case b.executePlain != 0 && execute == bias+b.executePlain:
		return errPlain
	}
	return nil
}
