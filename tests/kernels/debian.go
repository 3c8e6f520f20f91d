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
	Version string // version of the package, not of the kernel: 6.1.192-2
}

// newest is the series of the newest kernel that Debian has.
const newest = "newest"

// kernelImage returns the path of a kernel. Its name is that of a file, an image or a Debian
// package with one, if it has a slash. Otherwise it is a series ("6.1") of this machine's Debian,
// or newest, and the kernel is downloaded into the cache directory.
func kernelImage(ctx context.Context, name, cache string) (string, error) {
	switch {
	case strings.HasSuffix(name, ".deb") && strings.Contains(name, "/"):
		path := filepath.Join(cache, strings.TrimSuffix(filepath.Base(name), ".deb")+".bzImage")
		return path, unpackKernel(ctx, name, path)
	case strings.Contains(name, "/"):
		_, err := os.Stat(name)
		return name, err
	case name == newest:
		apt, err := allOfDebian(ctx, filepath.Join(cache, "apt"))
		if err != nil {
			return "", err
		}
		return apt.kernelImage(ctx, name, cache)
	}
	path, err := apt{}.kernelImage(ctx, name, cache)
	if err == nil || ctx.Err() != nil {
		return path, err
	}
	// apt's lists may not have one, or have one that is gone from the archive.
	if err := renewLists(); err != nil {
		return "", err
	}
	return apt{}.kernelImage(ctx, name, cache)
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

// apt is one set of apt's lists.
type apt struct {
	conf string // the configuration file that names it; "": this machine's
}

// allOfDebian returns lists of the releases of Debian that have the newest kernels. They are in
// dir, which is apart from this machine's.
func allOfDebian(ctx context.Context, dir string) (apt, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return apt{}, fmt.Errorf("find scripts/debian: %w", err)
	}
	script := filepath.Join(strings.TrimSpace(string(out)), "scripts", "debian")
	if out, err := exec.CommandContext(ctx, script, dir, "sid", "trixie-backports").CombinedOutput(); err != nil {
		return apt{}, fmt.Errorf("ask Debian for its newest kernel: %w\n%s", err, bytes.TrimSpace(out))
	}
	return apt{filepath.Join(dir, "conf")}, nil
}

func (a apt) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	if a.conf != "" {
		args = append([]string{"-c", a.conf}, args...)
	}
	return exec.CommandContext(ctx, name, args...)
}

// kernelImage is for a series in these lists.
func (a apt) kernelImage(ctx context.Context, series, cache string) (string, error) {
	p, err := a.findKernel(ctx, series)
	if err != nil {
		return "", err
	}
	return a.image(ctx, p, cache)
}

// findKernel asks apt for the package of a series in Debian today. The series' own metapackage
// comes first; the unversioned one is the release's default kernel. Cloud kernels are small and
// have every driver that the emulated machine needs built in.
func (a apt) findKernel(ctx context.Context, series string) (kernelPackage, error) {
	for _, meta := range []string{"linux-image-" + series + "-cloud-amd64", "linux-image-cloud-amd64"} {
		out, err := a.command(ctx, "apt-cache", "show", meta).Output()
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
	return kernelPackage{}, fmt.Errorf("apt knows no cloud kernel %s: add the Debian release that ships it to apt's "+
		"sources, or give the path of a kernel", series)
}

var dependsOnImage = regexp.MustCompile(`(?m)^Depends:.*\b(linux-image-([0-9]+\.[0-9]+)[^ ,]*-cloud-amd64) \(= ([^)]+)\)`)

// parseMeta reads the records of a metapackage as apt-cache prints them, the one with the newest
// version first.
func parseMeta(records []byte, series string) (kernelPackage, bool) {
	for _, m := range dependsOnImage.FindAllSubmatch(records, -1) {
		if series == newest || string(m[2]) == series {
			return kernelPackage{Name: string(m[1]), Version: string(m[3])}, true
		}
	}
	return kernelPackage{}, false
}

// image returns the path of the package's kernel in the cache directory, downloading it (about 30
// MB, of which 10 MB are kept) if it is not there yet.
func (a apt) image(ctx context.Context, p kernelPackage, cache string) (string, error) {
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
	// Since Linux 7.2, Debian has the kernel itself in a package of its own.
	binary := kernelPackage{strings.Replace(p.Name, "linux-image-", "linux-binary-", 1), p.Version}
	if a.command(ctx, "apt-cache", "show", binary.Name+"="+binary.Version).Run() == nil {
		p = binary
	}
	deb, err := a.download(ctx, p, dir)
	if err != nil {
		return "", err
	}
	return path, unpackKernel(ctx, deb, path)
}

// download lets apt fetch the package, which checks it against the archive's signature.
func (a apt) download(ctx context.Context, p kernelPackage, dir string) (string, error) {
	// As root, apt would download as a user who may not enter dir, and warn.
	cmd := a.command(ctx, "apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", p.Name+"="+p.Version)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("download %s %s (apt-get update may help): %w\n%s", p.Name, p.Version, err,
			bytes.TrimSpace(out))
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) != 1 {
		return "", fmt.Errorf("download %s: apt-get left %d packages, not one", p.Name, len(debs))
	}
	return debs[0], nil
}

// unpackKernel writes the package's kernel to path. The rename makes sure that an interrupted run
// leaves no incomplete kernel in the cache.
func unpackKernel(ctx context.Context, deb, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), "unpack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	unpacked := filepath.Join(dir, "vmlinuz")
	if err := extractKernel(ctx, deb, unpacked); err != nil {
		return fmt.Errorf("unpack %s: %w", filepath.Base(deb), err)
	}
	return os.Rename(unpacked, path)
}

// extractKernel writes the package's one kernel to path.
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
	// The modules after the kernel are not read, so dpkg-deb dies of a closed pipe: its status is
	// meaningless.
	_ = cmd.Wait()
	return err
}

// imageName matches where packages have the kernel: linux-image-*, and linux-binary-*.
var imageName = regexp.MustCompile(`^(boot/vmlinuz-[^/]+|usr/lib/modules/[^/]+/vmlinuz)$`)

func copyKernel(archive *tar.Reader, path string) error {
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return errors.New("no kernel inside")
		}
		if err != nil {
			return err
		}
		if !imageName.MatchString(filepath.Clean(h.Name)) {
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
