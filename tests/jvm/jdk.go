// Package jvm finds the JDKs of this machine, compiles Java sources once, and runs guests: JVMs
// that are steered by lines on their standard input.
//
//	jdk, err := jvm.Oldest()
//	classes, err := jdk.Compile(ctx, jvm.Build{Sources: sources, Release: jvm.MinVersion})
//	guest, err := jvm.Start(ctx, jvm.Command{JDK: jdk, Classpath: []string{classes}, Main: "guest.Main"})
//	defer guest.Close()
//	answer, err := guest.Order("truth")
package jvm

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Root is where Debian's packages and most others put their JDKs, each in a directory of its own.
const Root = "/usr/lib/jvm"

// A JDK is an installed Java development kit.
type JDK struct {
	Home    string // its directory, symbolic links resolved
	Root    string // the directory that is the root of its processes, which Home is below; "" for the machine's own
	Version int    // 17 for 17.0.15
	Release string // 17.0.15
}

// ErrNoJDK says that no JDK is installed.
var ErrNoJDK = fmt.Errorf("no JDK %d or later in %s: install openjdk-17-jdk-headless or default-jdk-headless",
	MinVersion, Root)

// MinVersion is the oldest version that guests are written for; older ones are not looked for.
const MinVersion = 17

// Find returns the JDKs below root that can compile, oldest first, one of each version.
func Find(root string) ([]JDK, error) {
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for JDKs: %w", err)
	}
	var found []JDK
	for _, entry := range entries {
		home, err := filepath.EvalSymlinks(filepath.Join(root, entry.Name()))
		if err != nil {
			continue // a dangling link is not a JDK
		}
		jdk, err := open(home)
		if err != nil || jdk.Version < MinVersion {
			continue // neither is a JRE, or a directory of documentation
		}
		found = append(found, jdk)
	}
	slices.SortFunc(found, func(a, b JDK) int {
		return cmp.Or(cmp.Compare(a.Version, b.Version), cmp.Compare(a.Home, b.Home))
	})
	return slices.CompactFunc(found, func(a, b JDK) bool { return a.Version == b.Version }), nil
}

// Oldest returns the oldest JDK below Root, or ErrNoJDK: JDK 17 if there is one. Classes compiled
// by it run on all.
func Oldest() (JDK, error) { return oldest(Root) }

func oldest(root string) (JDK, error) {
	jdks, err := Find(root)
	if err != nil {
		return JDK{}, err
	}
	if len(jdks) == 0 {
		return JDK{}, ErrNoJDK
	}
	return jdks[0], nil
}

// String is the JDK's name in tables.
func (j JDK) String() string { return "JDK " + j.Release }

// Java is the path of the JVM's launcher.
func (j JDK) Java() string { return j.tool("java") }

func (j JDK) tool(name string) string { return filepath.Join(j.Home, "bin", name) }

// open reads the release file of the JDK in home: lines of KEY="value".
func open(home string) (JDK, error) {
	if _, err := os.Stat(filepath.Join(home, "bin", "javac")); err != nil {
		return JDK{}, err
	}
	return openRuntime(home)
}

// openRuntime is open for a JDK without a compiler.
func openRuntime(home string) (JDK, error) {
	file, err := os.Open(filepath.Join(home, "release"))
	if err != nil {
		return JDK{}, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), "=")
		if key != "JAVA_VERSION" {
			continue
		}
		release := strings.Trim(value, `"`)
		major, _, _ := strings.Cut(strings.TrimPrefix(release, "1."), ".") // JDK 8 calls itself 1.8.0
		version, err := strconv.Atoi(major)
		if err != nil {
			return JDK{}, fmt.Errorf("version %q: %w", release, err)
		}
		return JDK{Home: home, Version: version, Release: release}, nil
	}
	return JDK{}, errors.Join(lines.Err(), errors.New("no JAVA_VERSION in the release file"))
}
