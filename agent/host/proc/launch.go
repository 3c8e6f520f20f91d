package proc

import (
	"bytes"
	"io"
	"os"
	"path"
	"slices"
	"strings"
)

const (
	// maxCommand bounds what is read of a process's arguments and of its environment. Class paths
	// of JVMs are the longest of the arguments in use; what comes after the bound is not read.
	maxCommand = 256 << 10
	// maxHostname bounds /etc/hostname: HOST_NAME_MAX is 64.
	maxHostname = 256
	// Of the argument files of one java command.
	maxArgumentFiles = 8
	maxArgumentFile  = 64 << 10
)

// Launch reads how a process was started and where it runs. This is memory of the process and files
// of its root: call it through a Pool. What cannot be read is empty, as the environment and files
// take more privilege than the arguments.
func (r Root) Launch(pid int) (Launch, error) {
	arguments, err := r.Arguments(pid)
	if err != nil {
		return Launch{}, err
	}
	l := Launch{Arguments: arguments}
	l.Executable, _ = r.Executable(pid)
	l.Environment, _ = r.Environment(pid)
	// The kernel bounds a link by PATH_MAX.
	l.Directory, _ = os.Readlink(r.path(pid, "cwd"))
	read := r.launchFiles(pid, &l.Refused)
	l.Hostname = printable(bytes.TrimSpace(read("/etc/hostname", maxHostname)))
	if l.java() {
		l.Arguments = expand(read, l.Directory, arguments)
	}
	return l, nil
}

// launchFiles reads files of a process. It returns nothing of those that cannot be read, and
// appends the errors of those that are refused.
func (r Root) launchFiles(pid int, refused *[]error) func(name string, limit int64) []byte {
	return func(name string, limit int64) []byte {
		text, err := r.readRegular(pid, name, limit)
		if Refused(err) {
			*refused = append(*refused, err)
		}
		return text
	}
}

// expand replaces the argument files of a java command, @FILE, by what is in them. Files that
// cannot be read, and those beyond the bound, are left out.
func expand(read func(name string, limit int64) []byte, directory string, arguments []string) []string {
	list := slices.Clone(arguments[:1])
	files := 0
	for i, arg := range arguments[1:] {
		name, ok := strings.CutPrefix(arg, "@")
		switch {
		case arg == "--disable-@files", !ok && isMain(arguments, i+1):
			return append(list, arguments[i+1:]...)
		case !ok:
			list = append(list, arg)
		case strings.HasPrefix(name, "@"): // an argument that begins with @
			list = append(list, name)
		case files < maxArgumentFiles:
			files++
			if !path.IsAbs(name) {
				name = path.Join(directory, name)
			}
			list = append(list, splitOptions(string(read(name, maxArgumentFile)), maxOptions)...)
		}
	}
	return list
}

// isMain reports whether the argument may name what java runs: later ones are the application's,
// and none of these is an argument file.
func isMain(arguments []string, i int) bool {
	return arguments[i] == "-jar" || arguments[i] == "-m" || arguments[i] == "--module" ||
		strings.HasPrefix(arguments[i], "--module=") ||
		!strings.HasPrefix(arguments[i], "-") && !takesValue(arguments[i-1])
}

// readRegular reads a regular file as the process sees it, up to a limit, if the process's user may
// read it.
func (r Root) readRegular(pid int, name string, limit int64) ([]byte, error) {
	f, err := r.OpenFile(pid, name, limit)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// Arguments reads the arguments of a process. They are the process's own memory: call this through
// a Pool.
func (r Root) Arguments(pid int) ([]string, error) { return r.words(pid, "cmdline") }

// Environment reads the variables NAME=VALUE that a process was started with, under the terms of
// Arguments.
func (r Root) Environment(pid int) ([]string, error) { return r.words(pid, "environ") }

// words reads a file of words that end with a zero byte. The last one may be cut.
func (r Root) words(pid int, name string) ([]string, error) {
	b, err := r.readSome(pid, maxCommand, name)
	if err != nil {
		return nil, err
	}
	b = bytes.TrimSuffix(b, []byte{0})
	if len(b) == 0 {
		return nil, nil
	}
	return strings.Split(string(b), "\x00"), nil
}
