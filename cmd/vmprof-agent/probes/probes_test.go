package probes

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"

	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// code has an instruction of each sort, 16 bytes apart.
var code = func() *bytes.Reader {
	b := bytes.Repeat([]byte{0xcc}, 80)
	b[0] = 0x90                                  // nop
	copy(b[16:], []byte{0x0f, 0x1f, 0x44, 0, 0}) // nop of five bytes
	copy(b[32:], []byte{0x48, 0x89, 0xc8})       // mov %rcx,%rax
	b[48] = 0xf4                                 // hlt
	copy(b[64:], []byte{0x1f, 0x20, 0x03, 0xd5}) // arm64: nop
	return bytes.NewReader(b)
}()

func TestInstructionAt(t *testing.T) {
	for _, test := range []struct {
		machine elf.Machine
		offset  uint64
		want    string
	}{
		{elf.EM_X86_64, 0, "nop"}, {elf.EM_X86_64, 16, "nop5"}, {elf.EM_X86_64, 32, "stepped"},
		{elf.EM_X86_64, 48, "refused by the kernel"},
		{elf.EM_AARCH64, 64, "nop"}, {elf.EM_AARCH64, 0, "stepped"}, {elf.EM_X86_64, 1 << 40, "refused by the kernel"},
	} {
		if got := instructionAt(code, test.machine, test.offset); got != test.want {
			t.Errorf("%v at %d: %s, want %s", test.machine, test.offset, got, test.want)
		}
	}
}

// offered is what hostile and other notes become.
func offered(filter string) *offer {
	probe := func(name string, offset, semaphore uint64, args string) elffile.Probe {
		return elffile.Probe{Provider: "demo", Name: name, Offset: offset, Semaphore: semaphore,
			Args: elffile.ParseOperands(elf.EM_X86_64, args)}
	}
	var o offer
	o.add("/usr/lib/libdemo.so", elf.EM_X86_64, code, []elffile.Probe{
		probe("two", 0, 0, "8@%rdi -4@-56(%rbp)"),
		probe("one", 16, 8, "8@(%rax,%rbx,8) 4@16(,%r9,4) -1@$-3 8@%xmm0 2@(%rip) 8@-8(%rax,%rbx,4) 8@%r11 8@%r12 "+
			"8@%r13"),
		probe("two", 32, 0, "8@%rsi -4@%eax"),
		probe("two", 32, 0, "8@%rsi -4@%eax"),
		probe("two", 32, 0, "8@%rdx"), probe("two", 32, 0, "8@%rcx"), probe("two", 32, 0, "8@%r8"),
		probe("none", 48, 0, ""),
	}, filter)
	o.add("/tmp/"+strings.Repeat("long/", 30)+"\x1b[2Jlib\n.so", elf.EM_X86_64, code, []elffile.Probe{
		probe("\x1b[31mred\u202e", 0, 0, ""), probe(strings.Repeat("n", 500), 0, 0, ""),
	}, filter)
	return &o
}

func TestProbeList(t *testing.T) {
	for filter, want := range map[string]string{
		"": `/usr/lib/libdemo.so
  demo:none  1 site, refused by the kernel
  demo:one   1 site, nop5, semaphore
    arg1 u64 [rax+rbx*8], arg2 u32 [r9*4+16], arg3 s8 =-3, arg4 ?, arg5 ?,
      arg6 u64 [rax+rbx*4-8], arg7 u64 r11, arg8 u64 r12, arg9 u64 r13
  demo:two   6 sites, nop, stepped
    arg1 u64 rdi, arg2 s32 [rbp-56]
    or arg1 u64 rsi, arg2 s32 rax
    or arg1 u64 rdx
      2 more sites

.../long/long/long/long/long/long/long/long/long/long/long/long/\x1b[2Jlib\n.so
  demo:\x1b[31mred\u202e                    1 site, nop
  demo:nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn...  1 site, nop

To record one of these:
  vmprof-agent record -e value --probe usdt:demo:one=arg1 -p 7
`,
		"none": `/usr/lib/libdemo.so
  demo:none  1 site, refused by the kernel

To record one of these:
  vmprof-agent record -e value --probe usdt:demo:none -p 7
`,
	} {
		var out bytes.Buffer
		if err := offered(filter).write(&out, 80, 7); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("filter %q:\n%s\nwant\n%s", filter, &out, want)
		}
		for line := range strings.Lines(out.String()) {
			if len(line) > 80 {
				t.Errorf("%d columns: %s", len(line)-1, line)
			}
		}
	}
	for filter, files := range map[string]int{"libdemo": 1, "demo:": 2, "nothing": 0} {
		if got := len(offered(filter).files); got != files {
			t.Errorf("filter %q: %d files, want %d", filter, got, files)
		}
	}
}

func TestProbesUsage(t *testing.T) {
	for line := range strings.Lines(probesUsage) {
		if len(line) > 80 {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
	for args, want := range map[string]string{
		"probes":               "-p needs",
		"probes -p 0":          "-p needs",
		"probes -p 1 a b":      "unexpected argument b",
		"probes -p 2147483647": "gone",
		fmt.Sprint("probes -p ", os.Getpid(), " nothing:at:all"): "remove the filter",
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &stdout, &stderr); code == 0 ||
			!strings.Contains(stderr.String(), want) || stdout.Len() > 0 {
			t.Errorf("%s: exit code %d, %s%s, want %q", args, code, &stdout, &stderr, want)
		}
	}
}

// TestLiveProbes lists those of a JVM.
func TestLiveProbes(t *testing.T) {
	for _, jdk := range needs.JDKs(t) {
		guest, err := guests.Start(t.Context(), jdk, guests.Programs()[0], guests.Flavour{})
		if err != nil {
			t.Fatal(err)
		}
		defer guest.Close()
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), []string{"probes", "-p", strconv.Itoa(guest.PID()), "hotspot:gc__"}, &stdout,
			&stderr); code != 0 || stderr.Len() > 0 {
			t.Fatalf("JDK %d: exit code %d: %s", jdk.Version, code, &stderr)
		}
		for _, want := range []string{"libjvm.so\n", "hotspot:gc__begin  ", " nop", "    arg1 u8 ",
			"--probe usdt:hotspot:gc__begin=arg1 -p "} {
			if !strings.Contains(stdout.String(), want) {
				t.Errorf("JDK %d: does not have %q:\n%s", jdk.Version, want, &stdout)
			}
		}
		if strings.Contains(stdout.String(), "compiled__method") {
			t.Errorf("JDK %d: what was filtered is there:\n%s", jdk.Version, &stdout)
		}
	}
}

// run is the verb as the user calls it, and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cli.Verb{Name: args[0], Run: Run}.Exit(ctx, args[1:], stdout, stderr)
}
