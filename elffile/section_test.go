package elffile

import (
	"debug/elf"
	"errors"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/elffile/elftest"
)

// dynamic makes a dynamic section with needed libraries, and another name.
func dynamic(libraries ...string) []elftest.Section {
	names := []byte("\x00libself.so\x00")
	table := elftest.Append(nil, []elf.Dyn64{{Tag: int64(elf.DT_SONAME), Val: 1}})
	for _, library := range libraries {
		table = elftest.Append(table, []elf.Dyn64{{Tag: int64(elf.DT_NEEDED), Val: uint64(len(names))}})
		names = append(append(names, library...), 0)
	}
	// The second one is behind the end.
	table = elftest.Append(table, []elf.Dyn64{{}, {Tag: int64(elf.DT_NEEDED), Val: 1}})
	return []elftest.Section{
		{Name: ".dynamic", Data: table, Link: ".dynstr", Header: elf.Section64{Type: uint32(elf.SHT_DYNAMIC),
			Entsize: 16}},
		{Name: ".dynstr", Data: names, Header: elf.Section64{Type: uint32(elf.SHT_STRTAB)}},
	}
}

func TestNeeds(t *testing.T) {
	f := open(t, elftest.Image{Machine: elf.EM_X86_64, Sections: dynamic("libm.so.6", "libc.so.6")})
	for library, want := range map[string]bool{"libc.so.6": true, "libm.so.6": true, "libc.so": false,
		"libself.so": false, "": false} {
		if got, err := f.Needs("other", library); got != want || err != nil {
			t.Errorf("%q: %v, %v; want %v", library, got, err, want)
		}
	}
	if got, err := open(t, fixture()).Needs("libc.so.6"); got || !errors.Is(err, ErrNotFound) {
		t.Errorf("without a dynamic section: %v, %v", got, err)
	}
	long := elftest.Image{Machine: elf.EM_X86_64, Sections: dynamic("libc.so.6")}
	long.Sections[0].Header.Size = (maxDynamic + 1) * 16
	if got, err := open(t, long).Needs("libc.so.6"); got || !errors.Is(err, ErrTooLarge) {
		t.Errorf("too long a dynamic section: %v, %v", got, err)
	}
}
