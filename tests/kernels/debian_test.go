package main

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The shape of two releases' metapackages: bookworm's default kernel is 6.1, in two versions.
const metaRecords = `Package: linux-image-cloud-amd64
Source: linux-signed-amd64 (6.1.192+2)
Version: 6.1.192-2
Depends: linux-image-6.1.0-56-cloud-amd64 (= 6.1.192-2)
Size: 1520

Package: linux-image-cloud-amd64
Version: 6.1.176-1
Depends: linux-image-6.1.0-50-cloud-amd64 (= 6.1.176-1)
`

func TestParseMeta(t *testing.T) {
	for _, tt := range []struct {
		name, records, series string
		want                  kernelPackage
		ok                    bool
	}{
		{"newest", metaRecords, "6.1", kernelPackage{"linux-image-6.1.0-56-cloud-amd64", "6.1.192-2"}, true},
		{"other series", metaRecords, "6.12", kernelPackage{}, false},
		{"prefix of a series", "Depends: linux-image-6.12.9+deb12-cloud-amd64 (= 6.12.9-1)\n", "6.1", kernelPackage{},
			false},
		{"backport", "Depends: linux-image-6.12.9+deb12-cloud-amd64 (= 6.12.9-1~deb12u1)\n", "6.12",
			kernelPackage{"linux-image-6.12.9+deb12-cloud-amd64", "6.12.9-1~deb12u1"}, true},
		{"debug symbols", "Depends: linux-image-6.1.0-56-cloud-amd64-dbg (= 6.1.192-2)\n", "6.1", kernelPackage{},
			false},
		{"newest of all", "Depends: linux-base-cloud-amd64 (= 7.3.4-1), linux-image-7.3.4+deb13-cloud-amd64 (= " +
			"7.3.4-1)\n" + metaRecords, newest,
			kernelPackage{"linux-image-7.3.4+deb13-cloud-amd64", "7.3.4-1"}, true},
		{"release candidate", "Depends: linux-image-7.3-cloud-amd64 (= 7.3~rc7-1~exp1)\n", "7.3",
			kernelPackage{"linux-image-7.3-cloud-amd64", "7.3~rc7-1~exp1"}, true},
		{"nothing", "", "6.1", kernelPackage{}, false},
		{"nothing at all", "", newest, kernelPackage{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := parseMeta([]byte(tt.records), tt.series)
			if got != tt.want || ok != tt.ok {
				t.Errorf("got %v, %t, want %v, %t", got, ok, tt.want, tt.ok)
			}
		})
	}
}

func TestCopyKernel(t *testing.T) {
	archive := func(names ...string) *tar.Reader {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		for _, name := range names {
			if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(name))}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(name)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return tar.NewReader(&buf)
	}
	path := filepath.Join(t.TempDir(), "vmlinuz")
	for _, kernel := range []string{"./boot/vmlinuz-6.1", "./usr/lib/modules/7.3.4+deb13-cloud-amd64/vmlinuz"} {
		if err := copyKernel(archive("./boot/config-6.1", kernel, "./lib/x"), path); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != kernel {
			t.Errorf("kernel is %q, %v; want %q", got, err, kernel)
		}
	}
	if copyKernel(archive("./boot/config-6.1"), path) == nil {
		t.Error("a package without a kernel was accepted")
	}
}
