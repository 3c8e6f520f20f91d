package record

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"
	"golang.org/x/term"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
)

// summarize ends a recording: what was recorded, where it is, and what to do next. Stopped says
// that the processes did not run because something stopped them.
func (o *recordOptions) summarize(w io.Writer, outputs []output, together []string, stopped bool) error {
	opts := report.SummaryOptions{CPUs: runtime.NumCPU(), Stopped: stopped}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		opts.Width = max(cli.Columns(w), leastWidth)
		opts.Color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	}
	var files []*pprof.Profile
	for _, out := range outputs {
		if !out.again {
			files = append(files, out.stored)
		}
	}
	opts.Next = next(outputs, together)
	if err := report.Summary(w, files, &opts); err != nil || !o.notes {
		return err
	}
	for _, file := range files {
		fmt.Fprintln(w) // an error shows at the next write
		if err := report.Footer(w, file, opts.Width); err != nil {
			return err
		}
	}
	return nil
}

// leastWidth is how many columns a terminal has at least: in less nothing can be read.
const leastWidth = 40

// next are the lines on where the recording is, and what to do with it.
func next(outputs []output, together []string) (lines []string) {
	var first *output
	parts := 0
	for i := range outputs {
		out := &outputs[i]
		if !out.again {
			parts++
		}
		if first == nil && out.path != "" && out.path != sink.Stdout && !out.failed {
			first = out
		}
	}
	for _, out := range outputs {
		if out.path == "" || out.path == sink.Stdout || out.failed {
			continue
		}
		line := "written to " + out.path
		if parts > 1 {
			line = "written to " + filepath.Dir(out.path) + string(filepath.Separator)
		}
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	for _, path := range together {
		lines = append(lines, "written to "+path)
	}
	if what := nextCommand(first, parts, together); what != "" {
		lines = append(lines, "next: "+what)
	}
	return lines
}

// nextCommand is what to type or to do next; "" for nothing. The first file has a part of the
// recording; it is nil if there is none.
func nextCommand(first *output, parts int, together []string) string {
	for _, path := range together {
		if format, err := sink.FormatOf(path); err == nil && format == sink.FormatHTML {
			return "open " + path + " in a browser"
		}
	}
	if first == nil {
		if len(together) > 0 {
			return "open " + together[0] + " in speedscope"
		}
		return ""
	}
	file := first.path
	format, err := sink.FormatOf(file)
	switch {
	case err != nil:
		return ""
	case parts > 1:
		return "vmprof-agent report " + file
	case format == sink.FormatPprof && first.Content&sink.Slow != 0:
		return "vmprof-agent report --view=slow " + file
	case format == sink.FormatPprof && first.Content&sink.Time != 0:
		return "vmprof-agent report --view=tree " + file
	case format == sink.FormatPprof:
		return "vmprof-agent report -n 0 " + file
	case format == sink.FormatCollapsed:
		return "flamegraph.pl " + file + " > " + strings.TrimSuffix(file, filepath.Ext(file)) + ".svg"
	}
	return "less -S " + file
}

const progressInterval = 500 * time.Millisecond

// A progress is one line on a terminal that shows how a recording goes. Elsewhere it is silent.
type progress struct {
	w     io.Writer // nil: silent
	began time.Time
	total time.Duration // 0: until something else ends it
}

func newProgress(w io.Writer, began time.Time, total time.Duration) *progress {
	if f, ok := w.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		w = nil
	}
	return &progress{w, began, total}
}

const eraseLine = "\r\x1b[K"

func (p *progress) draw(a *agent.Agent) {
	if p.w == nil {
		return
	}
	c, err := a.Counts()
	if err != nil {
		return // it was logged
	}
	at := time.Since(p.began).Round(time.Second).String()
	if p.total > 0 {
		at += " of " + p.total.String()
	}
	fmt.Fprintf(p.w, "%srecording: %s, %s, %d lost, %s (Ctrl-C ends)", eraseLine, at,
		stored.Plural(int(c.Folded), "sample"), c.DroppedTotal(), stored.Plural(a.Guests(), "VM"))
}

func (p *progress) clear() {
	if p.w != nil {
		fmt.Fprint(p.w, eraseLine)
	}
}
