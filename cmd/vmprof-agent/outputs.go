package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/sink"
)

// Where a recording goes unless -o says: a file, or for several parts a directory.
const (
	defaultOutput    = "vmprof.pb.gz"
	defaultDirectory = "vmprof"
)

// An output is a file that a part of the recording goes to, and once it is written, what is in it.
type output struct {
	part
	path   string
	stored *pprof.Profile // in the form that views are made of
}

// outputs are the files of the recording. If there are several, -o names their directory.
func (o *recordOptions) outputs() []output {
	parts := o.parts()
	if len(parts) == 1 {
		return []output{{part: parts[0], path: o.output}}
	}
	var all []output
	for _, p := range parts {
		all = append(all, output{part: p, path: filepath.Join(o.output, p.name+".pb.gz")})
	}
	return all
}

// checkOutputs says whether the files can be written, and makes their directory.
func checkOutputs(outputs []output) error {
	for _, out := range outputs {
		if len(outputs) > 1 {
			if err := makeDirectory(filepath.Dir(out.path)); err != nil {
				return err
			}
		}
		if err := sink.CheckWritable(out.path); err != nil {
			return err
		}
	}
	return nil
}

// makeDirectory makes the directory for several files, unless there is one.
func makeDirectory(path string) error {
	err := os.Mkdir(path, 0o777)
	if info, statErr := os.Stat(path); errors.Is(err, fs.ErrExist) && statErr == nil && info.IsDir() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create the directory of -o for the files of several events: %w", err)
	}
	return nil
}

// write writes the outputs of a window that nobody else has. Each part is converted once: of deep stacks it is the largest
// thing in memory.
func (o *recordOptions) write(stdout io.Writer, p *profile.Profile, outputs []output) error {
	for i := range outputs {
		out := &outputs[i]
		content := out.content
		if content&sink.Time != 0 {
			content |= sink.ContentOf(p) & sink.Entries
		}
		var err error
		if out.stored, err = sink.PprofOf(p, content); err != nil {
			return err
		}
		if format, err := sink.FormatOf(out.path); err == nil && format == sink.FormatCollapsed {
			if err := sink.WriteOf(out.path, stdout, p, out.content); err != nil {
				return err
			}
			continue
		}
		if i == len(outputs)-1 {
			p.Processes = nil
		}
		if err := sink.WriteStored(out.path, stdout, out.stored); err != nil {
			return err
		}
	}
	return nil
}
