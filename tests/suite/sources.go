package suite

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

// sourcePackage is Debian's package of a JDK's sources.
const sourcePackage = "openjdk-%d-source"

// sourceTree is the part of the sources that programs read.
const sourceTree = "java.base/java/util/"

// sourceBytes bounds what is unpacked; the tree has 12 MB.
const sourceBytes = 64 << 20

// Sources returns a directory with java.base/java/util of the JDK's sources, which programs that
// read Java have as their input. It must not be changed.
func Sources(ctx context.Context, jdk jvm.JDK) (string, error) {
	cache, err := jvm.CacheDir()
	if err != nil {
		return "", err
	}
	return jdkSources(ctx, jdk, cache)
}

// jdkSources returns a directory with java.base/java/util of the JDK's sources, kept in cache
// between runs.
//
// They come from the JDK's own src.zip. Where the JDK was installed without, the package is
// downloaded and unpacked, not installed: its version may be a newer one than the JDK's, and
// installing it would upgrade the JDK. javac of one feature release compiles the sources of all its
// updates.
func jdkSources(ctx context.Context, jdk jvm.JDK, cache string) (string, error) {
	kept := filepath.Join(cache, "sources-"+jdk.Release)
	if _, err := os.Stat(kept); err == nil {
		return kept, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("create the source cache: %w", err)
	}
	work, err := os.MkdirTemp(cache, "sources-")
	if err != nil {
		return "", fmt.Errorf("create a source directory: %w", err)
	}
	defer os.RemoveAll(work)

	archive := filepath.Join(jdk.Home, "lib", "src.zip")
	if _, err := os.Stat(archive); err != nil {
		if archive, err = download(ctx, jdk, work); err != nil {
			return "", err
		}
	}
	tree := filepath.Join(work, "tree")
	if err := unzip(archive, tree); err != nil {
		return "", fmt.Errorf("unpack %s: %w", archive, err)
	}
	if err := os.Rename(tree, kept); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("keep sources: %w", err)
	}
	return kept, nil
}

// download returns the src.zip in Debian's package, unpacked below dir.
func download(ctx context.Context, jdk jvm.JDK, dir string) (string, error) {
	name := fmt.Sprintf(sourcePackage, jdk.Version)
	script := `cd "$1" && apt-get download -q "$2" && dpkg-deb --extract "$2"_*.deb .`
	if output, err := exec.CommandContext(ctx, "sh", "-c", script, "sh", dir, name).CombinedOutput(); err != nil {
		return "", fmt.Errorf("download %s (no src.zip in %s): %w\n%s", name, jdk.Home, err, output)
	}
	return filepath.Join(dir, "usr", "lib", "jvm", fmt.Sprintf("openjdk-%d", jdk.Version), "lib", "src.zip"), nil
}

// unzip unpacks the archive's source tree below dir.
func unzip(archive, dir string) error {
	files, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer files.Close()
	var total int64
	for _, file := range files.File {
		if !strings.HasPrefix(file.Name, sourceTree) || !strings.HasSuffix(file.Name, ".java") {
			continue
		}
		written, err := unzipFile(file, dir, sourceBytes-total)
		if err != nil {
			return fmt.Errorf("%s: %w", file.Name, err)
		}
		total += written
	}
	if total == 0 {
		return fmt.Errorf("no sources below %s", sourceTree)
	}
	return nil
}

func unzipFile(file *zip.File, dir string, limit int64) (int64, error) {
	if !filepath.IsLocal(file.Name) {
		return 0, errors.New("path leads out of the archive")
	}
	if file.UncompressedSize64 > uint64(limit) {
		return 0, fmt.Errorf("larger than the %d bytes left of %d", limit, sourceBytes)
	}
	path := filepath.Join(dir, file.Name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return 0, err
	}
	from, err := file.Open()
	if err != nil {
		return 0, err
	}
	defer from.Close()
	to, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	written, err := io.Copy(to, from) // archive/zip stops at the announced size
	return written, errors.Join(err, to.Close())
}
