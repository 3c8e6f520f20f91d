package hotspot

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

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
