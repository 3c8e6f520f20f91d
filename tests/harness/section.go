package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// A Section is one of the things that a command measures, with its tables in the documentation. E
// is what the command gives to all of its sections.
type Section[E any] struct {
	Name    string
	Markers []string // names of its tables in the documentation, as in <!-- begin NAME -->
	Aim     string   // what it is judged by
	// Detailed says that it prints what its tables say while it runs, so that these are not
	// printed.
	Detailed bool
	// Plan returns what is to be measured.
	Plan func(Choice) Job[E]
}

// A Choice is which trials are wanted.
type Choice struct {
	Run   *regexp.Regexp // matches their names; nil: all of them
	Short bool           // only those of the short form
}

// A Job is what a section has been asked to measure.
type Job[E any] struct {
	Trials int
	Whole  bool // these are all trials, so that their tables are for the documentation
	Run    func(ctx context.Context, e E) (Outcome, error)
}

// An Outcome is what was measured.
type Outcome struct {
	Tables []Table // tables of the section's markers, in their order; some may be missing
	Failed bool    // something is further from the truth than its tolerance
}

// A Table is one of the documentation.
type Table struct {
	Marker string
	report.Table
}

// Always is the plan of a section that has no trials to choose from, and no tolerance. measure is a
// method of E.
func Always[E any](measure func(e E, ctx context.Context) ([]Table, error)) func(Choice) Job[E] {
	return func(Choice) Job[E] {
		return Job[E]{Trials: 1, Whole: true, Run: func(ctx context.Context, e E) (Outcome, error) {
			tables, err := measure(e, ctx)
			return Outcome{Tables: tables}, err
		}}
	}
}

// Trials are the plan of a section that makes trials of which some may be chosen by their names.
type Trials[E any, T fmt.Stringer, R any] struct {
	All    func(short bool) []T                                    // in their order
	Run    func(e E, ctx context.Context, trials []T) ([]R, error) // a method of E; see OneByOne
	Tables func([]R) []Table
	OK     func([]R) bool // nil: nothing fails by what was measured
}

// Plan chooses trials.
func (t Trials[E, T, R]) Plan(c Choice) Job[E] {
	chosen := Chosen(t.All(c.Short), c)
	return Job[E]{
		Trials: len(chosen),
		Whole:  len(chosen) > 0 && slices.Equal(names(chosen), names(t.All(false))),
		Run: func(ctx context.Context, e E) (Outcome, error) {
			results, err := t.Run(e, ctx, chosen)
			if err != nil || len(results) == 0 {
				return Outcome{}, err
			}
			return Outcome{t.Tables(results), t.OK != nil && !t.OK(results)}, nil
		},
	}
}

// Chosen returns the trials whose names match.
func Chosen[T fmt.Stringer](trials []T, c Choice) []T {
	return slices.DeleteFunc(slices.Clone(trials), func(t T) bool {
		return c.Run != nil &&
			!c.Run.MatchString(t.String())
	})
}

func names[T fmt.Stringer](trials []T) (names []string) {
	for _, t := range trials {
		names = append(names, t.String())
	}
	return names
}

// OneByOne makes trials one after the other, by a method of E.
func OneByOne[E any, T fmt.Stringer, R any](
	try func(e E, ctx context.Context, trial T) (R, error),
) func(E, context.Context, []T) ([]R, error) {
	return func(e E, ctx context.Context, trials []T) (results []R, err error) {
		for _, trial := range trials {
			r, err := try(e, ctx, trial)
			if err != nil {
				return nil, fmt.Errorf("%v: %w", trial, err)
			}
			results = append(results, r)
		}
		return results, nil
	}
}

// errNotWhole says that there is nothing to update.
var errNotWhole = errors.New("-update needs a whole section: leave out -run, or let it match all of one")

// Run measures what is chosen of each section, and prints tables and how long it took. Unless page
// is empty, the tables of the sections that are measured as a whole are written to it in the end.
// It may be a directory of pages. failed are the names of the sections in which something is
// further from the truth than its tolerance.
func Run[E any](
	ctx context.Context, out io.Writer, e E, sections []Section[E], c Choice, page string,
) (failed []string, err error) {
	jobs := make([]Job[E], len(sections))
	for i, s := range sections {
		jobs[i] = s.Plan(c)
	}
	if page != "" {
		if !slices.ContainsFunc(jobs, func(j Job[E]) bool { return j.Whole }) {
			return nil, errNotWhole
		}
		if err := CheckMarkers(page, sections); err != nil {
			return nil, err
		}
	}
	var whole []Table
	for i, s := range sections {
		if jobs[i].Trials == 0 {
			continue
		}
		began := time.Now()
		outcome, err := jobs[i].Run(ctx, e)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		for _, table := range outcome.Tables {
			if !slices.Contains(s.Markers, table.Marker) {
				return nil, fmt.Errorf("%s: a table %q, which is not among %q", s.Name, table.Marker, s.Markers)
			}
		}
		if !s.Detailed {
			if err := Print(out, outcome.Tables); err != nil {
				return nil, err
			}
		}
		if took := time.Since(began); took > time.Second {
			fmt.Fprintf(out, "%s took %.0f s\n\n", s.Name, took.Seconds())
		}
		if outcome.Failed {
			failed = append(failed, s.Name)
			if err := printFailed(out, s.Name, outcome.Tables); err != nil {
				return nil, err
			}
		}
		if jobs[i].Whole {
			whole = append(whole, outcome.Tables...)
		}
	}
	if page == "" {
		return failed, nil
	}
	return failed, Update(page, whole)
}

// Print prints tables, each between blank lines.
func Print(out io.Writer, tables []Table) error {
	for _, table := range tables {
		fmt.Fprintln(out)
		if err := table.Print(out); err != nil {
			return err
		}
	}
	if len(tables) > 0 {
		fmt.Fprintln(out)
	}
	return nil
}

// printFailed prints, indented, those tables of a section that failed of which no row says so: it
// fails by all of its rows.
func printFailed(out io.Writer, section string, tables []Table) error {
	for _, table := range tables {
		var text strings.Builder
		if err := table.Print(&text); err != nil {
			return err
		}
		if !strings.Contains(text.String(), report.Verdict(false)) {
			lines := strings.ReplaceAll(strings.TrimSuffix(text.String(), "\n"), "\n", "\n  ")
			fmt.Fprintf(out, "%s: %s\n  %s\n\n", section, report.Verdict(false), lines)
		}
	}
	return nil
}

// Update writes tables between their markers, on a page or those of a directory.
func Update(page string, tables []Table) error {
	for _, table := range tables {
		if err := report.Update(page, table.Marker, table.Markdown()); err != nil {
			return err
		}
	}
	return nil
}

// CheckMarkers returns an error unless the page, or one of the directory's, has a place for every
// table.
func CheckMarkers[E any](pages string, sections []Section[E]) error {
	for _, s := range sections {
		for _, marker := range s.Markers {
			page, err := report.Page(pages, marker)
			if err != nil {
				return fmt.Errorf("look for the tables of %s: %w", s.Name, err)
			}
			text, err := os.ReadFile(page)
			if err != nil {
				return fmt.Errorf("look for the tables of %s: %w", s.Name, err)
			}
			for _, line := range []string{"<!-- begin " + marker + " -->\n", "<!-- end " + marker + " -->\n"} {
				if strings.Count(string(text), line) != 1 {
					return fmt.Errorf("%s: the table %s of %s needs one line %q", page, marker, s.Name,
						strings.TrimSpace(line))
				}
			}
		}
	}
	return nil
}

// Pick returns what a comma-separated list names, in its own order. kind is what the list is of.
func Pick[T any](all []T, list, kind string, name func(T) string) (picked []T, err error) {
	wanted := strings.Split(list, ",")
	for _, one := range all {
		if i := slices.Index(wanted, name(one)); i >= 0 {
			wanted = slices.Delete(wanted, i, i+1)
			picked = append(picked, one)
		}
	}
	if len(wanted) > 0 {
		return nil, fmt.Errorf("there is no %s %q: choose from %s", kind, wanted[0], List(all, name))
	}
	return picked, nil
}

// List returns a comma-separated list of all names.
func List[T any](all []T, name func(T) string) string {
	var names []string
	for _, one := range all {
		names = append(names, name(one))
	}
	return strings.Join(names, ",")
}
