package usdt

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile/elftest"
)

// A note describes one site of a probe in a file made for a test.
type note struct {
	provider, name, args string
	location, semaphore  uint64
}

// entry is php:function__entry as Debian's PHP 8.2 has it.
var entry = note{"php", "function__entry", "8@%rax 8@%r14 -4@%r13d 8@(%rsp) 8@16(%rsp)", 0x1010, 0x3002}

// phpFile makes a file with these notes: code at 0x1000, data at 0x3000.
func phpFile(version string, symbols []string, notes ...note) []byte {
	var section []byte
	for _, n := range notes {
		desc := binary.LittleEndian.AppendUint64(nil, n.location)
		desc = binary.LittleEndian.AppendUint64(desc, 0)
		desc = binary.LittleEndian.AppendUint64(desc, n.semaphore)
		desc = append(desc, n.provider+"\x00"+n.name+"\x00"+n.args+"\x00"...)
		section = binary.LittleEndian.AppendUint32(section, 8)
		section = binary.LittleEndian.AppendUint32(section, uint32(len(desc)))
		section = binary.LittleEndian.AppendUint32(section, 3)
		section = append(section, "stapsdt\x00"...)
		section = append(section, desc...)
		for len(section)%4 != 0 {
			section = append(section, 0)
		}
	}
	var table []elftest.Symbol
	for i, name := range symbols {
		table = append(table, elftest.Symbol{Name: name, Value: 0x3100 + 8*uint64(i), Size: 8, Type: elf.STT_OBJECT})
	}
	image := elftest.Image{
		Machine:  elf.EM_X86_64,
		Segments: []elf.Prog64{elftest.Code(0x1000, 0x1000, 0x100), elftest.Data(0x2000, 0x3000, 0x100, 0x1000)},
		Sections: append(elftest.Symbols(elf.SHT_DYNSYM, table...),
			elftest.Section{Name: ".text", Header: elf.Section64{Type: uint32(elf.SHT_NOBITS),
				Flags: uint64(elf.SHF_ALLOC | elf.SHF_EXECINSTR), Addr: 0x1000, Size: 0x100}},
			elftest.Section{Name: ".rodata", Data: []byte("\x00" + version + "\x00"),
				Header: elf.Section64{Type: uint32(elf.SHT_PROGBITS)}},
			elftest.Section{Name: ".note.stapsdt", Data: section, Header: elf.Section64{Type: uint32(elf.SHT_NOTE)}},
		),
		Pad: 0x2200,
	}
	return image.Bytes()
}

const php82 = "X-Powered-By: PHP/8.2.35"

var allSymbols = []string{"executor_globals", "zend_execute_ex", "execute_ex"}

func TestReadBuild(t *testing.T) {
	other := func(change func(*note)) note { n := entry; change(&n); return n }
	for _, test := range []struct {
		name string
		file []byte
		want string // part of the error; "" for none
	}{
		{"Debian", phpFile(php82, allSymbols, entry), ""},
		{"two sites", phpFile(php82, allSymbols, entry, other(func(n *note) { n.location += 8 })), ""},
		{"other probes", phpFile(php82, allSymbols,
			other(func(n *note) { n.name = "function__return"; n.semaphore = 0x3000 }), entry), ""},
		{"no zend_execute_ex", phpFile(php82, allSymbols[:1], entry), ""},
		{"no probes", phpFile(php82, allSymbols), errNoProbes.Error()},
		{"Ruby", phpFile(php82, allSymbols, other(func(n *note) { n.provider = "ruby"; n.name = "cmethod__entry" })),
			errNoProbes.Error()},
		{"ZTS", phpFile(php82, []string{"executor_globals_offset"}, entry), errZTS.Error()},
		{"no version", phpFile("", allSymbols, entry), errNoVersion.Error()},
		{"unknown version", phpFile("X-Powered-By: PHP/9.1.0", allSymbols, entry), "PHP 9.1.0"},
		{"no semaphore", phpFile(php82, allSymbols, other(func(n *note) { n.semaphore = 0 })), errNote.Error()},
		{"odd semaphore", phpFile(php82, allSymbols, other(func(n *note) { n.semaphore = 0x3003 })), errNote.Error()},
		{"two semaphores", phpFile(php82, allSymbols, entry, other(func(n *note) { n.semaphore = 0x3004 })),
			errNote.Error()},
		{"semaphore outside of the file", phpFile(php82, allSymbols, other(func(n *note) { n.semaphore = 0x9000 })),
			errNoProbes.Error()},
		{"few arguments", phpFile(php82, allSymbols, other(func(n *note) { n.args = "8@%rax" })), errNote.Error()},
		{"strange argument", phpFile(php82, allSymbols,
			other(func(n *note) { n.args = "8@name(%rip) 8@%r14 -4@%r13d 8@(%rsp)" })), "argument 1"},
		{"not ELF", []byte(strings.Repeat(php82, 10)), "not an ELF"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b, err := readBuild(bytes.NewReader(test.file), int64(len(test.file)), 0)
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Fatalf("error %v, want %q", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if b.php.version != (Version{8, 2, 35}) || b.sites[0].semaphore != 0x2002 ||
				b.php.executorGlobals != 0x3100 {
				t.Errorf("read %+v", b)
			}
			p := b.sites[0].probe
			if p.Dialect != bpf.USDTPHP || p.Filename != 152 || p.Opcodes != 88 || p.Name.Kind != bpf.OperandRegister ||
				p.ClassName.Kind != bpf.OperandMemory {
				t.Errorf("probe %+v", p)
			}
		})
	}
}

func TestIsInterpreter(t *testing.T) {
	for path, want := range map[string]bool{
		"/usr/bin/php8.2":                              true,
		"/usr/sbin/php-fpm8.2":                         true,
		"/usr/lib/apache2/modules/libphp8.2.so":        true,
		"/usr/bin/ruby3.1":                             true,
		"/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1": true,
		"/usr/bin/python3.11":                          true,
		"/home/python/program":                         false,
		"/usr/lib/php/20220829/opcache.so":             false,
		"/usr/lib/x86_64-linux-gnu/libphobos2.so":      false,
	} {
		if m := (proc.Mapping{Path: path, Inode: 1, Exec: true}); isInterpreter(&m) != want {
			t.Errorf("%s: %v", path, !want)
		}
	}
}

// For languages without caller frames, the arguments are read, and nothing else of the file.
func TestReadOtherLanguages(t *testing.T) {
	for _, test := range []struct {
		path string
		note note
		want string // part of the error; "" for none
	}{
		{"/usr/bin/python3.11", note{"python", "function__entry", "8@%rbp 8@%r12 -4@%eax", 0x1010, 0x3002}, ""},
		{"/usr/lib/libruby-3.1.so.3.1", note{"ruby", "method__entry", "8@(%rsp) 8@8(%rsp) 8@16(%rsp) -4@24(%rsp)",
			0x1010, 0x3002}, ""},
		{"/usr/lib/libruby-3.1.so.3.1", note{"ruby", "cmethod__entry", "8@(%rsp) 8@8(%rsp) 8@16(%rsp) -4@24(%rsp)",
			0x1010, 0x3002}, "--enable-dtrace"},
		{"/usr/bin/python3.11", note{"python", "function__entry", "8@%rbp", 0x1010, 0x3002}, errNote.Error()},
	} {
		file := phpFile("", nil, test.note)
		b, err := readBuild(bytes.NewReader(file), int64(len(file)), languageOf(test.path))
		if test.want != "" {
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: error %v, want %q", test.path, err, test.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", test.path, err)
			continue
		}
		p, l := b.sites[0].probe, &languages[b.language]
		if p.Dialect != bpf.USDTArguments || p.Language != uint32(b.language) ||
			(p.ClassName.Kind == bpf.OperandConstant) != (l.class == none) {
			t.Errorf("%s: probe %+v", test.path, p)
		}
	}
}

// Ruby crashes if the semaphore of this probe is incremented.
func TestNeverCMethod(t *testing.T) {
	for _, l := range languages {
		if strings.HasPrefix(l.probe, "cmethod__") {
			t.Errorf("%s is attached to %s:%s", l.title, l.provider, l.probe)
		}
	}
}

func FuzzReadBuild(f *testing.F) {
	f.Add(phpFile(php82, allSymbols, entry))
	f.Add(phpFile(php82, allSymbols[:1], entry, entry))
	f.Fuzz(func(t *testing.T, file []byte) {
		b, err := readBuild(bytes.NewReader(file), int64(len(file)), 0)
		if err == nil && (len(b.sites) == 0 || len(b.sites) > bpf.MaxUSDTProbes || b.sites[0].semaphore%2 != 0 ||
			b.php.executorGlobals == 0) {
			t.Errorf("%+v without an error", b)
		}
	})
}
