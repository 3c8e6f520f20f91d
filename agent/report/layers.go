package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/stored"
)

// A layer is the part of a program that a method belongs to.
type layer uint8

const (
	appLayer layer = iota
	jdkLayer
	noLayer // code without a name, or not of the program
	layerCount
)

// jdkPrefixes are the packages of the Java class library.
var jdkPrefixes = []string{"java.", "javax.", "jdk.", "sun.", "com.sun."}

// layerOf returns the layer that m belongs to: the application if app matches its name; nil for whatever is not in the
// Java class library.
func layerOf(m Method, app *regexp.Regexp) layer {
	switch {
	case m.Native, strings.HasPrefix(m.Name, "["):
		return noLayer
	case app != nil && app.MatchString(m.Name):
		return appLayer
	case app != nil:
		return jdkLayer
	}
	for _, prefix := range jdkPrefixes {
		if strings.HasPrefix(m.Name, prefix) {
			return jdkLayer
		}
	}
	return appLayer
}

// describeLayers says what the columns of the matrix mean.
func describeLayers(app *regexp.Regexp) string {
	if app != nil {
		return "App: methods that match " + stored.Printable(app.String()) + "; JDK: all others"
	}
	return "App: everything but " + strings.Join(jdkPrefixes, "*, ") + "*, which are JDK"
}

// Layers writes how the calls in a profile cross between the application and the Java class library, a line for each
// process and engine, as Table 2 of Moret, Binder and Villazón (PEPM 2009) does. A sixth column holds the calls that
// are in none of the four: from or to code without a name or not of the program, and those that have no caller.
// Options.App says what the application is; nil options are DefaultViewOptions. It fails if the profile has no calls.
func Layers(w io.Writer, p *pprof.Profile, opts *ViewOptions) error {
	if opts == nil {
		opts = DefaultViewOptions()
	}
	rows, err := newLayerRows(p, opts)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	count := len("calls") // columns
	for _, r := range rows {
		count = max(count, len(fmt.Sprint(r.total)))
	}
	fmt.Fprintf(out, "Calls within and between application and JDK\n")
	fmt.Fprintf(out, "App->App JDK->App App->JDK JDK->JDK   others %*s  process\n", count, "calls")
	shown, rest := first(opts.N, rows)
	for _, r := range shown {
		var line strings.Builder
		for _, calls := range []uint64{
			r.calls[appLayer][appLayer], r.calls[jdkLayer][appLayer],
			r.calls[appLayer][jdkLayer], r.calls[jdkLayer][jdkLayer], r.others(),
		} {
			fmt.Fprintf(&line, "%7.2f%% ", 100*float64(calls)/float64(r.total))
		}
		fmt.Fprintf(&line, "%*d  ", count, r.total)
		fmt.Fprint(out, line.String(), shorten(r.name(), room(opts.Width, line.Len())), "\n")
	}
	if len(rest) > 0 {
		fmt.Fprintf(out, "%s\n", stored.Plural(len(rest), "more line"))
	}
	writeFolded(out, describeLayers(opts.App), opts.Width)
	return flush(out, "layers")
}

// A layerRow is the matrix of one process, as one engine saw it.
type layerRow struct {
	process, engine string
	calls           [layerCount][layerCount]uint64 // by layer of the caller and of the callee
	total           uint64                         // never 0
}

func newLayerRows(p *pprof.Profile, opts *ViewOptions) ([]*layerRow, error) {
	if !HasCalls(p) {
		return nil, ErrNoCalls
	}
	s, err := newStacks(p, stored.TypeCalls)
	if err != nil {
		return nil, err
	}
	// Engines have lines of their own, as their weights do not add up; see engineCalls.
	type key struct{ process, engine string }
	rows := make(map[key]*layerRow)
	layers := make(map[Method]layer) // known ones, as an expression takes longer than a look-up
	layerOf := func(m Method) layer {
		l, known := layers[m]
		if !known {
			l = layerOf(m, opts.App)
			layers[m] = l
		}
		return l
	}
	for sample, calls := range s.all() {
		at := key{processName(sample), label(sample, stored.LabelEngine)}
		r := rows[at]
		if r == nil {
			r = &layerRow{process: at.process, engine: at.engine}
			rows[at] = r
		}
		e := s.edge(sample)
		r.calls[layerOf(e.Caller)][layerOf(e.Callee)] += calls
		r.total += calls
	}
	if len(rows) == 0 {
		return nil, ErrNoCalls
	}
	list := make([]*layerRow, 0, len(rows))
	for _, r := range rows {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b *layerRow) int {
		return cmp.Or(cmp.Compare(b.total, a.total), strings.Compare(a.process, b.process), strings.Compare(a.engine, b.engine))
	})
	return list, nil
}

// others are the calls from or to something that is in neither layer.
func (r *layerRow) others() (calls uint64) {
	for l := range layerCount {
		calls += r.calls[noLayer][l]
		if l != noLayer {
			calls += r.calls[l][noLayer]
		}
	}
	return calls
}

func (r *layerRow) name() string {
	if r.engine == "" {
		return r.process
	}
	return r.process + ", " + r.engine
}
