package semaphore

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// maxBuild bounds the file of a PHP in bytes; with debug information and all extensions linked in they have 60 MB.
const maxBuild = 256 << 20

// A build is what the file of one PHP teaches: a program such as php8.2 or php-fpm8.2, or libphp8.2.so. Addresses are
// those of the file.
type build struct {
	version         Version
	layout          layout
	segments        elffile.Segments
	sites           []site
	semaphore       uint64 // address of the counter
	semaphoreOffset uint64 // and its offset in the file
	executorGlobals uint64
	// Where PHP keeps what it executes functions with, and the function there if it was started without
	// USE_ZEND_DTRACE=1; 0 in a file without these symbols.
	executeVariable, executePlain uint64
}

// A site is one place of function__entry.
type site struct {
	offset uint64 // in the file, bytes
	probe  bpf.PHPProbe
}

// Reasons why calls of a PHP cannot be sampled.
var (
	errNoProbes = errors.New("this PHP was built without USDT probes (configure --enable-dtrace)")
	errZTS      = errors.New("this PHP is built for threads (ZTS), where this agent does not find the executing function")
	errNote     = errors.New("the notes of php:function__entry contradict each other or name no semaphore")
)

// IsPHP reports whether a mapping is the code of a file that is named as PHPs are: php8.2, php-fpm8.2, libphp8.2.so. Look
// is worth its cost for processes that have one.
func IsPHP(m *proc.Mapping) bool {
	name := path.Base(m.Path)
	return m.Exec && m.IsFile() && (strings.HasPrefix(name, "libphp") || strings.HasPrefix(name, "php"))
}

// readBuild reads the file of a PHP, of size bytes.
func readBuild(r io.ReaderAt, size int64) (*build, error) {
	file, err := elffile.Open(r, size)
	if err != nil {
		return nil, err
	}
	probes, err := file.Probes()
	if err != nil {
		return nil, err
	}
	b := &build{segments: file.Segments()}
	if err := b.locate(probes); err != nil {
		return nil, err
	}
	if b.version, err = findVersion(r, size); err != nil {
		return nil, err
	}
	if b.layout, err = layoutOf(b.version); err != nil {
		return nil, err
	}
	for i := range b.sites {
		b.sites[i].probe.Filename, b.sites[i].probe.Opcodes = b.layout.filename, b.layout.opcodes
	}
	return b, b.findSymbols(file)
}

// locate takes the sites out of the file's probes.
func (b *build) locate(probes []elffile.Probe) error {
	for _, p := range probes {
		if p.Provider != "php" || p.Name != "function__entry" {
			continue
		}
		if b.sites == nil {
			b.semaphore, b.semaphoreOffset = p.Semaphore, p.SemaphoreOffset
		}
		// An odd address could lie on two pages, and no compiler puts a 16-bit counter there.
		if p.Semaphore == 0 || p.Semaphore%2 != 0 || p.Semaphore != b.semaphore || len(b.sites) == bpf.MaxPHPProbes {
			return errNote
		}
		s := site{offset: p.Offset}
		// function__entry(name, file, line, class, scope): Zend/zend_dtrace.d.
		if len(p.Args) < 4 {
			return errNote
		}
		for i, to := range map[int]*bpf.PhpOperand{0: &s.probe.Name, 1: &s.probe.File, 3: &s.probe.ClassName} {
			o, err := attach.Operand(p.Args[i])
			if err != nil {
				return fmt.Errorf("argument %d of php:function__entry: %w", i+1, err)
			}
			*to = bpf.PhpOperand(o)
		}
		b.sites = append(b.sites, s)
	}
	if b.sites == nil {
		return errNoProbes
	}
	return nil
}

func (b *build) findSymbols(file *elffile.File) error {
	symbols, err := file.FindSymbols("executor_globals", "zend_execute_ex", "execute_ex")
	if err != nil {
		return err
	}
	if b.executorGlobals = symbols["executor_globals"].Value; b.executorGlobals == 0 {
		return errZTS // it has executor_globals_offset instead
	}
	b.executeVariable, b.executePlain = symbols["zend_execute_ex"].Value, symbols["execute_ex"].Value
	return nil
}
