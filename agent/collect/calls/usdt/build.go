package usdt

import (
	"errors"
	"fmt"
	"io"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// maxBuild bounds the file of an interpreter in bytes; with debug information and all extensions
// linked in, such files have 60 MB.
const maxBuild = 256 << 20

// A build is what the file of one interpreter contains: a program such as php8.2 or python3.11, or
// libruby-3.1.so. Addresses are those of the file.
type build struct {
	language int // index in languages
	segments elffile.Segments
	sites    []site
	php      phpBuild
}

// A site is one location of the probe.
type site struct {
	offset    uint64 // in the file, bytes
	semaphore uint64 // in the file, bytes; every attachment must pass it
	probe     bpf.USDTProbe
}

// Reasons why calls of an interpreter cannot be sampled.
var (
	errNoProbes = errors.New("it was built without USDT probes")
	errNote     = errors.New("the notes of its probe are inconsistent or name no semaphore")
)

// readBuild reads the file of an interpreter, of size bytes.
func readBuild(r io.ReaderAt, size int64, language int) (*build, error) {
	file, err := elffile.Open(r, size)
	if err != nil {
		return nil, err
	}
	probes, err := file.Probes()
	if err != nil {
		return nil, err
	}
	b := &build{language: language, segments: file.Segments()}
	if err := b.locate(probes); err != nil {
		return nil, err
	}
	if languages[language].dialect != bpf.USDTPHP {
		return b, nil
	}
	if b.php, err = readPHP(file, r, size); err != nil {
		return nil, err
	}
	for i := range b.sites {
		b.sites[i].probe.Filename, b.sites[i].probe.Opcodes = b.php.layout.filename, b.php.layout.opcodes
	}
	return b, nil
}

// locate selects the sites from the file's probes.
func (b *build) locate(probes []elffile.Probe) error {
	l := &languages[b.language]
	for _, p := range probes {
		if p.Provider != l.provider || p.Name != l.probe {
			continue
		}
		// An odd address, in memory or in the file, could lie on two pages, and no compiler puts a
		// 16-bit counter there.
		if p.Semaphore == 0 || p.Semaphore%2 != 0 || p.SemaphoreOffset == 0 || p.SemaphoreOffset%2 != 0 ||
			len(b.sites) == bpf.MaxUSDTProbes ||
			b.sites != nil && p.SemaphoreOffset != b.sites[0].semaphore {
			return errNote
		}
		s := site{offset: p.Offset, semaphore: p.SemaphoreOffset}
		s.probe.Dialect, s.probe.Language = l.dialect, uint32(b.language)
		for _, a := range []struct {
			from int
			to   *bpf.UsdtOperand
		}{{l.name, &s.probe.Name}, {l.file, &s.probe.File}, {l.class, &s.probe.ClassName}} {
			if a.from == none {
				a.to.Kind = bpf.OperandConstant // 0: no string
				continue
			}
			if a.from >= len(p.Args) {
				return errNote
			}
			o, err := attach.Operand(p.Args[a.from])
			if err != nil {
				return fmt.Errorf("argument %d of %s:%s: %w", a.from+1, l.provider, l.probe, err)
			}
			*a.to = bpf.UsdtOperand(o)
		}
		b.sites = append(b.sites, s)
	}
	if b.sites == nil {
		return fmt.Errorf("%w: %s", errNoProbes, l.missing)
	}
	return nil
}
