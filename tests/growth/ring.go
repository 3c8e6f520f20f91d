package growth

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// eventsMap is the name of the agent's ring in bpf/.
const eventsMap = "events"

// ownRing opens the ring of the agent in this process. There is only one.
func ownRing() (*ebpf.Map, error) {
	const fdinfo = "/proc/self/fdinfo"
	entries, err := os.ReadDir(fdinfo)
	if err != nil {
		return nil, fmt.Errorf("look for the agent's ring: %w", err)
	}
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(fdinfo, entry.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		_, rest, found := strings.Cut(string(text), "map_id:")
		if !found {
			continue
		}
		line, _, _ := strings.Cut(rest, "\n")
		id, err := strconv.ParseUint(strings.TrimSpace(line), 10, 32)
		if err != nil {
			continue
		}
		m, err := ebpf.NewMapFromID(ebpf.MapID(id))
		if err != nil {
			continue
		}
		if info, err := m.Info(); err == nil && m.Type() == ebpf.RingBuf && info.Name == eventsMap {
			return m, nil
		}
		m.Close()
	}
	return nil, errors.New("the agent in this process has no ring")
}

// chunk is how many records a writer writes at once.
const chunk = 1024

// A writer writes records of one size to a ring, as the sampling program does.
type writer struct {
	ring, records *ebpf.Map
	memory        *ebpf.Memory
	program       *ebpf.Program
	size          int
	buffer        []byte // records that are to be written
}

// newWriter returns a writer to the ring of the agent in this process. The caller closes it.
func newWriter(size int) (_ *writer, err error) {
	w := &writer{size: size, buffer: make([]byte, 0, chunk*size)}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.ring, err = ownRing(); err != nil {
		return nil, err
	}
	const mmapable = 1 << 10 // BPF_F_MMAPABLE
	if w.records, err = ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.Array, KeySize: 4, ValueSize: uint32(size), MaxEntries: chunk, Flags: mmapable,
	}); err != nil {
		return nil, fmt.Errorf("create a map of records: %w", err)
	}
	if w.memory, err = w.records.Memory(); err != nil {
		return nil, fmt.Errorf("map records: %w", err)
	}
	const noWakeup, wakeup = 1, 2 // BPF_RB_NO_WAKEUP, BPF_RB_FORCE_WAKEUP
	if w.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Syscall, License: "GPL", Flags: unix.BPF_F_SLEEPABLE,
		// The first word of the context is how many records are to be written. It returns how many
		// were.
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R7, asm.R1, 0, asm.Word),
			asm.Mov.Imm(asm.R6, 0),
			asm.JGE.Reg(asm.R6, asm.R7, "end").WithSymbol("next"),
			asm.StoreMem(asm.RFP, -4, asm.R6, asm.Word),
			asm.LoadMapPtr(asm.R1, w.records.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "end"),
			asm.LoadMapPtr(asm.R1, w.ring.FD()),
			asm.Mov.Reg(asm.R2, asm.R0),
			asm.Mov.Imm(asm.R3, int32(size)),
			asm.Mov.Imm(asm.R4, noWakeup),
			asm.Mov.Reg(asm.R8, asm.R6),
			asm.Add.Imm(asm.R8, 1),
			asm.JLT.Reg(asm.R8, asm.R7, "write"),
			asm.Mov.Imm(asm.R4, wakeup),
			asm.FnRingbufOutput.Call().WithSymbol("write"),
			asm.JNE.Imm(asm.R0, 0, "end"), // the ring is full
			asm.Add.Imm(asm.R6, 1),
			asm.JLT.Imm(asm.R6, chunk, "next"),
			asm.Mov.Reg(asm.R0, asm.R6).WithSymbol("end"),
			asm.Return(),
		},
	}); err != nil {
		return nil, fmt.Errorf("load the program that writes records: %w", err)
	}
	return w, nil
}

// add adds a record, and writes all that were added once there are enough of them.
func (w *writer) add(record []byte) error {
	if w.buffer = append(w.buffer, record...); len(w.buffer) < cap(w.buffer) {
		return nil
	}
	return w.flush()
}

// flush writes all records that were added. While the ring is full it waits.
func (w *writer) flush() error {
	for len(w.buffer) > 0 {
		if _, err := w.memory.WriteAt(w.buffer, 0); err != nil {
			return fmt.Errorf("copy records: %w", err)
		}
		written, err := w.program.Run(&ebpf.RunOptions{Context: uint64(len(w.buffer) / w.size)})
		if err != nil {
			return fmt.Errorf("write records: %w", err)
		}
		if rest := w.buffer[int(written)*w.size:]; len(rest) > 0 {
			w.buffer = w.buffer[:copy(w.buffer, rest)]
			time.Sleep(time.Millisecond)
			continue
		}
		break
	}
	w.buffer = w.buffer[:0]
	return nil
}

func (w *writer) close() error {
	var errs []error
	if w.program != nil {
		errs = append(errs, w.program.Close())
	}
	for _, m := range []*ebpf.Map{w.records, w.ring} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}
