package sink

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// Write writes a part of p to the file at path in the format of its extension, or to stdout as pprof if path is Stdout. A
// file appears whole or not at all, and one that was there before stays until then.
func Write(path string, stdout io.Writer, p *profile.Profile, content Content) error {
	format, err := FormatOf(path)
	if err != nil {
		return err
	}
	return write(path, stdout, func(w io.Writer) error { return format.Encode(w, p, content) })
}

// WriteStored is Write for a profile that has been converted already. It cannot write collapsed stacks.
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

func write(path string, stdout io.Writer, encode func(io.Writer) error) (err error) {
	if path == Stdout {
		return encode(stdout)
	}
	path, err = target(path)
	if err != nil {
		return err
	}
	temp, err := createTemp(path)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			temp.Close() // again, if it was Close that failed: harmless
			os.Remove(temp.Name())
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	if err := encode(temp); err != nil {
		return err
	}
	// Without Sync a crash of the machine may leave the new name with no content.
	if err := temp.Sync(); err != nil {
		return err
	}
	if err := temp.Close(); err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}

// CheckWritable says whether Write to path would fail, as far as this can be known before there is a profile. The
// error names the remedy. It leaves nothing behind.
func CheckWritable(path string) error {
	if _, err := FormatOf(path); err != nil || path == Stdout {
		return err
	}
	path, err := target(path)
	if err != nil {
		return err
	}
	temp, err := createTemp(path)
	if err != nil {
		return err
	}
	if err := errors.Join(temp.Close(), os.Remove(temp.Name())); err != nil {
		return fmt.Errorf("check that %s can be written: %w", path, err)
	}
	return nil
}

// target returns the file that a rename to path must replace: behind symbolic links, and never a device, a pipe or
// a directory.
func target(path string) (string, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil // a new file, or createTemp says what is missing
	}
	var info fs.FileInfo
	if err == nil {
		info, err = os.Stat(resolved)
	}
	if err != nil {
		return "", outputError(path, err)
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("output %s exists and is not a file: choose another name", path)
	}
	return resolved, nil
}

// createTemp creates a file next to path, from where it can be renamed to path. The caller removes it.
func createTemp(path string) (*os.File, error) {
	// Not os.CreateTemp, which makes files that only their owner may read: a profile recorded as root is meant
	// to be looked at by somebody else, and the umask is where people say otherwise.
	name := filepath.Join(filepath.Dir(path), fmt.Sprintf(".vmprof-%016x.tmp", rand.Uint64()))
	temp, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, outputError(path, err)
	}
	return temp, nil
}

// outputError says what to do about an output that cannot be created.
func outputError(path string, err error) error {
	dir := filepath.Dir(path)
	_, missing := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && missing == nil: // as in /proc
		return fmt.Errorf("output %s: files cannot be created in %s: choose another directory: %w", path, dir, err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("output %s: directory %s does not exist: create it, or choose another: %w", path, dir, fs.ErrNotExist)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("output %s: files cannot be created in %s: choose a directory of your own: %w", path, dir, fs.ErrPermission)
	}
	return fmt.Errorf("output %s: create a file in %s: %w", path, dir, err)
}
