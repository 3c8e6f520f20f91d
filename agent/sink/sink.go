// Package sink writes profiles: as pprof, as collapsed stacks, and as text. Package report reads them back.
//
//	err := sink.CheckWritable(path) // before recording, not after
//	err = sink.Write(path, os.Stdout, profile, sink.ContentOf(profile)) // the format follows from the extension
//
// Names in a profile were chosen by the programs that were profiled and are hostile input. Whatever they are, the output is
// well-formed, and no terminal that shows it executes them.
package sink

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/report"
)

// Stdout is the path that stands for standard output.
const Stdout = "-"

// A Format is a way to write a profile.
type Format uint8

const (
	FormatPprof     Format = iota + 1 // gzipped protocol buffer
	FormatCollapsed                   // one line a stack
	FormatText                        // a report for people
)

// FormatOf chooses the format for path by its extension: .pb.gz, .folded or .txt, and pprof for Stdout. The error
// for any other lists these.
func FormatOf(path string) (Format, error) {
	name := strings.ToLower(filepath.Base(path))
	switch {
	case path == Stdout, strings.HasSuffix(name, ".pb.gz"):
		return FormatPprof, nil
	case strings.HasSuffix(name, ".folded"):
		return FormatCollapsed, nil
	case strings.HasSuffix(name, ".txt"):
		return FormatText, nil
	}
	return 0, fmt.Errorf("unknown format of output %q: use a name that ends in .pb.gz (pprof), .folded (collapsed stacks) or .txt (report)", path)
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
	return f.encodeStored(w, stored)
}

// encodeStored writes a converted profile to w: as pprof, or as the report of it.
func (f Format) encodeStored(w io.Writer, p *pprof.Profile) error {
	switch f {
	case FormatPprof:
		if err := p.Write(w); err != nil {
			return fmt.Errorf("write pprof profile: %w", err)
		}
		return nil
	case FormatText:
		return report.Text(w, p)
	}
	return fmt.Errorf("format %d is not made of a converted profile", f)
}
