package jvm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// script fetches JDKs, from the root of the repository.
const script = "scripts/jdks"

// AllVersions stands for every version that can be fetched.
const AllVersions = "all"

// Fetched returns JDKs of these versions from the cache of scripts/jdks, oldest first. Each has a
// root directory of its own, and no compiler. The error names the command that fetches the missing
// ones.
func Fetched(ctx context.Context, versions ...string) ([]JDK, error) {
	return runScript(ctx, append([]string{"-c"}, versions...))
}

// Fetch is Fetched, but fetches what is missing: some 45 MB for each.
func Fetch(ctx context.Context, versions ...string) ([]JDK, error) { return runScript(ctx, versions) }

func runScript(ctx context.Context, args []string) ([]JDK, error) {
	path, err := findScript()
	if err != nil {
		return nil, err
	}
	var complaint bytes.Buffer
	run := exec.CommandContext(ctx, path, args...)
	run.Stderr = &complaint
	homes, err := run.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", script, strings.Join(args, " "), err,
			bytes.TrimSpace(complaint.Bytes()))
	}
	var jdks []JDK
	for _, home := range strings.Fields(string(homes)) {
		jdk, err := openFetched(home)
		if err != nil {
			return nil, fmt.Errorf("JDK in %s: %w", home, err)
		}
		jdks = append(jdks, jdk)
	}
	slices.SortFunc(jdks, func(a, b JDK) int { return cmp.Compare(a.Version, b.Version) })
	return jdks, nil
}

// openFetched looks at a home that the script printed: ROOT/usr/lib/jvm/NAME.
func openFetched(home string) (JDK, error) {
	root, _, found := strings.Cut(home, Root+"/")
	if !found {
		return JDK{}, fmt.Errorf("not below %s of another root", Root)
	}
	jdk, err := openRuntime(home)
	if errors.Is(err, fs.ErrNotExist) {
		jdk, err = openPackage(home, filepath.Join(root, "packages"))
	}
	jdk.Root = root
	return jdk, err
}

var packageName = regexp.MustCompile(`(?m)^openjdk-(\d+)-jre-headless_([^-_]+)`)

// openPackage looks for the version in the script's list of packages: JDK 8 has no release file.
func openPackage(home, packages string) (JDK, error) {
	list, err := os.ReadFile(packages)
	if err != nil {
		return JDK{}, err
	}
	m := packageName.FindSubmatch(list)
	if m == nil {
		return JDK{}, fmt.Errorf("no package of a JDK in %s", packages)
	}
	version, err := strconv.Atoi(string(m[1]))
	return JDK{Home: home, Version: version, Release: string(m[2])}, err
}

// findScript searches for the script from the working directory upwards: tests run in the directory
// of their package.
func findScript() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find %s: %w", script, err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if path := filepath.Join(dir, script); isFile(path) {
			return path, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no " + script + " in any directory above: run this inside the repository")
		}
	}
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
