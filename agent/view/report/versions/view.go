package versions

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
)

// oftenGivenUp is how many optimised versions of a method must have been given up for it to be
// listed.
const oftenGivenUp = 2

// View returns a view of the code versions of a method, by its name; of all methods if that is "".
func View(method string) func(io.Writer, *pprof.Profile, *layout.Options) error {
	return func(w io.Writer, p *pprof.Profile, opts *layout.Options) error {
		opts = opts.OrDefault()
		vs, err := Read(p)
		if err != nil {
			return err
		}
		out := bufio.NewWriter(w)
		if method == "" {
			vs.write(out, p, opts)
			return layout.Flush(out, "versions")
		}
		list, err := vs.Find(method)
		if err != nil {
			return err
		}
		for i, m := range list {
			if i > 0 {
				out.WriteByte('\n')
			}
			vs.writeMethod(out, p, m, opts)
		}
		return layout.Flush(out, "versions")
	}
}

// seconds writes a time since the beginning of the profile.
func seconds(d time.Duration) string {
	if d < 0 {
		return "before"
	}
	return fmt.Sprintf("%.1f", d.Seconds())
}

// Began writes when a version appeared. What the VM did not announce was there by then.
func (v *Code) Began() string {
	switch {
	case !v.Known:
		return "?"
	case v.Seen && v.Since >= 0:
		return "≤" + seconds(v.Since)
	}
	return seconds(v.Since)
}

// Given writes when a version was given up: between two looks at it, if they are more than a tenth
// of a second apart. It is "" if it is in use.
func (v *Code) Given() string {
	switch {
	case !v.Known || !v.Ended():
		return ""
	case v.Until == nil:
		return "?"
	case v.InUse == nil && v.Seen:
		return "≤" + seconds(*v.Until)
	}
	from := v.Since
	if v.InUse != nil {
		from = *v.InUse
	}
	if seconds(from) == seconds(*v.Until) {
		return seconds(from)
	}
	return seconds(from) + "–" + seconds(*v.Until)
}

// Timeline is the versions of a method in the order of their beginnings, in seconds: "#812 C1 (3)
// 0.1–3.0 s · #2011 C2 3.0–41.2 s · deopt at 41.2 s: class_check · #3300 C2 from 41.9 s".
func (m *Method) Timeline() string {
	var parts []string
	for _, v := range m.Versions {
		text := v.Name()
		switch {
		case !v.Known:
		case !v.Ended():
			text += " from " + v.Began() + " s"
		case v.Until != nil:
			text += " " + v.Began() + "–" + seconds(*v.Until) + " s"
		}
		parts = append(parts, text)
		if reason, ok := strings.CutPrefix(v.End(), "deopt: "); ok && v.Until != nil {
			parts = append(parts, "deopt at "+seconds(*v.Until)+" s: "+reason)
		}
	}
	return strings.Join(parts, " · ")
}

func (vs *Versions) write(out *bufio.Writer, p *pprof.Profile, opts *layout.Options) {
	fmt.Fprintf(out, "Code versions%s\n", stacks.Elapsed(p))
	sampled := slices.DeleteFunc(slices.Clone(vs.Methods), func(m *Method) bool { return m.Total == 0 })
	several := stacks.SeveralProcesses(p)
	name := func(m *Method) func(int) string {
		text := m.Name
		if several {
			text += fmt.Sprintf(" (pid %d)", m.PID)
		}
		return func(width int) string { return layout.Shorten(text, width) }
	}
	g := layout.Grid{Head: []layout.Row{{Cells: []string{"self", "samples", "total", "versions", "in use"},
		Name: layout.Heading("method")}}}
	shown, rest := layout.First(opts.N, sampled)
	for _, m := range shown {
		var now []string
		for _, v := range m.Final() {
			now = append(now, v.Name())
		}
		inUse := "-"
		if len(now) > 0 {
			inUse = now[len(now)-1]
		}
		if len(now) > 1 {
			inUse += fmt.Sprintf(" +%d", len(now)-1)
		}
		g.Rows = append(g.Rows, layout.Row{Cells: []string{
			stored.Percent(float64(m.Self), float64(vs.Samples)), fmt.Sprint(m.Self), fmt.Sprint(m.Total),
			fmt.Sprint(len(m.Versions)), inUse}, Name: name(m)})
	}
	g.Write(out, opts.Width)
	if len(rest) > 0 {
		fmt.Fprintf(out, "%s\n", stored.Plural(len(rest), "more method"))
	}
	vs.writeList(out, opts, "Never compiled by C2 (samples, level in use)", sampled, func(m *Method) string {
		if !m.OnlyC1() {
			return ""
		}
		level := "-"
		if now := m.Final(); len(now) > 0 && now[len(now)-1].Level > 0 {
			level = fmt.Sprint(now[len(now)-1].Level)
		}
		return fmt.Sprintf("%d  %s", m.Total, level)
	})
	vs.writeList(out, opts, "Optimised code invalidated repeatedly (times, last reason)", sampled,
		func(m *Method) string {
			seen, counted := m.Deoptimized()
			if max(seen, counted) < oftenGivenUp {
				return ""
			}
			reason := "-"
			for _, v := range m.Versions {
				if v.Optimized() && v.Ended() {
					reason = v.End()
				}
			}
			return fmt.Sprintf("%d  %s", max(seen, counted), reason)
		})
	vs.writeList(out, opts, "Recompiled at the same level (times)", sampled, func(m *Method) string {
		if n := m.Recompiled(); n > 0 {
			return fmt.Sprint(n)
		}
		return ""
	})
	out.WriteByte('\n')
	layout.Fold(out, "self: samples in code of the method, with what is inlined there; total: with that code on the "+
		"stack. "+
		"For the history of one: report --view=versions METHOD FILE", opts.Width)
}

// writeList writes the methods for which cells returns something.
func (vs *Versions) writeList(
	out *bufio.Writer, opts *layout.Options, title string, list []*Method, cells func(*Method) string,
) {
	var g layout.Grid
	for _, m := range list {
		if text := cells(m); text != "" {
			g.Rows = append(g.Rows, layout.Row{Cells: strings.Split(text, "  "),
				Name: func(width int) string { return layout.Shorten(m.Name, width) }})
		}
	}
	if len(g.Rows) == 0 {
		return
	}
	var rest []layout.Row
	g.Rows, rest = layout.First(opts.N, g.Rows)
	fmt.Fprintf(out, "\n%s\n", title)
	g.Write(out, opts.Width)
	if len(rest) > 0 {
		fmt.Fprintf(out, "%s\n", stored.Plural(len(rest), "more method"))
	}
}

func (vs *Versions) writeMethod(out *bufio.Writer, p *pprof.Profile, m *Method, opts *layout.Options) {
	layout.Fold(out, fmt.Sprintf("Code versions of %s, %s (pid %d)%s", m.SystemName, m.Comm, m.PID, stacks.Elapsed(p)),
		opts.Width)
	layout.Fold(out, m.Timeline(), opts.Width)
	out.WriteByte('\n')
	g := layout.Grid{Head: []layout.Row{{Cells: []string{"from s", "until s", "size", "self", "total", "inlined"},
		Name: layout.Heading("version")}}}
	for _, v := range m.Versions {
		size := "?"
		if v.Size > 0 {
			size = layout.Bytes.Format(float64(v.Size))
		}
		text := v.Name()
		if end := v.End(); end != "" {
			text += ", " + end
		}
		until := v.Given()
		if until == "" {
			until = "-"
		}
		g.Rows = append(g.Rows, layout.Row{Cells: []string{v.Began(), until, size, fmt.Sprint(v.Self),
			fmt.Sprint(v.Total), fmt.Sprint(len(v.Inlined))},
			Name: func(int) string { return text }})
	}
	g.Write(out, opts.Width)
	if m.Interpreted > 0 {
		fmt.Fprintf(out, "%s with the method interpreted\n", layout.ManyOf(strconv.FormatUint(m.Interpreted, 10),
			"samples"))
	}
	vs.writeInlined(out, m, opts)
	for _, v := range m.Versions {
		for _, t := range v.Traps {
			layout.Fold(out, fmt.Sprintf("#%d: trap %s in %s, %s", v.ID, t.Reason, t.Method,
				stored.Plural(t.Count, "time")), opts.Width)
		}
	}
	if _, counted := m.Deoptimized(); counted >= 0 {
		fmt.Fprintf(out, "the JVM invalidated optimised code of the method %s since it started\n",
			stored.Plural(counted, "time"))
	}
	if list := vs.CompareVersions(p, m); len(list) > 0 {
		out.WriteByte('\n')
		for _, c := range list {
			layout.Fold(out, c.Sentence(), opts.Width)
		}
		layout.Fold(out, "Versions that ran one after the other also differ in warm-up and input: a difference is "+
			"not the compiler's alone.", opts.Width)
	}
	out.WriteByte('\n')
	layout.Fold(out, "from: when the JVM announced the version (≤: when the agent first saw it); until: invalidated "+
		"between two checks by the agent; "+
		"traps: counted in the version's methods from its first sample until it was invalidated, including those of "+
		"other code with the same methods", opts.Width)
}

// writeInlined writes what each version has inlined that the one before has not, and the other way
// round.
func (vs *Versions) writeInlined(out *bufio.Writer, m *Method, opts *layout.Options) {
	var before *Code
	for _, v := range m.Versions {
		if !v.Known || len(v.Inlined) == 0 && before == nil || v.Total == 0 {
			continue
		}
		var changes []string
		for _, name := range v.Inlined {
			if before == nil || !slices.Contains(before.Inlined, name) {
				changes = append(changes, "+"+name)
			}
		}
		if before != nil {
			for _, name := range before.Inlined {
				if !slices.Contains(v.Inlined, name) {
					changes = append(changes, "-"+name)
				}
			}
		}
		const most = 8
		if more := len(changes) - most; more > 0 && opts.N > 0 {
			changes = append(changes[:most], fmt.Sprintf("%d more", more))
		}
		if len(changes) > 0 {
			layout.Fold(out, fmt.Sprintf("#%d inlines %s", v.ID, strings.Join(changes, " ")), opts.Width)
		}
		before = v
	}
}
