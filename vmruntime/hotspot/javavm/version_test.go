package javavm

import (
	"os"
	"regexp"
	"slices"
	"strconv"
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
		if err != nil || v.JDK != test.jdk || v.String() != test.text {
			t.Errorf("JDK %d, %s, %v; want %d, %s", v.JDK, v, err, test.jdk, test.text)
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
		v := Version{JDK: test.jdk}
		if v.Unsigned5Bias() != test.bias || v.bytecodeWord() != test.pointer {
			t.Errorf("JDK %d: bias %d, bytecode pointer %d", test.jdk, v.Unsigned5Bias(), v.bytecodeWord())
		}
		for i, want := range test.live {
			if state := int8(i - 1); v.Live(state) != want {
				t.Errorf("JDK %d: state %d is live: %v", test.jdk, state, !want)
			}
		}
	}
}

// A profile says that a release is not tested if and only if the tables of tested releases do not
// have it.
func TestTestedJDKs(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/jdks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| feature | 8")
	head, _, _ := strings.Cut("8"+table, "\n")
	var releases []int
	for _, m := range regexp.MustCompile(`(?:^|\| )(\d+)`).FindAllStringSubmatch(head, -1) {
		n, _ := strconv.Atoi(m[1])
		releases = append(releases, n)
	}
	if !slices.Equal(releases, testedJDKs) {
		t.Errorf("the tables have %v, the profiles know of %v", releases, testedJDKs)
	}
}
