package unwind

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// The tables of libraries of this machine say what readelf says.
func TestLibraries(t *testing.T) {
	readelf, err := exec.LookPath("readelf")
	if err != nil {
		t.Skip("no readelf: install binutils")
	}
	found := 0
	for _, pattern := range []string{
		"/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libcrypto.so.*",
		"/usr/lib/jvm/*/lib/server/libjvm.so",
	} {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			if path, err = filepath.EvalSymlinks(path); err != nil {
				continue
			}
			found++
			t.Run(path, func(t *testing.T) { compare(t, readelf, path) })
		}
	}
	if found == 0 {
		t.Skip("none of these libraries")
	}
}

// registerName follows the number of a register: "r10 (r10)".
var registerName = regexp.MustCompile(` \(\w+\)`)

func compare(t *testing.T, readelf, path string) {
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	f, err := elffile.OpenFile(file)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	table, err := Build(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(begin)
	// It fails if the file with debug information that it also looks for is not there.
	out, _ := exec.CommandContext(t.Context(), readelf, "-wF", path).Output()
	compared := 0
	var rbp int // column of rbp, -1 if there is none
	inCIE := false
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		line := registerName.ReplaceAllString(lines.Text(), "")
		fields := strings.Fields(line)
		switch {
		case strings.Contains(line, " CIE "):
			inCIE = true
		case strings.Contains(line, " FDE "):
			inCIE = false
		case len(fields) > 2 && fields[0] == "LOC":
			rbp = -1
			for i, name := range fields {
				if name == "rbp" {
					rbp = i
				}
			}
		case !inCIE && len(fields) > 2 && len(fields[0]) == 16:
			addr, err := strconv.ParseUint(fields[0], 16, 64)
			if err != nil {
				continue
			}
			saved := "u"
			if rbp >= 0 && rbp < len(fields) {
				saved = fields[rbp]
			}
			compared++
			if got := table.Find(addr); !agree(got, fields[1], saved, fields[len(fields)-1]) {
				t.Errorf("%#x: %v; readelf: %s, rbp %s, return address %s", addr, got, fields[1], saved,
					fields[len(fields)-1])
			}
		}
	}
	t.Logf("%d rows of %d functions in %v, %d unsupported; %d compared", len(table.Rows), table.Functions, took,
		table.Unsupported, compared)
	if compared == 0 || table.Dropped > 0 || table.Unsupported > len(table.Rows)/100 {
		t.Errorf("%d compared, %d dropped, %d of %d unsupported", compared, table.Dropped, table.Unsupported,
			len(table.Rows))
	}
}

// agree reports whether a rule is that of a row of readelf.
func agree(r Rule, cfa, rbp, ra string) bool {
	switch {
	case ra == "u":
		return r.Kind() == Root
	case r.Kind() == Unsupported:
		return ra != "c-8" || !strings.HasPrefix(cfa, "rsp") && !strings.HasPrefix(cfa, "rbp")
	case cfa == "exp":
		return r.Kind() == DerefRSP || r.Kind() == DerefRBP || r.Kind() == PLT || r.Kind() == Signal
	}
	want := cfa
	if rbp != "u" && rbp != "exp" && rbp != "vexp" {
		want = fmt.Sprintf("%s %s", cfa, rbp)
	}
	return r.String() == want || rbp == "exp" && strings.HasPrefix(r.String(), want)
}
