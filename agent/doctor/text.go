package doctor

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// The columns of the text: status, title, and whatever is left.
const (
	statusWidth = 9  // "missing" or "limited", and two spaces
	titleWidth  = 24 // "CAP_CHECKPOINT_RESTORE", and two spaces
	minWidth    = 60 // narrower terminals wrap by themselves
	maxWidth    = 100
)

// WriteText writes one line for each finding, cut into several where it is wider than the
// terminal's width in columns, then why those that are not met matter and, after an arrow, how to
// mend them. JVMs that are alike share a line unless all is true. The last line sums up.
func (r Report) WriteText(w io.Writer, width int, all bool) error {
	t := &text{width: min(max(width, minWidth), maxWidth)}
	for _, f := range r.Findings {
		t.finding(f)
	}
	vms := slices.Concat(r.JVMs, r.Interpreters)
	for _, f := range findings(vms, all) {
		t.finding(f)
	}
	for _, f := range notes(vms, all) {
		t.finding(f)
	}
	t.line("", "")
	t.paragraph("", r.summary())
	_, err := io.WriteString(w, t.String())
	return err
}

// notes puts what applies to several JVMs into one line for all of them.
func notes(jvms []JVM, all bool) (findings []Finding) {
	type key struct{ kind, note string }
	var order []key
	pids := map[key][]int{}
	for _, j := range jvms {
		for _, note := range j.Notes {
			k := key{j.kind, note}
			if pids[k] == nil {
				order = append(order, k)
			}
			pids[k] = append(pids[k], j.PID)
		}
	}
	for _, k := range order {
		findings = append(findings, Finding{
			Title:  "note",
			Result: Result{Status: Info, Detail: "on " + k.kind + " " + pidList(pids[k], all), Why: k.note},
		})
	}
	return findings
}

// summary is what a reader wants to know first.
func (r Report) summary() string {
	var missing, limited []string
	for _, f := range r.Findings {
		switch f.Status {
		case Missing:
			missing = append(missing, f.Title)
		case Limited:
			limited = append(limited, f.Title)
		}
	}
	switch {
	case len(missing) > 0:
		return "Recording does not work here. Missing: " + strings.Join(missing, ", ") + "."
	case len(limited) > 0:
		return "Recording works here, with limits: " + strings.Join(limited, ", ") + "."
	}
	return "Recording works here."
}

// text is the page that is being written.
type text struct {
	strings.Builder
	width  int
	remedy string // the last one
}

func (t *text) finding(f Finding) {
	first := fmt.Sprintf("%-*s%-*s", statusWidth, f.Status, titleWidth, f.Title)
	t.paragraph(first, f.Detail)
	if f.Status == OK {
		return
	}
	indent := strings.Repeat(" ", statusWidth)
	if f.Why != "" {
		t.paragraph(indent, f.Why)
	}
	arrow := indent[3:] + "-> "
	switch f.Remedy {
	case "":
	case t.remedy:
		t.paragraph(arrow, "As above.")
	default:
		t.paragraph(arrow, f.Remedy)
		t.remedy = f.Remedy
	}
}

// paragraph breaks s between words. The first line begins with that prefix, the others are indented
// as far.
func (t *text) paragraph(prefix, s string) {
	indent := strings.Repeat(" ", len(prefix))
	line := ""
	for _, word := range strings.Fields(s) {
		word = symbol.CleanName(word) // it may contain what a target named
		if line != "" && len(prefix)+len(line)+1+len(word) > t.width {
			t.line(prefix, line)
			prefix, line = indent, ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	t.line(prefix, line)
}

func (t *text) line(prefix, s string) {
	t.WriteString(strings.TrimRight(prefix+s, " "))
	t.WriteByte('\n')
}

// count is for people: 1 CPU, 2 CPUs.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// size formats a number of bytes in the largest unit that divides it.
func size(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB"}
	i := 0
	for n > 0 && n%1024 == 0 && i < len(units)-1 {
		n /= 1024
		i++
	}
	return fmt.Sprintf("%d %s", n, units[i])
}
