package hotspot

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

// TestReadVersion: up to JDK 22, JDK_Version has the release; HotSpot's own number was another one
// in JDK 8.
func TestReadVersion(t *testing.T) {
	m := &vmtest.Image{Base: 0x1000}
	s := &versionSchema{
		info: m.Words(m.Text("OpenJDK 64-Bit Server VM (25.402-b06) for linux-amd64 JRE (1.8.0_402-b06), built " +
			"on …")),
		release:  m.Words(m.Text("25.402-b06")),
		major:    m.Words(25),
		jdk:      m.Words(8),
		jdkMajor: vmstructs.Field{Width: 1, Known: true},
	}
	for _, test := range []struct {
		change func()
		jdk    int
		text   string
	}{
		{func() {}, 8, "OpenJDK 64-Bit Server VM 25.402 (JDK 8)"},
		{func() { s.jdk = 0 }, 25, "OpenJDK 64-Bit Server VM 25.402"},
		{func() { s.release = m.Words(m.Text("17.0.15+6-Debian-1deb12u1")); s.major = m.Words(17) }, 17,
			"OpenJDK 64-Bit Server VM 17.0.15+6"},
		{func() { s.release, s.info = 0, 0 }, 17, "HotSpot 17"},
	} {
		test.change()
		m.Put(make([]byte, vmstructs.PageSize)) // strings are read up to the end of their page
		v, err := readVersion(vmstructs.Reader{Mem: m.Memory()}, s)
		if err != nil || v.jdk != test.jdk || v.String() != test.text {
			t.Errorf("JDK %d, %s, %v; want %d, %s", v.jdk, v, err, test.jdk, test.text)
		}
	}
	for _, major := range []uint64{0, 7, 1 << 20} {
		s.major = m.Words(major)
		if v, err := readVersion(vmstructs.Reader{Mem: m.Memory()}, s); err == nil {
			t.Errorf("version %d is taken for %v", major, v)
		}
	}
}

func TestVersionRules(t *testing.T) {
	for _, test := range []struct {
		jdk     int
		bias    uint32
		live    [6]bool // by state, from -1 (not installed) on
		pointer int
	}{
		{8, 0, [6]bool{true, true, true, false, false, false}, -7},
		{11, 0, [6]bool{true, true, true, true, false, false}, -8},
		{17, 0, [6]bool{true, true, true, true, false, false}, -8},
		{21, 1, [6]bool{true, true, true, true, true, true}, -8},
	} {
		v := version{jdk: test.jdk}
		if v.unsigned5Bias() != test.bias || v.bytecodeWord() != test.pointer {
			t.Errorf("JDK %d: bias %d, bytecode pointer %d", test.jdk, v.unsigned5Bias(), v.bytecodeWord())
		}
		for i, want := range test.live {
			if state := int8(i - 1); v.live(state) != want {
				t.Errorf("JDK %d: state %d is live: %v", test.jdk, state, !want)
			}
		}
	}
}

// TestJDKs checks that the identifiers exist that the table in jdks.go names.
func TestJDKs(t *testing.T) {
	table, err := os.ReadFile("jdks.go")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^//\t     In (.*)\.$`).FindAllStringSubmatch(string(table), -1)
	if len(rows) < 40 {
		t.Fatalf("the table has %d rows", len(rows))
	}
	sources := make(map[string]string) // by directory
	for _, row := range rows {
		for _, name := range strings.Split(row[1], ", ") {
			dir, receiver := ".", ""
			if before, after, ok := strings.Cut(name, "."); ok {
				if _, err := os.Stat(before); err == nil {
					dir = before
				} else {
					receiver = before
				}
				name = after
			}
			if sources[dir] == "" {
				sources[dir] = sourceOf(t, dir)
			}
			declared := `(?m)^(?:func (?:\(.*\) )?|type |const |var |\t)` + name + `\b`
			if receiver != "" {
				declared = `(?m)^func \(\w+ \*?` + receiver + `\) ` + name + `\(`
			}
			if !regexp.MustCompile(declared).MatchString(sources[dir]) {
				t.Errorf("the table names %s %s, which is not declared in %s", receiver, name, dir)
			}
		}
	}
}

// sourceOf returns the source of a package without its tests.
func sourceOf(t *testing.T, dir string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(source)
	}
	return all.String()
}
