package suite

import (
	"archive/zip"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

func TestPrograms(t *testing.T) {
	jdk := needs.JDK(t)
	for _, program := range Programs() {
		t.Run(program.Name, func(t *testing.T) {
			t.Parallel()
			guest, err := Start(t.Context(), jdk, program.Name)
			if err != nil {
				needs.Missing(t, err)
			}
			iterations, err := guest.Run(1) // many more of them are run by the commands accuracy and bench
			if err != nil {
				t.Error(err)
			}
			t.Log(iterations)
			if err := guest.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// With little input a program's result is another one, but the same every time, in every JVM.
func TestStartSmall(t *testing.T) {
	jdk := needs.JDK(t)
	var checksums []uint64
	for range 2 {
		guest, err := StartSmall(t.Context(), jdk, "Xerces")
		if err != nil {
			needs.Missing(t, err)
		}
		if _, err := guest.Run(2); err != nil {
			t.Error(err)
		}
		checksums = append(checksums, guest.Checksum())
		if err := guest.Close(); err != nil {
			t.Error(err)
		}
	}
	if known, _ := guestProgram(t, "Xerces").knownChecksum(); checksums[0] != checksums[1] || checksums[0] == known {
		t.Errorf("checksums %x, of the whole input %x", checksums, known)
	}
}

func guestProgram(t *testing.T, name string) Program {
	t.Helper()
	p, err := find(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestUnknownProgram(t *testing.T) {
	if _, err := Start(t.Context(), jvm.JDK{}, "Nothing"); err == nil {
		t.Error("started a program that does not exist")
	}
}

func TestParse(t *testing.T) {
	iteration, checksum, err := parse("iter wall_ns 2000 cpu_ns 3000 checksum 00000000126eb673")
	want := Iteration{Wall: 2 * time.Microsecond, CPU: 3 * time.Microsecond}
	if err != nil || iteration != want || checksum != 0x126eb673 {
		t.Errorf("got %v, %x, %v", iteration, checksum, err)
	}
	if _, _, err := parse("something else"); err == nil {
		t.Error("parsed nonsense")
	}
}

func TestCheck(t *testing.T) {
	guest := &Guest{program: Program{Name: "made up"}}
	for _, checksum := range []uint64{0, 0} {
		if err := guest.check(checksum); err != nil {
			t.Errorf("constant checksum: %v", err)
		}
	}
	if err := guest.check(1); !errors.Is(err, ErrDisturbed) {
		t.Errorf("got %v, want ErrDisturbed", err)
	}
}

func TestUnzip(t *testing.T) {
	const source = sourceTree + "Map.java"
	for name, tt := range map[string]struct {
		files []string
		good  bool
	}{
		"sources":              {files: []string{source, sourceTree + "notes.txt", "java.base/Other.java"}, good: true},
		"no sources":           {files: []string{"java.base/Other.java"}},
		"path out of the tree": {files: []string{sourceTree + "../../../../Escaped.java"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "tree")
			err := unzip(archive(t, tt.files), dir)
			if (err == nil) != tt.good {
				t.Fatalf("got %v, want success: %v", err, tt.good)
			}
			if !tt.good {
				return
			}
			if text, err := os.ReadFile(filepath.Join(dir, source)); err != nil || string(text) != source {
				t.Errorf("got %q, %v", text, err)
			}
			if _, err := os.Stat(filepath.Join(dir, "java.base/Other.java")); err == nil {
				t.Error("unpacked more than the tree")
			}
		})
	}
}

// archive returns a zip file with files that contain their own names.
func archive(t *testing.T, files []string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "src.zip")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	writer := zip.NewWriter(file)
	for _, name := range files {
		entry, err := writer.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := entry.Write([]byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(writer.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}
