// Package sink writes profiles: as pprof, as pages, as collapsed stacks, for speedscope, and as
// text. Package report/input reads pprof back.
//
//	err := sink.CheckWritable(path) // before recording, not after
//	err = sink.Write(path, os.Stdout, profile, sink.ContentOf(profile)) // the format follows from the extension
//
// Names in a profile were chosen by the programs that were profiled and are hostile input. Whatever
// they are, the output is well-formed, and no terminal that shows it executes them.
package sink

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report"
)

// Stdout is the path that stands for standard output.
const Stdout = "-"

// A Format is a way to write a profile.
type Format uint8

const (
	FormatPprof      Format = iota + 1 // gzipped protocol buffer
	FormatCollapsed                    // one line a stack
	FormatText                         // a report for people
	FormatHTML                         // a page: see Page
	FormatSpeedscope                   // JSON for speedscope
)

// FormatOf chooses the format for path by its extension: .html, .pb.gz, .json, .folded or .txt, and
// pprof for Stdout. The error for any other lists these.
func FormatOf(path string) (Format, error) {
	name := strings.ToLower(filepath.Base(path))
	switch {
	case path == Stdout, strings.HasSuffix(name, ".pb.gz"):
		return FormatPprof, nil
	case strings.HasSuffix(name, ".folded"):
		return FormatCollapsed, nil
	case strings.HasSuffix(name, ".txt"):
		return FormatText, nil
	case strings.HasSuffix(name, ".html"):
		return FormatHTML, nil
	case strings.HasSuffix(name, ".json"):
		return FormatSpeedscope, nil
	}
	return 0, fmt.Errorf("unknown format of output %q: use a name that ends in .html (flame graph and tables), "+
		".pb.gz (pprof), .json (speedscope), .folded (collapsed stacks) or .txt (report)", path)
}

// Encode writes a part of p to w.
func (f Format) Encode(w io.Writer, p *profile.Profile, content Content) error {
	if f == FormatCollapsed {
		return Collapsed(w, p, content)
	}
	stored, err := Pprof(p, content)
	if err != nil {
		return err
	}
	return f.encodeStored(w, "profile", stored)
}

// Together says that one file of the format has all parts of a recording.
func (f Format) Together() bool { return f == FormatHTML || f == FormatSpeedscope }

// encodeStored writes a converted profile to w, under a name: as pprof, as a page or for
// speedscope, or as the report of it.
func (f Format) encodeStored(w io.Writer, name string, p *pprof.Profile) error {
	switch f {
	case FormatPprof:
		if err := p.Write(w); err != nil {
			return fmt.Errorf("write pprof profile: %w", err)
		}
		return nil
	case FormatText:
		return report.Text(w, p)
	case FormatHTML:
		page := Page{Title: name}
		page.Add(name+".pb.gz", p)
		return page.Write(w)
	case FormatSpeedscope:
		return Speedscope(w, name, p)
	}
	return fmt.Errorf("format %d is not made of a converted profile", f)
}
