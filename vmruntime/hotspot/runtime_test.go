package hotspot

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javavm"
)

func openELF(t *testing.T, name string) *elffile.File {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	file, err := elffile.OpenFile(f)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestRecognise(t *testing.T) {
	for file, want := range map[string]bool{
		"/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so": true,
		"/opt/libjvm.so.debuginfo":                                false,
		"":                                                        false,
	} {
		if got := (Runtime{}).Recognise(file); got != want {
			t.Errorf("%q: %v, want %v", file, got, want)
		}
	}
}

// TestImageOfOther: a file of another kind is no error, and no image either.
func TestImageOfOther(t *testing.T) {
	if image, err := (Runtime{}).Image(openELF(t, "/proc/self/exe")); image != nil || err != nil {
		t.Errorf("%v, %v", image, err)
	}
}

func TestImage(t *testing.T) {
	for _, home := range jdks(t) {
		t.Run(filepath.Base(home), func(t *testing.T) {
			got, err := (Runtime{}).Image(openELF(t, filepath.Join(home, "lib/server/libjvm.so")))
			if err != nil {
				t.Fatal(err)
			}
			image := got.(*Image)
			if image.TLSSlot == 0 || image.Symbols[currentThread] == 0 || image.Symbols[javaThread] == 0 {
				t.Errorf("TLS slot %#x, symbols %v", image.TLSSlot, image.Symbols)
			}
			for probe, arguments := range map[string]int{
				javavm.ProbeCodeLoad: 8, javavm.ProbeCodeUnload: 6, javavm.ProbeClassUnload: 4,
			} {
				sites := image.Probes(probe)
				if len(sites) == 0 {
					t.Errorf("no site of %s", probe)
				}
				for _, site := range sites {
					if site.Name != probe || len(site.Args) != arguments {
						t.Errorf("%s: %+v, want %d arguments", probe, site, arguments)
					}
				}
			}
		})
	}
}
