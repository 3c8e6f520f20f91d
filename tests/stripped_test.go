package tests

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// stripped returns a copy of a JDK whose libjvm has no .symtab, as in distributions that strip all
// they ship. What is the same in both is linked.
func stripped(t *testing.T, jdk jvm.JDK) jvm.JDK {
	t.Helper()
	home := t.TempDir()
	link := func(dir string, except ...string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(home, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(filepath.Join(jdk.Home, dir))
		if err != nil {
			t.Fatal(err)
		}
	entries:
		for _, entry := range entries {
			for _, name := range except {
				if entry.Name() == name {
					continue entries
				}
			}
			path := filepath.Join(dir, entry.Name())
			if err := os.Symlink(filepath.Join(jdk.Home, path), filepath.Join(home, path)); err != nil {
				t.Fatal(err)
			}
		}
	}
	link("", "bin", "lib")
	link("bin", "java")
	link("lib", "server", "libjli.so") // these three look for the others next to themselves
	link("lib/server", "libjvm.so")
	for path, change := range map[string]func([]byte){
		"bin/java": nil, "lib/libjli.so": nil, "lib/server/libjvm.so": func(file []byte) { strip(t, file) },
	} {
		file, err := os.ReadFile(filepath.Join(jdk.Home, path))
		if err != nil {
			t.Fatal(err)
		}
		if change != nil {
			change(file)
		}
		if err := os.WriteFile(filepath.Join(home, path), file, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return jvm.JDK{Home: home, Version: jdk.Version, Release: jdk.Release}
}

// strip has an ELF file say that it has no table of symbols but the exported ones.
func strip(t *testing.T, file []byte) {
	t.Helper()
	var h elf.Header64
	if _, err := binary.Decode(file, binary.LittleEndian, &h); err != nil {
		t.Fatal(err)
	}
	found := false
	for i := range uint64(h.Shnum) {
		kind := file[h.Shoff+i*uint64(h.Shentsize)+4:] // behind sh_name
		if elf.SectionType(binary.LittleEndian.Uint32(kind)) == elf.SHT_SYMTAB {
			binary.LittleEndian.PutUint32(kind, uint32(elf.SHT_NULL))
			found = true
		}
	}
	if !found {
		t.Skip("this libjvm is stripped already")
	}
}

// TestStripped: threads are found where no symbol of libjvm leads to them, so that native code has
// its Java callers.
func TestStripped(t *testing.T) {
	needs.Root(t, "sampling")
	for _, jdk := range needs.JDKs(t) {
		t.Run(jdk.String(), func(t *testing.T) {
			flavour := guests.Flavour{Flags: []string{"-XX:CompileCommand=quiet",
				"-XX:CompileCommand=dontinline,guest.Natives::*"}}
			guest, err := guests.Start(t.Context(), stripped(t, jdk), guests.Program{Name: "Natives", Class: "Natives"},
				flavour)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { guest.Close() })
			p := recordWork(t, guest.PID(), 1500*time.Millisecond)
			var all, called, native, nativeCalled int64
			ends := map[string]int64{}
			for _, s := range stacks.FromProfile(p) {
				if s.Thread != "worker" {
					continue
				}
				java, has := s.Frames[0].Java(), false
				for _, f := range s.Frames {
					has = has || strings.HasPrefix(f.Function, "guest.Natives.")
				}
				all += s.Count
				if !java {
					native += s.Count
				}
				if has {
					called += s.Count
					if !java {
						nativeCalled += s.Count
					}
				} else {
					ends[s.Frames[len(s.Frames)-1].Function] += s.Count
				}
			}
			t.Logf("%d samples, %d with a method of the guest; %d in native code, %d of those", all, called, native,
				nativeCalled)
			// least is a share of samples. The rest is the guest's own accounts, and native code
			// that nothing leads back from.
			const least = 0.9
			if native == 0 || float64(nativeCalled) < least*float64(native) || float64(called) < least*float64(all) {
				t.Errorf("the others end at %v; notes: %q", ends, p.Comments)
			}
		})
	}
}
