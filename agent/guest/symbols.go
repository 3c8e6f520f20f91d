package guest

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"
	"unique"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// symbolBytes bounds the symbol tables of all files: about eight of the size of a JVM's library.
const symbolBytes = 16 << 20

// idleSymbols is after what time without a request a file's symbols are dropped, once a window
// closes. To read those of a JVM's library again takes 10 ms.
const idleSymbols = 2 * time.Minute

// maxExecutable bounds a file whose symbols are read.
const maxExecutable = 2 << 30

const vdso = proc.VDSO

// Symbols are those that are the same for all processes: the kernel's and the vDSO's.
type Symbols struct {
	Hints []string // notes for profiles on what could not be read

	kernel  *symbolize.Kernel
	loaded  *symbolize.Loaded
	follow  *attach.LoadedCode // nil if that is not possible
	modules map[string]uint64  // where they end
	vdso    []byte
}

// ReadSymbols reads the symbols, which takes a tenth of a second. Without them frames stay unnamed;
// that is no reason not to profile. Programs that are loaded from now on are followed, closely
// until ctx ends, as the agent loads many itself.
func ReadSymbols(ctx context.Context, root proc.Root) (s Symbols) {
	var err error
	s.loaded = new(symbolize.Loaded)
	if s.follow, err = attach.FollowLoadedCode(s.loaded); err != nil {
		s.Hints = append(s.Hints, "BPF programs that are loaded from now on have no names: "+err.Error())
	} else {
		go s.follow.DrainUntil(ctx)
	}
	s.modules = readModules(root)
	if s.kernel, err = readKernel(root, s.modules, s.loaded); err != nil {
		s.Hints = append(s.Hints, "kernel functions have no names: "+err.Error())
	}
	attach.SizeLoadedCode(s.loaded)
	s.vdso = root.ReadVDSO()
	return s
}

// Close gives back what symbols that no resolver uses have open.
func (s Symbols) Close() {
	if s.follow != nil {
		s.follow.Close()
	}
}

func readKernel(root proc.Root, modules map[string]uint64, loaded *symbolize.Loaded) (*symbolize.Kernel, error) {
	f, err := os.Open(string(root) + "/kallsyms")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return symbolize.ReadKallsyms(bufio.NewReaderSize(f, 1<<16), modules, loaded)
}

// readModules returns where modules of the kernel end; none if that cannot be read, as in a kernel
// without modules.
func readModules(root proc.Root) map[string]uint64 {
	f, err := os.Open(string(root) + "/modules")
	if err != nil {
		return nil
	}
	defer f.Close()
	ends, _ := symbolize.ReadModules(f)
	return ends
}

// LoadedLost is how many records of BPF programs that were loaded or unloaded were lost.
func (rs *Resolver) LoadedLost() uint64 {
	if rs.loads == nil {
		return 0
	}
	return rs.loads.Lost()
}

// RefreshKernel takes the names of BPF programs, and of modules, that were loaded or unloaded
// meanwhile. One goroutine may call it.
func (rs *Resolver) RefreshKernel() error {
	if rs.loads != nil {
		if err := rs.loads.Drain(); err != nil {
			return err
		}
	}
	modules := readModules(rs.root)
	if maps.Equal(modules, rs.modules) || rs.kernel.Load() == nil {
		return nil
	}
	rs.modules = modules
	kernel, err := readKernel(rs.root, modules, new(symbolize.Loaded))
	if err != nil {
		return fmt.Errorf("read the names of modules: %w", err)
	}
	rs.kernel.Store(kernel.With(rs.loaded))
	return nil
}

// FindKernel returns where functions of the kernel are, by name. It omits those that there are not,
// or that may not be seen.
func (s Symbols) FindKernel(names ...string) map[string]bpf.CodeRange {
	found := map[string]bpf.CodeRange{}
	for name, r := range s.kernel.Find(names...) {
		found[name] = bpf.CodeRange{Start: r[0], End: r[1]}
	}
	return found
}

// UseSymbols has frames named by these symbols. It must be called before Start.
func (rs *Resolver) UseSymbols(s Symbols) {
	rs.loaded, rs.loads, rs.modules, rs.vdso = s.loaded, s.follow, s.modules, s.vdso
	rs.kernel.Store(s.kernel)
}

// KernelFunction returns the name of the function of the kernel that an address is in; "" if it is
// not known.
func (rs *Resolver) KernelFunction(pc uint64) string {
	name, _, _ := rs.kernel.Load().Lookup(pc)
	return name
}

func (rs *Resolver) nameKernel(pc uint64) Name {
	s, known := rs.kernel.Load().Symbol(pc)
	if !known && rs.loads != nil && rs.loads.Drain() == nil {
		s, known = rs.kernel.Load().Symbol(pc) // it was loaded a moment ago
	}
	return Name{Symbols: []symbol.Symbol{s}, Unknown: !known}
}

// nameNative names code of p that is no VM's of which we know more.
func (rs *Resolver) nameNative(p *Process, r Wanted) Name {
	pc := r.Frame.PC()
	if r.Kind == RawReturn {
		pc-- // into the call, which may be the last instruction of its function
	}
	m := p.work.maps.Find(pc)
	if m == nil && !rs.readMaps(p) {
		p.work.mapsOld = true
	} else if m == nil {
		if m = p.work.maps.Find(pc); p.work.vm == nil && rs.FindLibrary(p.work.maps) != nil {
			rs.queue.submit(p) // a VM appeared under another name than java
		}
	}
	if mayBeJIT(m) {
		if n, ok := rs.nameJIT(p, pc, r); ok {
			return n
		}
	}
	if m == nil {
		f := symbol.Frame{
			Function: symbol.Unknown, SystemName: symbol.Unknown, Kind: symbol.KindUnknown, Address: pc,
			Mapping: unmapped,
		}
		return Name{Symbols: []symbol.Symbol{symbol.Intern(f)}, Unknown: true}
	}
	o, at := rs.object(p, m), symbol.Mapping{File: m.Path, Start: m.Start, Limit: m.Limit, Offset: m.Offset}
	if frames := rs.nameLines(p, m, o, at, pc); len(frames) > 0 {
		n := Name{asOf: p.work.asOf}
		for _, f := range frames {
			n.Symbols = append(n.Symbols, symbol.Intern(f))
		}
		return n
	}
	f := o.Frame(at, pc)
	return Name{Symbols: []symbol.Symbol{symbol.Intern(f)}, Unknown: symbol.IsUnknown(f.Function),
		bottom: o.EndsThread(at, pc), asOf: p.work.asOf}
}

var unmapped = unique.Make(symbol.Mapping{File: "[unmapped]"})

// object returns the symbols of the file behind m, nil if there are none. It is kept while the
// worker has p.
func (rs *Resolver) object(p *Process, m *proc.Mapping) *symbolize.Object {
	if o, ok := p.work.objects[m.Start]; ok {
		return o
	}
	var o *symbolize.Object
	var err error
	switch {
	case m.Path == vdso && rs.vdso != nil:
		o, err = rs.files.GetBytes(symbolize.FileKey{BuildID: vdso}, rs.vdso)
	case m.IsFile():
		key, known := p.work.files[m.Start]
		if known {
			if cached, ok, cachedErr := rs.files.Known(key); ok {
				o, err = cached, cachedErr
				break
			}
		}
		id := fileID{m.Dev, m.Inode}
		again := p.work.refused[id] // as another part of the file, or before
		o, err = Call(rs, p, func() (*symbolize.Object, error) {
			return rs.openObject(p.PID, m, key, known, again)
		})
		switch {
		case !proc.Refused(err): // openObject counts that: others may have waited for the file with this process
			rs.reads.count(err)
		case again:
			p.work.objects[m.Start] = nil
			return nil
		default:
			p.work.refuse(id)
		}
		if proc.HeldUp(err) {
			p.work.heldUp = true
			return nil // for this frame, not for those after it
		}
	}
	if err != nil {
		o = nil
		rs.log.Debug("no symbols", "pid", p.PID, "file", m.Path, "err", err)
	}
	p.work.objects[m.Start] = o
	return o
}

// A fileID is a file that a process maps.
type fileID struct{ dev, inode uint64 }

// maxRefused bounds the files of a process that are known to be refused.
const maxRefused = 1024

// refuse notes that a file is refused, and reports whether that is new. A process that maps very
// many of them is counted anew.
func (w *workerState) refuse(file fileID) (first bool) {
	if w.refused == nil || len(w.refused) >= maxRefused {
		w.refused = map[fileID]bool{}
	}
	first = !w.refused[file]
	w.refused[file] = true
	return first
}

// openObject returns the symbols of the file behind m, a mapping of pid, which must still run
// unless the file's key is known and its symbols are in the cache. again says that the file has
// been refused, and counted.
func (rs *Resolver) openObject(
	pid int, m *proc.Mapping, key symbolize.FileKey, known, again bool,
) (*symbolize.Object, error) {
	open := func() (*os.File, error) {
		f, err := rs.root.OpenMapped(pid, m, maxExecutable)
		if !again {
			rs.reads.refusal(err)
		}
		return f, err
	}
	if !known {
		f, err := open()
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if key, err = openKey(f); err != nil {
			return nil, err
		}
	}
	return rs.files.GetWithDebug(key, open, symbolize.DebugFiles{Path: m.Path,
		Open: func(path string) []*os.File { return rs.openDebugFile(pid, path) }})
}

// openDebugFile opens the debug files with that path, of which there may be none.
func (rs *Resolver) openDebugFile(pid int, path string) []*os.File {
	var files []*os.File
	f, err := rs.root.OpenFile(pid, path, maxDebugFile)
	if err == nil {
		files = append(files, f)
	}
	if isInstalled(path) {
		f, publicErr := rs.root.OpenPublic(path, maxDebugFile)
		if publicErr == nil {
			files = append(files, f)
		}
		if !proc.Refused(err) { // else it may be the same file
			err = publicErr
		}
	}
	rs.reads.refusal(err)
	return files
}

// isInstalled reports whether a debug file is where distributions install them: only there it is
// also looked for in the agent's root. The process chooses other directories, which may lead to
// anything, as to a file system that is mounted when somebody looks at it.
func isInstalled(path string) bool { return strings.HasPrefix(path, symbolize.DebugDirectory+"/") }

// maxDebugFile bounds a file with debug information. Only its symbols are read.
const maxDebugFile = 4 << 30

// fileKeys looks at the mapped files of a process. Those that the kernel does not let it see are
// looked at when they are opened.
func fileKeys(root proc.Root, pid int, maps proc.Maps) map[uint64]symbolize.FileKey {
	keys := map[uint64]symbolize.FileKey{}
	for i := range maps {
		if m := &maps[i]; m.IsFile() {
			if st, err := root.StatMapped(pid, m); err == nil {
				keys[m.Start] = fileKey(&st)
			}
		}
	}
	return keys
}

func openKey(f *os.File) (symbolize.FileKey, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return symbolize.FileKey{}, fmt.Errorf("look at %s: %w", f.Name(), err)
	}
	return fileKey(&st), nil
}

// fileKey distinguishes a file from those that had its inode before, and from itself before it was
// rewritten.
func fileKey(st *unix.Stat_t) symbolize.FileKey {
	return symbolize.FileKey{Device: st.Dev, Inode: st.Ino, Size: st.Size, ModTime: st.Mtim.Nano()}
}
