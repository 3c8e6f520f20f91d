package guests

import (
	"context"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/contrib/guest"
	"github.com/vmprof-agent/vmprof-agent/elffile"
)

var strict = []string{"-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread"}

// need skips a test if a tool is missing, or fails it where everything must be tested.
func need(t *testing.T, tool, remedy string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err == nil {
		return
	}
	if _, err := os.Stat(tool); err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("no %s: %s", tool, remedy)
	}
	t.Skipf("no %s: %s", tool, remedy)
}

// compileC compiles a file of testdata with vmprof.h, and returns the path of the output.
func compileC(t *testing.T, source string, command ...string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "vmprof.h"), []byte(guest.Header), 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	args := append(command[1:len(command):len(command)], strict...)
	args = append(args, "-I", dir, "-o", out, filepath.Join("testdata", source))
	if text, err := exec.CommandContext(t.Context(), command[0], args...).CombinedOutput(); err != nil {
		t.Fatalf("%v %v: %v\n%s", command[0], args, err, text)
	}
	return out
}

// The header is C and C++ without warnings, for both compilers, and its probes are at the locations
// in their notes.
func TestVMHeader(t *testing.T) {
	for _, compiler := range []string{
		"gcc -std=c11", "gcc -std=gnu17 -fno-pie -no-pie", "clang-19 -std=c11", "clang-19 -std=c11 -shared -fPIC",
		"g++ -x c++ -std=c++11", "g++ -x c++ -std=c++20", "clang++-19 -x c++ -std=c++11",
		"clang++-19 -x c++ -std=c++20",
	} {
		for _, level := range []string{"-O0", "-O2"} {
			t.Run(compiler+level, func(t *testing.T) {
				command := append(strings.Fields(compiler), level)
				need(t, command[0], "install gcc, g++ and clang-19")
				out := compileC(t, "probes.c", command...)
				checkProbes(t, out)
				if strings.Contains(compiler, "-shared") {
					return
				}
				run := exec.CommandContext(t.Context(), out)
				run.Env = append(os.Environ(), "VMPROF_SOCKET="+t.TempDir()+"/nobody")
				if text, err := run.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, text)
				}
			})
		}
	}
}

// checkProbes reads the probes of a file as the agent does.
func checkProbes(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	f, err := elffile.Open(file, int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	probes, err := f.Probes()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"call": 2, "thread": 1, "thread_end": 1, "one": 1, "two": 2, "three": 3, "four": 4,
		"five": 5, "six": 6}
	seen := map[string]bool{}
	for _, p := range probes {
		seen[p.Name] = true
		if p.Provider != "vmprof" || len(p.Args) != want[p.Name] || p.Semaphore != 0 {
			t.Errorf("probe %+v, want %d arguments", p, want[p.Name])
		}
		for _, a := range p.Args {
			if a.Kind != elffile.OperandReg && a.Kind != elffile.OperandConst || a.Size != 8 {
				t.Errorf("%s: argument %+v", p.Name, a)
			}
		}
		if f.Machine() == elf.EM_X86_64 {
			checkNop(t, probesite.New(f, file), p, data[p.Offset:])
		}
		if p.Name == "four" && (p.Args[2].Disp != 4 || p.Args[3].Disp != -4) {
			t.Errorf("constants %+v", p.Args)
		}
	}
	if len(seen) != len(want) {
		t.Errorf("probes %v, want %v", seen, want)
	}
}

// checkNop checks the instruction at a probe: the NOP of one byte, except in assembly that keeps
// nothing below the stack pointer.
func checkNop(t *testing.T, finder *probesite.Finder, p elffile.Probe, code []byte) {
	t.Helper()
	i, err := probesite.Decode(code)
	if err != nil {
		t.Fatal(err)
	}
	if p.Name != "call" {
		if i.Kind != probesite.Nop {
			t.Errorf("%s stands on a %v", p.Name, i.Kind)
		}
		return
	}
	if i.Kind != probesite.Nop5 {
		t.Errorf("%s stands on a %v", p.Name, i.Kind)
	}
	if p.Location%4096 > 4096-5 {
		t.Errorf("%s: %#x crosses a page", p.Name, p.Location)
	}
	if err := finder.OwnsStack(p.Location); err != nil {
		t.Errorf("%s: %v", p.Name, err)
	}
}

func TestVMHeaderARM64(t *testing.T) {
	const headers = "/usr/aarch64-linux-gnu/include"
	need(t, "clang-19", "install clang-19")
	need(t, headers, "install libc6-dev-arm64-cross")
	for _, source := range []string{"probes.c", "registers.c", "registration.c", "threads.c"} {
		compileC(t, source, "clang-19", "--target=aarch64-linux-gnu", "-nostdlibinc", "-isystem", headers, "-std=c11",
			"-O2", "-c")
	}
}

// The stub preserves the registers of compiled code, also while it samples, on stacks of any
// alignment.
func TestVMStub(t *testing.T) {
	const want = `armed 1 skip 1 left 2 lost 0
armed 1 skip 3 left 1 lost 0
armed 1 skip 2 left 1 lost 0
armed 1 skip 1 left 1 lost 0
armed 0 skip 3 left 0 lost 0
armed 0 skip 3 left 0 lost 0
`
	for _, compiler := range []string{"gcc", "clang-19"} {
		for _, level := range []string{"-O0", "-O3"} {
			t.Run(compiler+level, func(t *testing.T) {
				need(t, compiler, "install gcc and clang-19")
				out, err := exec.CommandContext(t.Context(), compileC(t, "registers.c", compiler, "-std=c11",
					level)).Output()
				if err != nil || string(out) != want {
					t.Errorf("%v, got\n%s", err, out)
				}
			})
		}
	}
}

// There are 60 slots; they are free again when threads end, whether these announce it or not.
func TestVMSlots(t *testing.T) {
	need(t, "gcc", "install gcc")
	const want = `60 with a slot, 4 without, 8 so far
60 with a slot, 4 without, 16 so far
60 with a slot, 4 without, 24 so far
`
	out, err := exec.CommandContext(t.Context(), compileC(t, "threads.c", "gcc", "-std=c11")).Output()
	if err != nil || string(out) != want {
		t.Errorf("%v, got\n%s", err, out)
	}
}

// Registrations that do not fit into one packet are sent in several, and those taken back before
// are not sent.
func TestVMRegistrationLimits(t *testing.T) {
	need(t, "gcc", "install gcc")
	l := listen(t)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), compileC(t, "registration.c", "gcc", "-std=c11"))
	cmd.Env = append(os.Environ(), "VMPROF_SOCKET="+l.path)
	orders, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		orders.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	p := l.connect(t)
	p.welcome(t)
	if p.runtime != "a name that is " {
		t.Errorf("runtime %q", p.runtime)
	}
	sent, _ := p.registered(t, 1, 0)
	if m := sent[0]; m.ID != 1 || m.Name != strings.Repeat("n", 1000) || m.File != "" || m.Line != 3 ||
		m.Size != 16384 {
		t.Errorf("method %+v", m)
	}
	orders.Write([]byte("\n"))
	methods, gone := p.registered(t, 2, 1)
	if len(methods) != 2 || len(gone) != 1 || gone[0].ID != 1 || gone[0].Begin != sent[0].Begin ||
		gone[0].Time <= sent[0].Time {
		t.Errorf("%d methods, forgot %+v", len(methods), gone)
	}
	for i, s := range methods[0].Sites {
		if s != (vmSite{uint32(8*i + 5), uint32(i)}) {
			t.Fatalf("site %d is %+v", i, s)
		}
	}
	if len(methods[0].Sites) != 2000 {
		t.Errorf("%d sites, want 2000", len(methods[0].Sites))
	}
	if m := methods[1]; m.ID != 3 || m.Begin != sent[0].Begin || len(m.Sites) != 1 {
		t.Errorf("method %+v", m)
	}
}
