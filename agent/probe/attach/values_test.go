package attach

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/valueprobe"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
)

func parseSpec(t *testing.T, text string) valueprobe.Spec {
	t.Helper()
	spec, err := valueprobe.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func TestProbedValues(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("register offsets are those of amd64")
	}
	reg := func(offset uint8, size int8) bpf.ValueOperand {
		return bpf.ValueOperand{Kind: bpf.OperandRegister, Reg: offset, Size: size}
	}
	note := probesite.Site{Args: elffile.ParseOperands(elf.EM_X86_64,
		"-4@%ecx 8@-8(%rbp) 2@16(,%r9,4) -8@8(%rax,%rbx,8) 1@$7 8@x(%rip) 8@%rdi")}
	const rdi, rsi, rdx = 112, 104, 96
	for _, test := range []struct {
		spec string
		site probesite.Site
		want []bpf.ProbedValue
		err  string
	}{
		{spec: "usdt:p:n=arg1,arg2,arg3,arg4,arg5", site: note, want: []bpf.ProbedValue{
			{Base: reg(88, -4), Size: -4},
			{Base: bpf.ValueOperand{Kind: bpf.OperandMemory, Reg: 32, Displacement: -8, Size: 8}, Size: 8},
			{Base: bpf.ValueOperand{Kind: bpf.OperandMemory, Absolute: 1, Index: 64, Scale: 4, Displacement: 16,
				Size: 2}, Size: 2},
			{Base: bpf.ValueOperand{Kind: bpf.OperandMemory, Reg: 80, Index: 40, Scale: 8, Displacement: 8, Size: -8},
				Size: -8},
			{Base: bpf.ValueOperand{Kind: bpf.OperandConstant, Displacement: 7, Size: 1}, Size: 1},
		}},
		{spec: "usdt:p:n=arg1:u64,arg1@8,arg7@8,arg7@-8@4:s16,arg7+3", site: note, want: []bpf.ProbedValue{
			{Base: reg(88, -4), Size: 8},
			{Base: reg(88, -4), Followed: 1, Offsets: [2]int32{8}, Size: 8},
			{Base: reg(rdi, 8), Followed: 1, Offsets: [2]int32{8}, Size: 8},
			{Base: reg(rdi, 8), Followed: 2, Offsets: [2]int32{-8, 4}, Size: -2},
			{Base: reg(rdi, 8), Offset: 3, Size: 8},
		}},
		{spec: "usdt:p:n=arg7:str:arg1,arg1,arg7@8:str:16,rsi:klass", site: note, want: []bpf.ProbedValue{
			{Base: reg(rdi, 8), Size: 8, Form: bpf.ValueText, Share: 3, Length: reg(88, -4)},
			{Base: reg(88, -4), Size: -4},
			{Base: reg(rdi, 8), Followed: 1, Offsets: [2]int32{8}, Size: 8, Form: bpf.ValueText, Share: 2,
				Length: bpf.ValueOperand{Kind: bpf.OperandConstant, Displacement: 16, Size: 8}},
			{Base: reg(rsi, 8), Size: 8, Form: bpf.ValueKlass, Share: 1},
		}},
		{spec: "func:f=arg1,arg3:symbol", want: []bpf.ProbedValue{
			{Base: reg(rdi, 8), Size: 8}, {Base: reg(rdx, 8), Size: 8, Form: bpf.ValueSymbol, Share: 1}}},
		{spec: "func:f", want: nil},
		{spec: "func:f.isra.0=arg1", site: probesite.Site{Function: "f.isra.0", Clone: "isra"},
			want: []bpf.ProbedValue{{Base: reg(rdi, 8), Size: 8}}},
		{spec: "func:f=rdi", site: probesite.Site{Function: "f.isra.0", Clone: "isra"},
			want: []bpf.ProbedValue{{Base: reg(rdi, 8), Size: 8}}},
		{spec: "func:f=arg1", site: probesite.Site{Function: "f.isra.0", Clone: "isra"}, err: "f.isra.0"},
		{spec: "func:f=arg7", err: "through the stack pointer"},
		{spec: "usdt:p:n=arg8", site: note, err: "has 7 operands"},
		{spec: "usdt:p:n=arg1:str:arg8", site: note, err: "has 7 operands"},
		{spec: "usdt:p:n=arg6", site: note, err: "form is not supported"},
		{spec: "usdt:p:n=x0", site: note, err: "this machine has no register x0"},
	} {
		got, err := probedValues(parseSpec(t, test.spec), test.site)
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: error %v, want one with %q", test.spec, err, test.err)
			}
			continue
		}
		if err != nil || !slices.Equal(got.Values[:got.Count], test.want) {
			t.Errorf("%s: %+v, %v\nwant %+v", test.spec, got.Values[:got.Count], err, test.want)
		}
	}
}

// The kernel side has room for everything that a user may request.
func TestValueBounds(t *testing.T) {
	if valueprobe.MaxValues != bpf.MaxObservedValues || valueprobe.MaxFollowed != bpf.MaxFollowed {
		t.Errorf("%d values, %d pointers; the kernel side has %d, %d", valueprobe.MaxValues, valueprobe.MaxFollowed,
			bpf.MaxObservedValues, bpf.MaxFollowed)
	}
	if _, err := valueprobe.Parse(fmt.Sprintf("func:f=arg1:str:%d", bpf.MaxObservedText)); err != nil {
		t.Error(err)
	}
	if _, err := valueprobe.Parse(fmt.Sprintf("func:f=arg1:str:%d", bpf.MaxObservedText+1)); err == nil {
		t.Error("more text than there is room for")
	}
}

func TestReadings(t *testing.T) {
	k := bpf.ProbedValues{Count: 5}
	k.Values[0].Size, k.Values[1].Size, k.Values[2].Form, k.Values[3].Form = -4, 4, bpf.ValueText, bpf.ValueClass
	site := ValueSite{values: kindsOf(&k)}
	seen := bpf.ProbeObservation{Count: 5, Failed: 1 << 4, Cut: 1 << 3,
		Values: [8]uint64{^uint64(0), 7, 3, 3<<32 | 2, 9}}
	got := site.Readings(&bpf.Observation{Seen: &seen, Text: []byte("abcde")})
	want := []valueprobe.Reading{
		{Number: ^uint64(0), Signed: true}, {Number: 7}, {IsText: true, Text: "abc"},
		{IsText: true, Text: "de", Cut: true}, {Failed: true},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	seen.Count = 1 // less than were asked for
	if got := site.Readings(&bpf.Observation{Seen: &seen}); !got[1].Failed || !got[2].Failed || got[0].Failed {
		t.Errorf("of one value: %+v", got)
	}
}

func TestExplainSemaphore(t *testing.T) {
	mismatch := fmt.Errorf("create link: %w", unix.EINVAL)
	for _, test := range []struct {
		err       error
		semaphore uint64
		explained bool
	}{{mismatch, 8, true}, {mismatch, 0, false}, {unix.EPERM, 8, false}} {
		got := explainSemaphore(test.err, []Site{{}, {RefCtrOffset: test.semaphore}}).Error()
		if strings.Contains(got, "end that tool") != test.explained {
			t.Errorf("%v with semaphore %d: %s", test.err, test.semaphore, got)
		}
	}
}

var testLimits = MappedLimits{Files: 1024, Size: 2 << 30}

// The files of this process: its program is among them, once, though its code is mapped twice.
func TestMappedFiles(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	again, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(again)
	found := 0
	unread, err := MappedFiles(proc.DefaultRoot, os.Getpid(), testLimits, func(m *MappedFile) error {
		if m.Path == self {
			found++
		}
		if n, err := m.File.ReadAt(make([]byte, 4), 0); n != 4 || err != nil || m.ELF == nil {
			t.Errorf("%s: %d bytes, %v, %v", m.Path, n, err, m.ELF)
		}
		return nil
	})
	if found != 1 || err != nil || len(unread) > 0 {
		t.Errorf("found %d times, %v; could not read %q", found, err, unread)
	}
	stop := fmt.Errorf("enough")
	if _, err := MappedFiles(proc.DefaultRoot, os.Getpid(), testLimits,
		func(*MappedFile) error { return stop }); err != stop {
		t.Errorf("error %v, want %v", err, stop)
	}
	visited := 0
	visit := func(*MappedFile) error { visited++; return nil }
	if unread, err := MappedFiles(proc.DefaultRoot, os.Getpid(), MappedLimits{Files: 1024}, visit); err != nil ||
		visited > 0 || len(unread) == 0 {
		t.Errorf("of files above the limit of their size %d are visited, %d are unread: %v", visited, len(unread), err)
	}
	if _, err := MappedFiles(proc.DefaultRoot, os.Getpid(), MappedLimits{Size: 2 << 30}, visit); !errors.Is(err,
		proc.ErrTooLarge) || visited > 0 {
		t.Errorf("of more files than the limit %d are visited: %v", visited, err)
	}
}
