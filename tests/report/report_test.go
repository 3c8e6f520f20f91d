package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	table := Table{Header: []string{"guest", "share"}}
	table.Add("Plain", "50.0")
	table.Add("a|b", "7.5")

	var text strings.Builder
	if err := table.Print(&text); err != nil {
		t.Fatal(err)
	}
	if want := "guest  share\nPlain  50.0\na|b    7.5\n"; text.String() != want {
		t.Errorf("got\n%swant\n%s", text.String(), want)
	}
	if want := "| guest | share |\n| --- | --- |\n| Plain | 50.0 |\n| a\\|b | 7.5 |\n"; table.Markdown() != want {
		t.Errorf("got\n%swant\n%s", table.Markdown(), want)
	}
}

func TestUpdate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	page := "# Page\n\n<!-- begin one -->\nold\n<!-- end one -->\n\nprose\n\n<!-- begin two -->\n<!-- end two -->\n"
	if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time changes nothing
		if err := Update(path, "one", "new\n"); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Replace(page, "old\n", "\nnew\n\n", 1)
		if string(got) != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
	if err := Update(path, "three", "text"); err == nil {
		t.Error("updated a section that does not exist")
	}
	if _, err := replace("<!-- begin x -->\n", "x", ""); err == nil {
		t.Error("updated a section without an end")
	}
	if err := Update(filepath.Join(t.TempDir(), "absent.md"), "one", "text"); err == nil {
		t.Error("updated a page that does not exist")
	}
}

// The pages of a directory have each section once.
func TestPage(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.md": "<!-- begin one -->\n<!-- end one -->\n<!-- begin twice -->\n<!-- end twice -->\n",
		"b.md": "<!-- begin two -->\n<!-- end two -->\n<!-- begin twice -->\n<!-- end twice -->\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := Update(dir, "two", "new"); err != nil {
		t.Fatal(err)
	}
	if got, err := Section(filepath.Join(dir, "b.md"), "two"); err != nil || got != "new" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, name := range []string{"none", "twice"} {
		if page, err := Page(dir, name); err == nil {
			t.Errorf("%s is on %s", name, page)
		}
	}
}
