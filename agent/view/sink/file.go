package sink

import (
	"io"
	"path/filepath"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/host/outfile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// Write writes a part of p to the file at path in the format of its extension, or to stdout as
// pprof if path is Stdout. A file appears whole or not at all, and one that was there before stays
// until then: see package outfile.
func Write(path string, stdout io.Writer, p *profile.Profile, content Content) error {
	format, err := FormatOf(path)
	if err != nil {
		return err
	}
	return write(path, stdout, func(w io.Writer) error { return format.Encode(w, p, content) })
}

// WriteStored is Write for a profile that has been converted already. It cannot write collapsed
// stacks.
func WriteStored(path string, stdout io.Writer, p *pprof.Profile) error {
	format, err := FormatOf(path)
	if err != nil {
		return err
	}
	return write(path, stdout, func(w io.Writer) error { return format.encodeStored(w, baseName(path), p) })
}

// baseName is the name of a file without its directory and ending.
func baseName(path string) string {
	name := filepath.Base(path)
	return strings.TrimSuffix(name, filepath.Ext(name))
}

func write(path string, stdout io.Writer, encode func(io.Writer) error) error {
	if path == Stdout {
		return encode(stdout)
	}
	return outfile.Write(path, encode)
}

// CheckWritable says whether Write to path would fail, as far as this can be known before there is
// a profile. The error names the remedy. It leaves nothing behind.
func CheckWritable(path string) error {
	if _, err := FormatOf(path); err != nil || path == Stdout {
		return err
	}
	return outfile.Check(path)
}
