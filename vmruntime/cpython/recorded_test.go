package cpython

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/gob"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

var update = flag.Bool("update", false, "record guests anew, with the interpreters that PATH has")

// A recording is what was read of a guest's memory, with what its file taught, and what the guest
// itself said of its code objects.
type recording struct {
	Version           uint32
	Runtime, CodeType uint64 // addresses of the file
	Eval              [2]uint64
	Bias              uint64
	Pieces            []piece
	Truth             []truth
}

// A truth is what Python says of a code object.
type truth struct {
	Addr       uint64
	Name, File string
	First      int
	Lines      []int // of each instruction
}

type piece struct {
	Addr uint64
	Data []byte
}

// pieces is memory in pieces, which are in order.
type pieces []piece

var errUnmapped = errors.New("bad address")

func (m pieces) Read(addr uint64, p []byte) error {
	i, found := slices.BinarySearchFunc(m, addr, func(p piece, addr uint64) int { return cmp.Compare(p.Addr, addr) })
	if !found {
		i--
	}
	if i < 0 {
		return errUnmapped
	}
	offset := addr - m[i].Addr
	if offset > uint64(len(m[i].Data)) || uint64(len(p)) > uint64(len(m[i].Data))-offset {
		return errUnmapped
	}
	copy(p, m[i].Data[offset:])
	return nil
}

func (m pieces) ReadBatch(ranges []vmruntime.Range) error {
	for i := range ranges {
		ranges[i].OK = m.Read(ranges[i].Addr, ranges[i].Buf) == nil
	}
	return nil
}

// A recorder takes down what is read of a process that stands still.
type recorder struct {
	memory *os.File
	pieces []piece
}

func (r *recorder) Read(addr uint64, p []byte) error {
	if _, err := r.memory.ReadAt(p, int64(addr)); err != nil {
		return err
	}
	r.pieces = append(r.pieces, piece{addr, bytes.Clone(p)})
	return nil
}

func (r *recorder) ReadBatch(ranges []vmruntime.Range) error {
	for i := range ranges {
		ranges[i].OK = r.Read(ranges[i].Addr, ranges[i].Buf) == nil
	}
	return nil
}

// merged joins pieces that touch or overlap.
func (r *recorder) merged() (out pieces) {
	slices.SortStableFunc(r.pieces, func(a, b piece) int { return cmp.Compare(a.Addr, b.Addr) })
	for _, p := range r.pieces {
		n := len(out)
		if n == 0 || p.Addr > out[n-1].Addr+uint64(len(out[n-1].Data)) {
			out = append(out, piece{p.Addr, bytes.Clone(p.Data)})
			continue
		}
		last := &out[n-1]
		if known := last.Addr + uint64(len(last.Data)) - p.Addr; known < uint64(len(p.Data)) {
			last.Data = append(last.Data, p.Data[known:]...)
		}
	}
	return out
}

func (r *recording) image() *Image {
	return &Image{
		version: version(r.Version), runtime: r.Runtime, codeType: r.CodeType, evalLow: r.Eval[0], evalHigh: r.Eval[1],
	}
}

func (r *recording) attach(t testing.TB, memory vmruntime.Memory) *Process {
	t.Helper()
	p, err := r.image().Attach(vmruntime.Target{Memory: memory, Bias: r.Bias, Epoch: func() uint32 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	return p.(*Process)
}

var recorded = []string{"3.9", "3.10", "3.11", "3.12", "3.13"}

func recordingFile(v string) string { return filepath.Join("testdata", "python"+v+".gz") }

// TestRecorded names the code objects of recorded guests, and compares names and lines with what
// the guests said.
func TestRecorded(t *testing.T) {
	for _, v := range recorded {
		t.Run(v, func(t *testing.T) {
			if *update {
				record(t, v)
			}
			r := loadRecording(t, v)
			p := r.attach(t, pieces(r.Pieces))
			if got := p.Describe(); !strings.HasPrefix(got, "CPython "+v) {
				t.Errorf("the VM is %q, want CPython %s", got, v)
			}
			p.Prepare(r.sites())
			for _, want := range r.Truth {
				for index, line := range want.Lines {
					checkFrame(t, p, want, index, line)
				}
				checkFrame(t, p, want, -1, want.First)
			}
		})
	}
}

func checkFrame(t *testing.T, p *Process, want truth, index, line int) {
	t.Helper()
	frames, err := p.Lookup(vmruntime.Site{Kind: vmruntime.Interpreted, Method: want.Addr, BCI: int32(index)})
	if err != nil || len(frames) != 1 {
		t.Fatalf("%s: %v, %v", want.Name, frames, err)
	}
	got := frames[0]
	name := want.Name
	if len(name) > maxCharacters-100 {
		name = name[:maxCharacters-100]
	}
	if !strings.Contains(got.Function, name) || got.File != want.File || got.Line != line || got.BCI != index {
		t.Errorf("instruction %d: got %+v, want %s, %s:%d", index, got, want.Name, want.File, line)
	}
}

// sites are those of the first instructions of all code objects.
func (r *recording) sites() (sites []vmruntime.Site) {
	for _, o := range r.Truth {
		sites = append(sites, vmruntime.Site{Kind: vmruntime.Interpreted, Method: o.Addr})
	}
	return sites
}

func loadRecording(t testing.TB, v string) *recording {
	t.Helper()
	f, err := os.Open(recordingFile(v))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	r := new(recording)
	if err := gob.NewDecoder(z).Decode(r); err != nil {
		t.Fatal(err)
	}
	return r
}

// record runs the guest, reads it through a recorder, and writes down what was read.
func record(t *testing.T, v string) {
	source, err := os.ReadFile(filepath.Join("testdata", "guest.py"))
	if err != nil {
		t.Fatal(err)
	}
	guest := filepath.Join(t.TempDir(), "guest.py") // what is read has paths of the machine next to it
	if err := os.WriteFile(guest, source, 0o644); err != nil {
		t.Fatal(err)
	}
	python := exec.Command("python"+v, guest)
	python.Dir, python.Env, python.Stderr = "/", []string{"LANG=C.UTF-8"}, os.Stderr
	stdin, err := python.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := python.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := python.Start(); err != nil {
		t.Fatal(err)
	}
	defer python.Wait()
	defer stdin.Close()
	r := new(recording)
	text, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, stdout)
	if err := json.Unmarshal(text, &r.Truth); err != nil {
		t.Fatal(err)
	}
	image, bias := imageOf(t, python.Process.Pid)
	r.Version, r.Runtime, r.CodeType = uint32(image.version), image.runtime, image.codeType
	r.Eval, r.Bias = [2]uint64{image.evalLow, image.evalHigh}, bias
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", python.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	through := &recorder{memory: memory}
	p := r.attach(t, through)
	p.Prepare(r.sites())
	for i, site := range r.sites() {
		if _, err := p.Lookup(site); err != nil {
			t.Fatalf("%s: %v", r.Truth[i].Name, err)
		}
	}
	r.Pieces = through.merged()
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", python.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	home := []byte(filepath.Dir(filepath.Dir(exe)))
	for _, p := range r.Pieces {
		for len(home) > len("/usr") && bytes.Contains(p.Data, home) {
			copy(p.Data[bytes.Index(p.Data, home):], bytes.Repeat([]byte("x"), len(home)))
		}
	}
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err := gob.NewEncoder(z).Encode(r); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(recordingFile(v), b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// imageOf reads the interpreter of a process, which is in the executable or in a library.
func imageOf(t *testing.T, pid int) (*Image, uint64) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		var start, end, offset, inode uint64
		var mode, device, file string
		fmt.Sscanf(line, "%x-%x %s %x %s %d %s", &start, &end, &mode, &offset, &device, &inode, &file)
		if !strings.Contains(mode, "x") || !(Runtime{}).Recognise(file) {
			continue
		}
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		e, err := elffile.OpenFile(f)
		if err != nil {
			t.Fatal(err)
		}
		image, err := newImage(e)
		if image == nil && (err == nil || errors.Is(err, vmruntime.ErrStarting)) {
			continue // it loads a library that has the interpreter
		}
		if err != nil {
			t.Fatal(err)
		}
		bias, err := e.Bias(start, offset)
		if err != nil {
			t.Fatal(err)
		}
		return image, bias
	}
	t.Fatal("the process has no interpreter")
	return nil, 0
}
