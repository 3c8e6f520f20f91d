package usdt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
)

// A Version is one of PHP: 8.2.35.
type Version struct {
	Major, Minor, Patch int
}

// String is the version for people.
func (v Version) String() string { return fmt.Sprintf("PHP %d.%d.%d", v.Major, v.Minor, v.Patch) }

// errNoVersion: a file without the header that PHP sends with its version, expose_php.
var errNoVersion = errors.New("no version of PHP in this file")

// versionText is SAPI_PHP_VERSION_HEADER (main/SAPI.h), a constant in every build.
var versionText = regexp.MustCompile(`X-Powered-By: PHP/(\d{1,3})\.(\d{1,3})\.(\d{1,3})`)

// findVersion searches a file of size bytes for its version of PHP. It reads the file once, in
// pieces.
func findVersion(r io.ReaderAt, size int64) (Version, error) {
	const (
		piece   = 64 << 10
		overlap = 64 // longer than the text
	)
	prefix := []byte("X-Powered-By: PHP/")
	buf := make([]byte, piece+overlap)
	for off := int64(0); off < size; off += piece {
		n, err := r.ReadAt(buf[:min(int64(len(buf)), size-off)], off)
		if err != nil && !errors.Is(err, io.EOF) {
			return Version{}, fmt.Errorf("search for the version of PHP: %w", err)
		}
		if !bytes.Contains(buf[:n], prefix) { // far faster than the regular expression
			continue
		}
		if m := versionText.FindSubmatch(buf[:n]); m != nil {
			number := func(b []byte) int {
				v, _ := strconv.Atoi(string(b)) // at most three digits
				return v
			}
			return Version{number(m[1]), number(m[2]), number(m[3])}, nil
		}
	}
	return Version{}, errNoVersion
}
