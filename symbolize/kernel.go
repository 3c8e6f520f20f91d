package symbolize

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// ErrKernelHidden means that the kernel shows every symbol at address 0, so that its frames stay
// [unknown].
var ErrKernelHidden = errors.New("kernel symbol addresses are hidden: run the agent with CAP_SYSLOG, " +
	"and with sysctl kernel.kptr_restrict at 0 or 1")

// A Kernel names the functions of the running kernel and its modules, as of when it was read, and
// code that was loaded since. 60,000 functions take about 2 MB.
type Kernel struct {
	table  *elffile.Table    // module functions are named as in /proc/kallsyms: "function\t[module]"
	ends   map[string]uint64 // where modules end, by name
	loaded *Loaded

	symbols kernelSymbols
}

// Limits of what is read; a line is an address, a type, a name of less than 512 bytes
// (KSYM_NAME_LEN of the kernel's kallsyms.h) and a module's of less than 64. Debian's kernels have
// 250,000 lines with their modules.
const (
	maxKallsymsLine  = 1 << 10
	maxKallsymsLines = 2 << 20
	// maxKernelFunction is the assumed maximum length of a function in bytes, if no symbol follows
	// it.
	maxKernelFunction = 1 << 20
)

// ReadKallsyms reads /proc/kallsyms, or input in its format, and adds BPF programs to loaded. It
// keeps functions only. Where a module ends, by its name, is in ends: without that its last
// function is taken to end where the next symbol is. The error is ErrKernelHidden if the reader may
// not see addresses; any other error means that the input has another format, or is too long.
func ReadKallsyms(r io.Reader, ends map[string]uint64, loaded *Loaded) (*Kernel, error) {
	if loaded == nil {
		loaded = new(Loaded)
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), 64<<10)
	var builder elffile.TableBuilder
	builder.Grow(192<<10, 2<<20) // enough for most kernels
	functions, hidden := 0, 0
	for n := 1; lines.Scan(); n++ {
		if n > maxKallsymsLines {
			return nil, fmt.Errorf("kallsyms: more than %d lines", maxKallsymsLines)
		}
		addr, kind, name, err := parseKallsyms(lines.Bytes())
		if err != nil {
			return nil, fmt.Errorf("kallsyms line %d: %w", n, err)
		}
		if addr == 0 {
			hidden++ // or a per-CPU offset, which is not an address either
			continue
		}
		if functions == 0 {
			// The first symbol of code lies in the kernel's image, and modules are placed within a
			// near jump of it.
			const nearJump = 2 << 30
			builder.Base = addr - min(addr, nearJump)
		}
		if program, ok := loadedName(name); ok {
			loaded.Add(addr, 0, program)
			err = builder.End(addr)
		} else if !isKernelFunction(kind, name) {
			err = builder.End(addr)
		} else {
			functions++
			err = builder.Add(addr, 0, name, 0)
		}
		if err != nil {
			return nil, fmt.Errorf("kallsyms: %w", err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("kallsyms: %w", err)
	}
	if functions > 0 {
		return &Kernel{table: builder.Build(), ends: ends, loaded: loaded}, nil
	}
	if hidden > 0 {
		return nil, ErrKernelHidden
	}
	return nil, errors.New("kallsyms: no functions")
}

// ReadModules reads where the modules of the kernel end, from /proc/modules or input in its format:
// "ext4 1118208 1 - Live 0xffffffffc0400000". Since Linux 6.4 a module's size includes data that
// may be elsewhere: then its code ends before that. The error means that the input has another
// format, or is too long.
func ReadModules(r io.Reader) (ends map[string]uint64, err error) {
	const maxModules = 1 << 16
	ends = map[string]uint64{}
	for lines := bufio.NewScanner(r); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || len(ends) == maxModules {
			return nil, fmt.Errorf("modules: line %d has another format, or there are more than %d", len(ends)+1,
				maxModules)
		}
		size, err := strconv.ParseUint(fields[1], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("modules: size of %s: %w", fields[0], err)
		}
		start, err := strconv.ParseUint(strings.TrimPrefix(fields[5], "0x"), 16, 64)
		if err != nil {
			return nil, fmt.Errorf("modules: address of %s: %w", fields[0], err)
		}
		if start != 0 { // else it is hidden
			ends[fields[0]] = start + size
		}
	}
	return ends, nil
}

// parseKallsyms splits a line into its fields: "ffffffff81000000 T _stext", with a tab and
// "[module]" after names of a module. The name includes the module.
func parseKallsyms(line []byte) (addr uint64, kind byte, name []byte, err error) {
	if len(line) > maxKallsymsLine {
		return 0, 0, nil, fmt.Errorf("%d bytes long", len(line))
	}
	digits, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok || len(rest) < 3 || rest[1] != ' ' {
		return 0, 0, nil, errors.New("is not an address, a type and a name")
	}
	addr, err = strconv.ParseUint(string(digits), 16, 64)
	if err != nil {
		return 0, 0, nil, fmt.Errorf("has no address: %w", err)
	}
	return addr, rest[0], rest[2:], nil
}

// isKernelFunction reports whether a symbol names executed code: of type text, or weak, which is
// nearly always code. Other symbols mark the end of the function before them. So do the paddings of
// NOPs before every function in kernels built for live patching (CONFIG_PREFIX_SYMBOLS; half of all
// symbols on such a kernel), and the symbols at the end of the text sections.
func isKernelFunction(kind byte, name []byte) bool {
	switch kind {
	case 't', 'T', 'w', 'W':
		return !bytes.HasPrefix(name, []byte("__pfx_")) && string(name) != "_etext" && string(name) != "_einittext"
	}
	return false
}

// Lookup returns the function at an address, and its module's name without brackets, empty for the
// kernel itself. A nil Kernel knows none.
func (k *Kernel) Lookup(addr uint64) (name, module string, ok bool) {
	if k == nil {
		return "", "", false
	}
	if name, ok := k.loaded.Lookup(addr); ok {
		return name, "bpf", true
	}
	i, ok := k.table.Find(addr)
	if !ok || addr-k.table.Start(i) >= maxKernelFunction {
		return "", "", false
	}
	name, module, _ = strings.Cut(k.table.Name(i), "\t")
	module = strings.Trim(module, "[]")
	if end, known := k.ends[module]; known && addr >= end && k.table.Start(i) < end {
		return "", "", false
	}
	return name, module, true
}

// With returns the same with other code that was loaded.
func (k *Kernel) With(loaded *Loaded) *Kernel {
	return &Kernel{table: k.table, ends: k.ends, loaded: loaded}
}

// Find returns where functions of the kernel itself begin and where the next ones do, by name. It
// omits those that there are not. A nil Kernel has none.
func (k *Kernel) Find(names ...string) map[string][2]uint64 {
	found := map[string][2]uint64{}
	for i := range k.Len() {
		name := k.table.Name(i)
		if !slices.Contains(names, name) {
			continue
		}
		end := k.table.Start(i) + maxKernelFunction
		if i+1 < k.Len() {
			end = min(end, k.table.Start(i+1))
		}
		found[name] = [2]uint64{k.table.Start(i), end}
	}
	return found
}

// Len is the number of functions; 0 for a nil Kernel.
func (k *Kernel) Len() int {
	if k == nil {
		return 0
	}
	return k.table.Len()
}
