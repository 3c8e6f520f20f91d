package symbolize

import (
	"strings"
	"testing"
)

// Code that is loaded has its own end, and its name until other code is there.
func TestLoaded(t *testing.T) {
	var l Loaded
	check := func(what string, want map[uint64]string) {
		t.Helper()
		for addr, name := range want {
			if got, ok := l.Lookup(addr); got != name || ok != (name != "") {
				t.Errorf("%s: %#x is %q (%t), want %q", what, addr, got, ok, name)
			}
		}
	}
	check("nothing", map[uint64]string{0: "", 0x1000: ""})
	l.Add(0x1100, 0, "b") // as /proc/kallsyms has them: in any order, and without their sizes
	l.Add(0x1000, 0, "a")
	l.Add(0x1f00, 0, "c")
	check("guessed", map[uint64]string{0xfff: "", 0x1000: "a", 0x10ff: "a", 0x1100: "b", 0x1eff: "b", 0x1fff: "c",
		0x2000: ""})
	l.Resize(0x1000, 0x80)
	l.Resize(0x1100, 0x2000)
	l.Resize(0x1200, 0x10)
	check("sized", map[uint64]string{0x107f: "a", 0x1080: "", 0x1eff: "b", 0x1f00: "c"})
	l.Add(0x1080, 0x40, "d")
	check("added", map[uint64]string{0x107f: "a", 0x1080: "d", 0x10bf: "d", 0x10c0: "", 0x1100: "b"})
	l.Remove(0x1080)
	l.Remove(0x1234)
	check("removed", map[uint64]string{0x1080: "d"})
	l.Add(0x10a0, 0x20, "e")
	check("replaced", map[uint64]string{0x1080: "", 0x10a0: "e", 0x10bf: "e", 0x1000: "a"})
	l.Add(0x1000, 0x1000, "f")
	check("replaced all", map[uint64]string{0x1000: "f", 0x10a0: "f", 0x1fff: "f", 0x2000: ""})
	l.Add(^uint64(0), 2, "g") // goes round
	check("at the end", map[uint64]string{^uint64(0): ""})
}

// BPF programs are none of the kernel's own functions, which end where they begin.
func TestKernelLoaded(t *testing.T) {
	const symbols = kallsyms + "ffffffffc0302000 t bpf_prog_6deef7357e7b4530_tick\t[bpf]\n"
	ends, err := ReadModules(strings.NewReader("ext4 4608 1 - Live 0xffffffffc0200000\nhidden 1 0 - Live " +
		"0x0000000000000000\n"))
	if err != nil {
		t.Fatal(err)
	}
	loaded := new(Loaded)
	k, err := ReadKallsyms(strings.NewReader(symbols), ends, loaded)
	if err != nil {
		t.Fatal(err)
	}
	loaded.Add(0xffffffffc0303000, 0x100, "bpf_prog_1234567812345678_later")
	for addr, want := range map[uint64][2]string{
		0xffffffffc02011ff: {"ext4_read", "ext4"},
		0xffffffffc0201200: {"", ""}, // behind the module
		0xffffffffc0301fff: {"_RNvCs1_4rust3run", "rust_minimal"},
		0xffffffffc0302010: {"bpf_prog_6deef7357e7b4530_tick", "bpf"},
		0xffffffffc03030ff: {"bpf_prog_1234567812345678_later", "bpf"},
		0xffffffffc0303100: {"", ""},
	} {
		if name, module, _ := k.Lookup(addr); name != want[0] || module != want[1] {
			t.Errorf("%#x is %q of %q, want %q", addr, name, module, want)
		}
	}
	if _, err := ReadModules(strings.NewReader("ext4\n")); err == nil {
		t.Error("a line of one word is a module")
	}
}
