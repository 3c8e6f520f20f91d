package attach

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/contrib/guest"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

const (
	leafRounds = 1000 // calls of each function of testdata/leafs.c, for each line that it reads
	leafs      = 7    // functions
)

// A leafProgram is testdata/leafs.c, running.
type leafProgram struct {
	t      *testing.T
	pid    int
	in     io.Writer
	out    *bufio.Scanner
	probed string // the file with the functions
}

// startLeafs builds the functions with a compiler and its flags, as a part of the program or as a
// stripped library, and starts it.
func startLeafs(t *testing.T, library bool, compiler string, flags ...string) *leafProgram {
	t.Helper()
	if _, err := exec.LookPath(compiler); err != nil {
		needs.Missing(t, "no "+compiler+": install gcc and clang-19")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "vmprof.h"), []byte(guest.Header), 0o644); err != nil {
		t.Fatal(err)
	}
	build := func(args ...string) {
		args = append(args, "-I", dir, "-pthread")
		if text, err := exec.CommandContext(t.Context(), compiler, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %s: %v\n%s", compiler, strings.Join(args, " "), err, text)
		}
	}
	p := &leafProgram{t: t, probed: filepath.Join(dir, "leafs.o")}
	program := filepath.Join(dir, "program")
	if library {
		p.probed = filepath.Join(dir, "libleafs.so")
		build(append(flags, "-shared", "-fPIC", "-s", "-o", p.probed, "testdata/leafs.c")...)
	} else {
		build(append(flags, "-c", "-o", p.probed, "testdata/leafs.c")...)
	}
	build("-Wl,-rpath,"+dir, "-Wl,--export-dynamic", "-o", program, "testdata/leafsmain.c", p.probed)
	if !library {
		p.probed = program
	}
	command := exec.CommandContext(t.Context(), program)
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); command.Wait() })
	p.pid, p.in, p.out = command.Process.Pid, in, bufio.NewScanner(out)
	return p
}

// wrong calls every function, and returns how many results were wrong.
func (p *leafProgram) wrong() (n int) {
	p.t.Helper()
	fmt.Fprintln(p.in)
	if !p.out.Scan() {
		p.t.Fatalf("the program ended: %v", p.out.Err())
	}
	if _, err := fmt.Sscan(p.out.Text(), &n); err != nil {
		p.t.Fatal(err)
	}
	return n
}

// attach attaches a program that counts hits to all probes whose name begins with prefix. trusted
// marks their sites as OwnsStack.
func (p *leafProgram) attach(prefix string, trusted bool) (hits func() uint64, err error) {
	p.t.Helper()
	file, err := os.Open(p.probed)
	if err != nil {
		p.t.Fatal(err)
	}
	defer file.Close()
	lib, err := elffile.OpenFile(file)
	if err != nil {
		p.t.Fatal(err)
	}
	probes, err := lib.Probes()
	if err != nil {
		p.t.Fatal(err)
	}
	var sites []Site
	for _, probe := range probes {
		if strings.HasPrefix(probe.Name, prefix) {
			sites = append(sites, Site{Offset: probe.Offset, OwnsStack: trusted})
		}
	}
	if len(sites) == 0 {
		p.t.Fatalf("%s has no probe %s", p.probed, prefix)
	}
	u := NewUprobes()
	program, hits := countHits(p.t, u.Multi())
	links, err := u.Attach(file, p.pid, program, sites)
	p.t.Cleanup(func() { CloseLinks(links) })
	return hits, err
}

// countHits loads a program that counts how often it runs.
func countHits(t *testing.T, multi bool) (*ebpf.Program, func() uint64) {
	t.Helper()
	counter, err := ebpf.NewMap(&ebpf.MapSpec{Name: "hits", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { counter.Close() })
	spec := &ebpf.ProgramSpec{Name: "count_hits", Type: ebpf.Kprobe, License: "GPL", Instructions: countRuns(counter)}
	if multi {
		spec.AttachType = ebpf.AttachTraceUprobeMulti
	}
	program, err := ebpf.NewProgram(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return program, func() (hits uint64) {
		if err := counter.Lookup(uint32(0), &hits); err != nil {
			t.Fatal(err)
		}
		return hits
	}
}

const nop5Bytes = `-DLONG_NOP=".byte 0x0f, 0x1f, 0x44, 0, 0"`

// Probes of vmprof.h in functions that call nothing, whose variables are in the red zone: results
// are the same with probes on every macro and without, for any compiler output.
func TestProbeRedZone(t *testing.T) {
	needs.Root(t, "attaching to probes")
	for _, compiler := range []string{"gcc", "clang-19"} {
		for _, level := range []string{"-O0", "-O1", "-O2", "-O3"} {
			t.Run(compiler+level, func(t *testing.T) {
				p := startLeafs(t, false, compiler, level)
				if n := p.wrong(); n != 0 {
					t.Fatalf("%d results are wrong without probes", n)
				}
				hits, err := p.attach("", false)
				if err != nil {
					t.Fatal(err)
				}
				if n := p.wrong(); n != 0 {
					t.Errorf("%d of %d results are wrong with probes", n, leafs*leafRounds)
				}
				if n := hits(); n != leafs*leafRounds {
					t.Errorf("%d hits, want %d", n, leafs*leafRounds)
				}
			})
		}
	}
}

// NOPs of five bytes that other tools placed. In a function that calls nothing they are refused, in
// the program and in a stripped library. In one that calls, even if only in a branch that is never
// taken, they are probed, and do no harm.
func TestProbeRedZoneOfOthers(t *testing.T) {
	needs.Root(t, "attaching to probes")
	if runtime.GOARCH != "amd64" {
		t.Skip("other machines have one NOP")
	}
	if !ReplacesNops() {
		t.Skip("needs a kernel that replaces NOPs of five bytes: 6.18")
	}
	for _, compiler := range []string{"gcc", "clang-19"} {
		for _, library := range []bool{false, true} {
			for _, level := range []string{"-O0", "-O2"} {
				t.Run(fmt.Sprintf("%s%s library=%v", compiler, level, library), func(t *testing.T) {
					p := startLeafs(t, library, compiler, level, nop5Bytes)
					_, err := p.attach("leaf", false)
					if !errors.Is(err, probesite.ErrRedZone) || !strings.Contains(err.Error(), "one-byte nop") {
						t.Errorf("leafs: %v", err)
					}
					hits, err := p.attach("calls", false)
					if err != nil {
						t.Fatal(err)
					}
					if n := p.wrong(); n != 0 || hits() != leafRounds {
						t.Errorf("%d results are wrong with a probe in a function that calls, which was hit %d times",
							n, hits())
					}
				})
			}
		}
	}
	// Every instruction that the kernel replaces is refused, whatever its form. The test also
	// checks that there is harm without the refusal; otherwise none of these tests could fail.
	for _, form := range []string{"0f 1f 44 00 00", "66 0f 1f 40 00", "66 66 66 66 90", "48 8d 64 24 00",
		"e9 00 00 00 00",
		"66 2e 0f 1f 84 00 00 00 00 00", "90"} {
		t.Run(form, func(t *testing.T) {
			p := startLeafs(t, false, "gcc", "-O2", `-DLONG_NOP=".byte 0x`+strings.ReplaceAll(form, " ", ", 0x")+`"`)
			_, refused := p.attach("leaf", false)
			if _, err := p.attach("leaf", true); err != nil {
				t.Logf("the kernel refuses it: %v", err)
				return
			}
			n := p.wrong()
			t.Logf("%d of %d results are wrong if such probes are not refused", n, 6*leafRounds)
			if n > 0 && !errors.Is(refused, probesite.ErrRedZone) {
				t.Errorf("%d results are wrong, and the agent says: %v", n, refused)
			}
			if form == "0f 1f 44 00 00" && n < leafRounds {
				t.Errorf("%d wrong results: the kernel does not overwrite the red zone as thought", n)
			}
			if form == "90" && (n > 0 || refused != nil) {
				t.Errorf("%d wrong results, refused: %v", n, refused)
			}
		})
	}
	t.Run("call in assembly", func(t *testing.T) {
		p := startLeafs(t, false, "gcc", "-O2", nop5Bytes, "-DINLINE_CALL")
		if _, err := p.attach("calls", false); !errors.Is(err, probesite.ErrRedZone) {
			t.Errorf("%v", err)
		}
	})
}

// The running kernel replaces NOPs of five bytes from 6.18 on; later kernels may differ.
func TestProbeReplacesNops(t *testing.T) {
	needs.Root(t, "attaching to probes")
	var major, minor int
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor)
	replaces := ReplacesNops()
	t.Logf("Linux %d.%d: %v", major, minor, replaces)
	if runtime.GOARCH == "amd64" && (major == 6 && minor < 16 && replaces || major == 6 && minor == 18 && !replaces) {
		t.Errorf("Linux %d.%d replaces NOPs: %v", major, minor, replaces)
	}
}

// The pages of probes and of their semaphores are in the page cache when Attach returns, though no
// process maps the file. The kernel itself reads the code of a mapped file; for a file mapped
// later, it would do so in that call of mmap.
func TestProbeWarmsPages(t *testing.T) {
	needs.Root(t, "attaching to probes")
	dir := onDisk(t)
	const code, counter, size = 40 << 12, 80 << 12, 120 << 12
	image := make([]byte, size)
	copy(image, elf.ELFMAG)
	image[elf.EI_CLASS], image[elf.EI_DATA], image[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1
	image[16], image[18], image[20] = byte(elf.ET_DYN), byte(elf.EM_X86_64), 1
	image[code] = 0x90
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, image, 0o644); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := unix.Fsync(int(file.Fd())); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_RANDOM); err != nil { // no reading ahead
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	if resident(t, file, size, code) || resident(t, file, size, counter) {
		t.Skip("the file system keeps pages that nobody needs")
	}
	u := NewUprobes()
	program, _ := countHits(t, u.Multi())
	links, err := u.Attach(file, 0, program,
		[]Site{{Offset: code, RefCtrOffset: counter}})
	if err != nil {
		t.Fatal(err)
	}
	defer CloseLinks(links)
	if !resident(t, file, size, code) || !resident(t, file, size, counter) {
		t.Errorf("in the page cache: code %v, semaphore %v", resident(t, file, size, code),
			resident(t, file, size, counter))
	}
}

// onDisk returns a directory that is not in memory only.
func onDisk(t *testing.T) string {
	t.Helper()
	const tmpfs = 0x01021994
	for _, parent := range []string{os.TempDir(), "/var/tmp", "."} {
		var st unix.Statfs_t
		if unix.Statfs(parent, &st) != nil || st.Type == tmpfs {
			continue
		}
		dir, err := os.MkdirTemp(parent, "pages-")
		if err == nil {
			t.Cleanup(func() { os.RemoveAll(dir) })
			return dir
		}
	}
	needs.Missing(t, "a directory on a disk")
	return ""
}

// resident reports whether the page at an offset of a file is in memory.
func resident(t *testing.T, file *os.File, size int, offset int) bool {
	t.Helper()
	mapped, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mapped)
	page := os.Getpagesize()
	pages := make([]byte, size/page)
	_, _, failed := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mapped[0])), uintptr(size),
		uintptr(unsafe.Pointer(&pages[0])))
	if failed != 0 {
		t.Fatal(failed)
	}
	return pages[offset/page]&1 != 0
}
