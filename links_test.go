package vmprofagent

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

var (
	link     = regexp.MustCompile(`\]\(([^()\s]+)(?: "[^"]*")?\)`)
	linkText = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	heading  = regexp.MustCompile(`^#{1,6} +(.*)$`)
	anchor   = regexp.MustCompile(`<a id="([^"]+)">`)
	code     = regexp.MustCompile("`[^`]*`")
)

// Every link between files of this repository leads to a file, and to a heading of it if the link
// names one. Links to other sites are not followed.
func TestLinks(t *testing.T) {
	pages := map[string]page{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && path != "." || entry.Name() == "node_modules"):
			return filepath.SkipDir
		case !entry.IsDir() && filepath.Ext(path) == ".md":
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			pages[path] = parsePage(string(text))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for path, p := range pages {
		for _, target := range p.links {
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			checked++
			if problem := broken(pages, path, target); problem != "" {
				t.Errorf("%s links to %s: %s", path, target, problem)
			}
		}
	}
	if len(pages) < 20 || checked < 100 {
		t.Errorf("checked %d links of %d pages: are the pages still found?", checked, len(pages))
	}
}

// Pages under docs that docs/README.md does not list are found by nobody.
func TestPagesAreListed(t *testing.T) {
	text, err := os.ReadFile("docs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{"README.md": true}
	for _, target := range parsePage(string(text)).links {
		listed[target] = true
	}
	err = filepath.WalkDir("docs", func(path string, entry fs.DirEntry, err error) error {
		if name, _ := filepath.Rel("docs", path); err == nil && filepath.Ext(path) == ".md" &&
			!listed[filepath.ToSlash(name)] {
			t.Errorf("docs/README.md does not link to %s", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Comments, --help and the Makefile name pages by their path in the repository.
func TestMentionedPages(t *testing.T) {
	mention := regexp.MustCompile(`\bdocs/[\w/-]+\.md\b`)
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && path != "." || entry.Name() == "node_modules"):
			return filepath.SkipDir
		case !entry.Type().IsRegular() || entry.Name() != "Makefile" &&
			!slices.Contains([]string{".go", ".c", ".h", ".sh"}, filepath.Ext(path)):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, name := range mention.FindAllString(string(text), -1) {
			if _, err := os.Stat(name); err != nil {
				t.Errorf("%s mentions %s, which does not exist", path, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestParsePage(t *testing.T) {
	p := parsePage("# A `b`: c & d\n" +
		"see [x](y.md#z), [m](n.md \"title\") and [o](p.md)\n" +
		"```\n# no heading\n[no](link)\n```\n" +
		"## Same\n## Same\n<a id=\"own\"></a>\n" +
		"`[code](too)` [q](r.md)\n")
	want := page{
		links:   []string{"y.md#z", "n.md", "p.md", "r.md"},
		anchors: map[string]bool{"a-b-c--d": true, "same": true, "same-1": true, "own": true},
	}
	if strings.Join(p.links, " ") != strings.Join(want.links, " ") {
		t.Errorf("links %q, want %q", p.links, want.links)
	}
	for a := range want.anchors {
		if !p.anchors[a] {
			t.Errorf("no anchor %q in %v", a, p.anchors)
		}
	}
	if len(p.anchors) != len(want.anchors) {
		t.Errorf("anchors %v, want %v", p.anchors, want.anchors)
	}
	pages := map[string]page{"docs/README.md": p}
	for target, ok := range map[string]bool{
		"#own": true, "#other": false, "README.md#same": true, "README.md#same-2": false,
		"../README.md": true, "none.md": false, "tasks": true,
	} {
		if problem := broken(pages, "docs/README.md", target); (problem == "") != ok {
			t.Errorf("link to %s: %q, want it to be right: %t", target, problem, ok)
		}
	}
}

// A page is the part of a Markdown file that links depend on.
type page struct {
	links   []string        // targets, in order
	anchors map[string]bool // of headings, and explicit ones
}

func parsePage(text string) page {
	p := page{anchors: map[string]bool{}}
	fenced := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if fenced {
			continue
		}
		if m := heading.FindStringSubmatch(line); m != nil {
			p.addHeading(slug(m[1]))
		}
		line = code.ReplaceAllString(line, "code")
		for _, m := range link.FindAllStringSubmatch(line, -1) {
			p.links = append(p.links, m[1])
		}
		for _, m := range anchor.FindAllStringSubmatch(line, -1) {
			p.anchors[m[1]] = true
		}
	}
	return p
}

// addHeading numbers headings with the same text, as GitHub does.
func (p page) addHeading(name string) {
	unique := name
	for n := 1; p.anchors[unique]; n++ {
		unique = name + "-" + strconv.Itoa(n)
	}
	p.anchors[unique] = true
}

// slug is the anchor that GitHub gives a heading.
func slug(heading string) string {
	heading = linkText.ReplaceAllString(heading, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(heading))
}

// broken returns why a link in the file at path leads nowhere, or nothing if it is right.
func broken(pages map[string]page, path, target string) string {
	name, fragment, _ := strings.Cut(target, "#")
	file := path
	if name != "" {
		file = filepath.Join(filepath.Dir(path), filepath.FromSlash(name))
		if _, err := os.Stat(file); err != nil {
			return "no such file"
		}
	}
	if p, ok := pages[file]; ok && fragment != "" && !p.anchors[fragment] {
		return "no such heading"
	}
	return ""
}
