package jvm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// A Build is the input of a compilation.
type Build struct {
	Sources   fs.FS    // .java files are compiled, other files are copied beside the classes
	Only      []string // the files of Sources that are wanted, all of them when empty
	Release   int      // the Java version to compile for, MinVersion at least
	Classpath []string // jars that the sources need
	Cache     string   // directory that keeps results between runs, created if missing; "" means CacheDir
}

// CacheDir is where this user's results are kept.
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place for compiled guests: %w", err)
	}
	return filepath.Join(dir, "vmprof-agent-tests"), nil
}

// Compile returns the directory with the classes of b, which it compiles unless an earlier run did.
//
// A result is stored under the hash of all of its inputs, and appears there atomically: parallel
// runs do not disturb each other.
func (j JDK) Compile(ctx context.Context, b Build) (string, error) {
	if b.Cache == "" {
		var err error
		if b.Cache, err = CacheDir(); err != nil {
			return "", err
		}
	}
	files, err := b.files()
	if err != nil {
		return "", fmt.Errorf("read sources: %w", err)
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%s %d %q\n", j.Release, b.Release, b.Classpath)
	for _, file := range files {
		fmt.Fprintf(hash, "%s %d\n", file.path, len(file.text))
		hash.Write(file.text)
	}
	kept := filepath.Join(b.Cache, "classes-"+hex.EncodeToString(hash.Sum(nil)[:8]))
	if _, err := os.Stat(kept); err == nil {
		return kept, nil
	}

	if err := os.MkdirAll(b.Cache, 0o755); err != nil {
		return "", fmt.Errorf("create the compilation cache: %w", err)
	}
	dir, err := os.MkdirTemp(b.Cache, "compile-")
	if err != nil {
		return "", fmt.Errorf("create a compilation directory: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := j.compile(ctx, b, files, dir); err != nil {
		return "", err
	}
	if err := os.Rename(dir, kept); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("keep compiled classes: %w", err)
	}
	return kept, nil
}

// A source is one file of a Build.
type source struct {
	path string // relative to the root of the sources
	text []byte
}

func (b Build) files() ([]source, error) {
	paths := b.Only
	if len(paths) == 0 {
		err := fs.WalkDir(b.Sources, ".", func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() {
				paths = append(paths, path)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	files := make([]source, 0, len(paths))
	for _, path := range paths {
		text, err := fs.ReadFile(b.Sources, path)
		if err != nil {
			return nil, err
		}
		files = append(files, source{path: path, text: text})
	}
	return files, nil
}

// compile puts the classes and the other files into dir, which must exist.
func (j JDK) compile(ctx context.Context, b Build, files []source, dir string) error {
	args := []string{"-d", ".", "-encoding", "UTF-8", "-Xlint:all", "--release", strconv.Itoa(b.Release)}
	if len(b.Classpath) > 0 {
		args = append(args, "-Xlint:-path,-classfile,-deprecation", "-classpath", strings.Join(b.Classpath, ":"))
	}
	for _, file := range files {
		path := filepath.Join(dir, file.path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("lay out sources: %w", err)
		}
		if err := os.WriteFile(path, file.text, 0o644); err != nil {
			return fmt.Errorf("lay out sources: %w", err)
		}
		if strings.HasSuffix(file.path, ".java") {
			args = append(args, file.path)
		}
	}
	javac := exec.CommandContext(ctx, j.tool("javac"), args...)
	javac.Dir = dir
	if output, err := javac.CombinedOutput(); err != nil {
		return fmt.Errorf("compile with %v: %w\n%s", j, err, output)
	}
	return nil
}
