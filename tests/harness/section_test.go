package harness

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// A cell is a trial with nothing but a name.
type cell string

func (c cell) String() string { return string(c) }

// made are sections that measure the length of names, and fail where one is longer than three.
func made() []Section[int] {
	lengths := Trials[int, cell, []string]{
		All: func(short bool) []cell {
			if short {
				return []cell{"one"}
			}
			return []cell{"one", "a|b", "three"}
		},
		Run: OneByOne(func(base int, _ context.Context, c cell) ([]string, error) {
			if c == "broken" {
				return nil, errors.New("it is")
			}
			return []string{c.String(), strings.Repeat("x", base+len(c))}, nil
		}),
		Tables: func(rows [][]string) []Table {
			return []Table{{"lengths", report.Table{Header: []string{"name", "length"}, Rows: rows}}}
		},
		OK: func(rows [][]string) bool { return len(rows) < 3 },
	}
	return []Section[int]{
		{Name: "lengths", Markers: []string{"lengths"}, Aim: "fewer than three", Plan: lengths.Plan},
		{Name: "pair", Markers: []string{"first", "second"}, Plan: Always(func(base int, _ context.Context) ([]Table,
			error) {
			table := report.Table{Header: []string{"base"}, Rows: [][]string{{strings.Repeat("i", base)}}}
			return []Table{{"first", table}, {"second", table}}, nil
		})},
	}
}

func TestRun(t *testing.T) {
	choice := func(pattern string) Choice { return Choice{Run: regexp.MustCompile(pattern)} }
	for name, tt := range map[string]struct {
		choice Choice
		golden string // golden file of the page; empty: it is not updated
		ok     bool
	}{
		"everything":       {choice("."), "whole.md", false},
		"a part":           {choice("^one$"), "part.md", true},
		"in short":         {Choice{Short: true}, "part.md", true},
		"without a page":   {choice("."), "", false},
		"nothing, no page": {choice("^$"), "", true},
	} {
		t.Run(name, func(t *testing.T) {
			before, err := os.ReadFile("testdata/page.md")
			if err != nil {
				t.Fatal(err)
			}
			path, page := filepath.Join(t.TempDir(), "page.md"), ""
			if err := os.WriteFile(path, before, 0o644); err != nil {
				t.Fatal(err)
			}
			want := before
			if tt.golden != "" {
				page = path
				if want, err = os.ReadFile("testdata/" + tt.golden); err != nil {
					t.Fatal(err)
				}
			}
			var out strings.Builder
			failed, err := Run(t.Context(), &out, 2, made(), tt.choice, page)
			if err != nil || (len(failed) == 0) != tt.ok || !tt.ok && failed[0] != "lengths" {
				t.Errorf("%q failed, %v", failed, err)
			}
			got, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("got\n%swant\n%s", got, want)
			}
			if !strings.Contains(out.String(), "\nbase\nii\n") {
				t.Errorf("printed\n%s", out.String())
			}
			if missed := Misses(out.String()); tt.ok != (missed == "") || !tt.ok &&
				!strings.HasPrefix(missed, "lengths: MISSED\n  name   length\n  one    xxxxx\n") {
				t.Errorf("misses\n%s", missed)
			}
		})
	}
}

func TestRunFails(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("# A page without tables\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if _, err := Run(t.Context(), &out, 1, made(), Choice{}, page); err == nil || out.Len() > 0 {
		t.Errorf("%v: measured for a page without a place for the tables:\n%s", err, out.String())
	}
	if _, err := Run(t.Context(), &out, 1, made()[:1], Choice{Run: regexp.MustCompile("^one$")}, page); !errors.Is(err,
		errNotWhole) {
		t.Errorf("a part of a section: %v", err)
	}
	bad := made()[1:]
	bad[0].Markers = bad[0].Markers[:1]
	if _, err := Run(t.Context(), &out, 1, bad, Choice{}, ""); err == nil ||
		!strings.Contains(err.Error(), `"second"`) {
		t.Errorf("a table without a marker: %v", err)
	}
	fails := Section[int]{Name: "fails", Plan: Always(func(int, context.Context) ([]Table, error) {
		return nil,
			errors.New("it does")
	})}
	if _, err := Run(t.Context(), &out, 1, []Section[int]{fails}, Choice{}, ""); err == nil ||
		err.Error() != "fails: it does" {
		t.Errorf("a section that fails: %v", err)
	}
}

// What is one of a section's trials names it where it fails.
func TestOneByOne(t *testing.T) {
	broken := Trials[int, cell, int]{
		All:    func(bool) []cell { return []cell{"broken"} },
		Run:    OneByOne(func(int, context.Context, cell) (int, error) { return 0, errors.New("it is") }),
		Tables: func([]int) []Table { return nil },
	}
	job := broken.Plan(Choice{})
	if _, err := job.Run(t.Context(), 0); job.Trials != 1 || !job.Whole || err == nil ||
		err.Error() != "broken: it is" {
		t.Errorf("%+v: %v", job, err)
	}
}

func TestPick(t *testing.T) {
	all := made()
	name := func(s Section[int]) string { return s.Name }
	if got, err := Pick(all, "pair,lengths", "part", name); err != nil || len(got) != 2 || got[0].Name != "lengths" {
		t.Errorf("got %v, %v", got, err)
	}
	for _, list := range []string{"", "pai", "pair,", "pair,pair"} {
		if got, err := Pick(all, list, "part", name); err == nil ||
			!strings.Contains(err.Error(), `there is no part "`) ||
			!strings.Contains(err.Error(), "choose from lengths,pair") {
			t.Errorf("%q: %v, %v", list, got, err)
		}
	}
}
