package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// A kernelPackage is one Debian package of a kernel. It is fetched and unpacked, never installed.
type kernelPackage struct {
	Name    string // linux-image-6.1.0-56-cloud-amd64
	Version string // of the package, not of the kernel: 6.1.192-2
}

// kernelImage returns the path of a kernel of a series in the cache directory. apt's lists are updated if they do not have one, or have one
// that is gone from the archive.
func kernelImage(ctx context.Context, series, cache string) (string, error) {
	try := func() (string, error) {
		p, err := findKernel(ctx, series)
		if err != nil {
			return "", err
		}
		return p.Image(ctx, cache)
	}
	path, err := try()
	if err == nil || ctx.Err() != nil {
		return path, err
	}
	if err := renewLists(); err != nil {
		return "", err
	}
	return try()
}

// renewLists updates apt's lists, once.
var renewLists = sync.OnceValue(func() error {
	update := []string{"apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", "update"}
	if os.Geteuid() != 0 {
		update = append([]string{"sudo", "-n"}, update...)
	}
	if out, err := exec.Command(update[0], update[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("renew apt's lists: %w\n%s", err, bytes.TrimSpace(out))
	}
	return nil
})

// findKernel asks apt for the package of a series ("6.1") in Debian today. The series' own metapackage comes first; the unversioned one is
// the release's default kernel. Cloud kernels are small and have every driver that the emulated machine needs built in.
func findKernel(ctx context.Context, series string) (kernelPackage, error) {
	for _, meta := range []string{"linux-image-" + series + "-cloud-amd64", "linux-image-cloud-amd64"} {
		out, err := exec.CommandContext(ctx, "apt-cache", "show", meta).Output()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			continue // apt-cache reports a missing package in this way
		}
		if err != nil {
			return kernelPackage{}, fmt.Errorf("ask apt for %s: %w", meta, err)
		}
		if p, ok := parseMeta(out, series); ok {
			return p, nil
		}
	}
	return kernelPackage{}, fmt.Errorf("apt knows no cloud kernel %s: add the Debian release that ships it to apt's sources", series)
}

var dependsOnImage = regexp.MustCompile(`(?m)^Depends:.*\b(linux-image-([0-9]+\.[0-9]+)\.[^ ,]*-cloud-amd64) \(= ([^)]+)\)`)

// parseMeta reads the records of a metapackage, newest first, as apt-cache prints them.
func parseMeta(records []byte, series string) (kernelPackage, bool) {
	for _, m := range dependsOnImage.FindAllSubmatch(records, -1) {
		if string(m[2]) == series {
			return kernelPackage{Name: string(m[1]), Version: string(m[3])}, true
		}
	}
	return kernelPackage{}, false
}

// Image returns the path of the package's kernel in the cache directory, downloading it (about 30 MB, of which
// 10 MB are kept) if it is not there yet.
func (p kernelPackage) Image(ctx context.Context, cache string) (string, error) {
	path := filepath.Join(cache, p.Name+"_"+p.Version+".bzImage")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(cache, "download-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	deb, err := p.download(ctx, dir)
	if err != nil {
		return "", err
	}
	unpacked := filepath.Join(dir, "vmlinuz")
	if err := extractKernel(ctx, deb, unpacked); err != nil {
		return "", fmt.Errorf("unpack %s: %w", filepath.Base(deb), err)
	}
	// The rename makes sure that an interrupted run leaves no incomplete kernel in the cache.
	return path, os.Rename(unpacked, path)
}

// download lets apt fetch the package, which checks it against the archive's signature.
func (p kernelPackage) download(ctx context.Context, dir string) (string, error) {
	// As root, apt would download as a user who may not enter dir, and warn.
	cmd := exec.CommandContext(ctx, "apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", p.Name+"="+p.Version)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("download %s %s (apt-get update may help): %w\n%s", p.Name, p.Version, err, bytes.TrimSpace(out))
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) != 1 {
		return "", fmt.Errorf("download %s: apt-get left %d packages, not one", p.Name, len(debs))
	}
	return debs[0], nil
}

// extractKernel writes the package's one boot/vmlinuz-* to path.
func extractKernel(ctx context.Context, deb, path string) error {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = copyKernel(tar.NewReader(bufio.NewReader(out)), path)
	out.Close()
	// The modules after the kernel are not read, so dpkg-deb dies of a closed pipe: its status is meaningless.
	_ = cmd.Wait()
	return err
}

func copyKernel(archive *tar.Reader, path string) error {
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return errors.New("no boot/vmlinuz-* inside")
		}
		if err != nil {
			return err
		}
		if !strings.HasPrefix(filepath.Clean(h.Name), "boot/vmlinuz-") {
			continue
		}
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, archive)
		return errors.Join(err, f.Close())
	}
}
