package probesite

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

func TestEffect(t *testing.T) {
	for _, test := range []struct {
		name, code string
		want       effect
	}{
		{"endbr64", "f3 0f 1e fa", effect{}},
		{"test %eax,%eax", "85 c0", effect{}},
		{"cmpb $0,(%r12)", "41 80 3c 24 00", effect{}},
		{"mov %rsp,%rbp", "48 89 e5", effect{writes: set(elffile.RBP)}},
		{"mov %r8,%r9", "4d 89 c1", effect{writes: set(elffile.R9)}},
		{"mov %eax,%r12d", "41 89 c4", effect{writes: set(elffile.R12)}},
		{"mov %ax,%si", "66 89 c6", effect{writes: set(elffile.RSI)}},
		{"mov $1,%dil", "40 b7 01", effect{writes: set(elffile.RDI)}},
		{"mov $1,%dh", "b6 01", effect{writes: set(elffile.RDX)}},
		{"mov %rax,8(%rbx)", "48 89 43 08", effect{memory: true}},
		{"mov 8(%rbx),%rax", "48 8b 43 08", effect{writes: set(elffile.RAX)}},
		{"lea 0x40(%rdi),%rdx", "48 8d 57 40", effect{writes: set(elffile.RDX)}},
		{"sub $0x18,%rsp", "48 83 ec 18", effect{writes: set(elffile.RSP)}},
		{"pop %rbx", "5b", effect{writes: set(elffile.RBX, elffile.RSP)}},
		{"cltd", "99", effect{writes: set(elffile.RDX)}},
		{"imul %rcx", "48 f7 e9", effect{writes: set(elffile.RAX, elffile.RDX)}},
		{"imul %rcx,%rsi", "48 0f af f1", effect{writes: set(elffile.RSI)}},
		{"sete %cl", "0f 94 c1", effect{writes: set(elffile.RCX)}},
		{"sete (%rcx)", "0f 94 01", effect{memory: true}},
		{"cmove %rax,%rcx", "48 0f 44 c8", effect{writes: set(elffile.RCX)}},
		{"movss (%rdi),%xmm0", "f3 0f 10 07", effect{}},
		{"movaps %xmm0,(%rdi)", "0f 29 07", effect{memory: true}},
		{"movq %xmm0,%rax", "66 48 0f 7e c0", effect{writes: set(elffile.RAX)}},
		{"xchg %rdi,%rax", "48 97", anything},
		{"rep stos", "f3 48 ab", anything},
		{"div %rcx", "48 f7 f1", anything},
		{"call", "e8 00 00 00 00", anything},
		{"ret", "c3", anything},
		{"je", "74 00", anything},
		{"vmovd %edi,%xmm0", "c5 f9 6e c7", anything},
		{"nothing", "", anything},
	} {
		if got := effectOf(unhex(t, test.code)); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}
