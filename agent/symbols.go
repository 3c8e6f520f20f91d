package agent

import (
	"bufio"
	"context"
	"io"
	"os"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// symbolBytes bounds the symbol tables of all files: about eight of the size of libjvm's.
const symbolBytes = 24 << 20

// maxExecutable bounds a file whose symbols are read.
const maxExecutable = 2 << 30

const vdso = "[vdso]"

// loadSymbols reads the kernel's symbols and the vDSO's, which are the same for everybody. Without them frames stay
// unnamed; that is no reason not to profile.
func (a *Agent) loadSymbols() {
	a.files = symbolize.NewFiles(symbolBytes)
	f, err := os.Open(string(a.opt.Proc) + "/kallsyms")
	if err == nil {
		defer f.Close()
		a.kernel, err = symbolize.ReadKallsyms(bufio.NewReaderSize(f, 1<<16))
	}
	if err != nil {
		a.hints = append(a.hints, "kernel functions have no names: "+err.Error())
	}
	a.vdso = readVDSO(a.opt.Proc)
}

// readVDSO returns the agent's own vDSO, which is every 64-bit process's; nil if it cannot be read.
func readVDSO(root proc.Root) []byte {
	maps, err := root.Maps(os.Getpid(), proc.Executable)
	if err != nil {
		return nil
	}
	for _, m := range maps {
		if m.Path == vdso {
			mem, err := os.Open(string(root) + "/self/mem")
			if err != nil {
				return nil
			}
			defer mem.Close()
			b := make([]byte, m.Limit-m.Start)
			if _, err := io.ReadFull(io.NewSectionReader(mem, int64(m.Start), int64(len(b))), b); err != nil {
				return nil
			}
			return b
		}
	}
	return nil
}

func (a *Agent) nameKernel(pc uint64) name {
	f := a.kernel.Frame(pc)
	return name{symbols: []symbolize.Symbol{symbolize.Intern(f)}, unknown: f.Function == symbolize.Unknown}
}

// nameNative names the code at pc of p, which is a return address unless exact.
func (a *Agent) nameNative(p *process, pc uint64, exact bool) name {
	if !exact {
		pc-- // into the call, which may be the last instruction of its function
	}
	m := p.work.maps.Find(pc)
	if m == nil && a.readMaps(p) {
		if m = p.work.maps.Find(pc); p.work.guest == nil && findLibrary(p.work.maps) != nil {
			a.names.submit(p) // a VM appeared under another name than java
		}
	}
	if m == nil {
		f := symbolize.Frame{
			Function: symbolize.Unknown, SystemName: symbolize.Unknown, Kind: symbolize.KindUnknown, Address: pc,
			Mapping: unmapped,
		}
		return name{symbols: []symbolize.Symbol{symbolize.Intern(f)}, unknown: true}
	}
	f := a.object(p, m).Frame(symbolize.Mapping{File: m.Path, Start: m.Start, Limit: m.Limit, Offset: m.Offset}, pc)
	return name{symbols: []symbolize.Symbol{symbolize.Intern(f)}, unknown: f.Function == symbolize.Unknown}
}

var unmapped = unique.Make(symbolize.Mapping{File: "[unmapped]"})

// object returns the symbols of the file behind m, nil if there are none. It is kept while the worker has p.
func (a *Agent) object(p *process, m *proc.Mapping) *symbolize.Object {
	if o, ok := p.work.objects[m.Start]; ok {
		return o
	}
	var o *symbolize.Object
	var err error
	switch {
	case m.Path == vdso && a.vdso != nil:
		o, err = a.files.GetBytes(symbolize.FileKey{BuildID: vdso}, a.vdso)
	case m.IsFile():
		o, err = proc.Call(context.Background(), a.pool, p.pid, func() (*symbolize.Object, error) {
			return a.files.Get(symbolize.FileKey{Device: m.Dev, Inode: m.Inode}, func() (*os.File, error) {
				return a.opt.Proc.OpenMapped(p.pid, m, maxExecutable)
			})
		})
		a.guests.count(err)
	}
	if err != nil {
		o = nil
		a.log.Debug("no symbols", "pid", p.pid, "file", m.Path, "err", err)
	}
	p.work.objects[m.Start] = o
	return o
}
