package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/tests/binary"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/kernels/wire"
)

// diskSize is that of the image, of which only what is written takes space.
const diskSize = "4G"

// programs are those that live tests start by name.
var programs = []string{"sh", "sleep", "cat", "env", "mkdir", "mount", "unshare", "chroot"}

// startedByTests are built here: there is no compiler on the disk.
var startedByTests = []string{"cmd/vmprof-agent", "tests/guests/offcpu"}

const module = "github.com/vmprof-agent/vmprof-agent/"

// buildDisk writes the image of an ext4 file system to output, with what live tests of packages
// need: test binaries, the agent, JDKs of these versions from this machine, the libraries of all,
// and compiled guests.
func buildDisk(
	ctx context.Context, packages []testPackage, versions string, args []string, scratch, output string,
) error {
	s := stage{root: filepath.Join(scratch, "disk")}
	for _, dir := range []string{"dev", "proc", "sys", "run", "etc", "tmp", "var/tmp", wire.Home, wire.BuiltDir,
		wire.TestDir, wire.ObjectDir} {
		if err := os.MkdirAll(s.path(dir), 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{"tmp", "var/tmp"} {
		if err := os.Chmod(s.path(dir), 0o777|fs.ModeSticky); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		wire.Arguments: strings.Join(args, "\n"),
		"/etc/passwd":  "root:x:0:0:root:" + wire.Home + ":/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
		"/etc/hosts":   "127.0.0.1 localhost\n",
	} {
		if err := os.WriteFile(s.path(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := s.addSystem(); err != nil {
		return err
	}
	if err := s.addJDKs(ctx, versions); err != nil {
		return err
	}
	if err := s.addLibraries(ctx); err != nil {
		return err
	}
	for _, name := range startedByTests {
		if _, err := binary.Build(ctx, module+name, s.path(wire.BuiltDir)); err != nil {
			return err
		}
	}
	for _, p := range packages {
		dir := path.Join(wire.TestDir, p.Step())
		if err := compile(ctx, "test", p.ImportPath, s.path(path.Join(dir, wire.TestBin))); err != nil {
			return err
		}
		if err := s.addTree(filepath.Join(p.Dir, "testdata"), path.Join(dir, "testdata"), nil); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	mke2fs := exec.CommandContext(ctx, "mke2fs", "-q", "-t", "ext4", "-d", s.root, output, diskSize)
	mke2fs.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if mke2fs.Err != nil { // not in PATH of those who are not root
		mke2fs.Path, mke2fs.Err = "/usr/sbin/mke2fs", nil
	}
	if out, err := mke2fs.CombinedOutput(); err != nil {
		return fmt.Errorf("make a file system (package e2fsprogs): %w\n%s", err, out)
	}
	return os.RemoveAll(s.root)
}

// A stage is a directory with what will be on a disk.
type stage struct {
	root string
	elf  []string // files of this machine that are there as well, and may need libraries
}

func (s *stage) path(name string) string { return filepath.Join(s.root, name) }

// addSystem adds programs, in directories as this machine has them: /bin may be a link to /usr/bin.
func (s *stage) addSystem() error {
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		if target, err := os.Readlink("/" + dir); err == nil {
			if err := errors.Join(os.MkdirAll(s.path(path.Join("/", target)), 0o755),
				os.Symlink(target, s.path(dir))); err != nil {
				return err
			}
		}
	}
	for _, name := range programs {
		program, err := exec.LookPath(name)
		if err != nil {
			return fmt.Errorf("copy a program that tests need: %w", err)
		}
		if err := s.addFile(program, program); err != nil {
			return err
		}
	}
	return nil
}

// unneeded are directories and files of a JDK that no JVM reads.
var unneeded = []string{"jmods", "legal", "man", "docs", "demo", "include", "lib/src.zip"}

// addJDKs adds JDKs of these versions, and guests that the oldest one has compiled.
func (s *stage) addJDKs(ctx context.Context, versions string) error {
	installed, err := jvm.Find(jvm.Root)
	if err != nil {
		return err
	}
	chosen, err := chooseJDKs(installed, versions)
	if err != nil {
		return err
	}
	for _, jdk := range chosen {
		if err := s.addTree(jdk.Home, jdk.Home, unneeded); err != nil {
			return fmt.Errorf("copy %v: %w", jdk, err)
		}
	}
	classes, err := guests.Compile(ctx, chosen[0])
	if err != nil {
		return err
	}
	cache := path.Join(wire.Home, ".cache", filepath.Base(filepath.Dir(classes)))
	if err := s.addTree(classes, path.Join(cache, filepath.Base(classes)), nil); err != nil {
		return fmt.Errorf("copy compiled guests: %w", err)
	}
	return nil
}

// chooseJDKs returns those of the versions, separated by commas; "oldest" is the oldest one.
func chooseJDKs(installed []jvm.JDK, versions string) ([]jvm.JDK, error) {
	var chosen []jvm.JDK
	for version := range strings.SplitSeq(versions, ",") {
		i := slices.IndexFunc(installed, func(j jvm.JDK) bool {
			return version == "oldest" ||
				version == strconv.Itoa(j.Version)
		})
		if i < 0 {
			return nil, fmt.Errorf("no JDK %s in %s", version, jvm.Root)
		}
		chosen = append(chosen, installed[i])
	}
	slices.SortFunc(chosen, func(a, b jvm.JDK) int { return cmp.Compare(a.Version, b.Version) })
	return chosen, nil
}

// addTree copies a directory, and what links in it lead to.
func (s *stage) addTree(from, to string, without []string) error {
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		info, err := os.Stat(name) // follows links
		switch {
		case errors.Is(err, fs.ErrNotExist): // a link that leads nowhere
			return nil
		case err != nil:
			return err
		case slices.Contains(without, rel) && d.IsDir():
			return fs.SkipDir
		case slices.Contains(without, rel):
			return nil
		case d.IsDir():
			return os.MkdirAll(s.path(path.Join(to, rel)), 0o755)
		case info.IsDir(): // a link to one
			target, err := filepath.EvalSymlinks(name)
			if err != nil {
				return err
			}
			return s.addTree(target, path.Join(to, rel), nil)
		case info.Mode().IsRegular():
			return s.addFile(name, path.Join(to, rel))
		}
		return nil
	})
}

// addFile copies a file, or the one that a link leads to.
func (s *stage) addFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.path(to)), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(s.path(to), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, info.Mode().Perm()|0o444)
	if err != nil {
		return err
	}
	defer out.Close()
	r := bufio.NewReader(in)
	if magic, _ := r.Peek(4); bytes.Equal(magic, []byte("\x7fELF")) {
		s.elf = append(s.elf, from)
	}
	_, err = io.Copy(out, r)
	return errors.Join(err, out.Close())
}

// addLibraries adds the shared libraries of all that was added. Those of windows and sound are not
// needed.
func (s *stage) addLibraries(ctx context.Context) error {
	elf := slices.DeleteFunc(slices.Clone(s.elf), func(name string) bool {
		base := filepath.Base(name)
		return slices.ContainsFunc([]string{"awt", "splashscreen", "fontmanager", "sound"},
			func(part string) bool { return strings.Contains(base, part) })
	})
	out, err := exec.CommandContext(ctx, "ldd", elf...).Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) { // it also fails when one of the files is static
		return fmt.Errorf("list shared libraries: %w", err)
	}
	for _, library := range parseLibraries(out) {
		if _, err := os.Stat(s.path(library)); err == nil {
			continue
		}
		if err := s.addFile(library, library); err != nil {
			return fmt.Errorf("copy a shared library: %w", err)
		}
	}
	return nil
}

// parseLibraries returns the paths in the output of ldd, each once: "libc.so.6 => /lib/libc.so.6
// (0x7f…)", and the loader without a name.
func parseLibraries(text []byte) []string {
	var found []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		for i, field := range fields {
			if strings.HasPrefix(field, "/") && i+1 < len(fields) && strings.HasPrefix(fields[i+1], "(0x") {
				found = append(found, field)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
