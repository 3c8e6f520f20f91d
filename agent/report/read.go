package report

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"

	pprof "github.com/google/pprof/profile"
	"google.golang.org/protobuf/encoding/protowire"
)

// Bounds of a stored profile. A window of the agent has a few megabytes; other profilers' largest have a hundred.
const (
	maxStored = 256 << 20 // bytes, decompressed
	// maxRecords bounds samples, locations, functions and all else at the top level. An empty record takes two
	// bytes in the file and more than a hundred once parsed, so the size alone is no bound of the memory needed.
	maxRecords = 1 << 22
)

// ReadFile reads the untrusted pprof profile at path. Any program may have written it.
func ReadFile(path string) (*pprof.Profile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open profile: %w", err)
	}
	defer f.Close()
	p, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("read profile %s: %w", path, err)
	}
	return p, nil
}

// Read reads a pprof profile, gzipped or not, or the only one in a page that record or report wrote. Of the formats that pprof knows it reads only the protocol buffer.
func Read(r io.Reader) (*pprof.Profile, error) {
	return read(r, maxStored)
}

func read(r io.Reader, limit int64) (*pprof.Profile, error) {
	data, err := readAll(r, limit)
	if err != nil {
		return nil, err
	}
	if isPage(data) {
		if data, err = profileInPage(data); err != nil {
			return nil, err
		}
	}
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) { // gzip
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("decompress: %w", err)
		}
		if data, err = readAll(z, limit); err != nil {
			return nil, fmt.Errorf("decompress: %w", err)
		}
	}
	if err := checkRecords(data); err != nil {
		return nil, err
	}
	p, err := pprof.ParseUncompressed(data)
	if err != nil {
		return nil, fmt.Errorf("this is not a pprof profile (.pb.gz): %w", err)
	}
	if err := p.CheckValid(); err != nil {
		return nil, fmt.Errorf("the profile is inconsistent: %w", err)
	}
	return p, nil
}

// readAll reads at most limit bytes.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("the profile is larger than %d MB", limit>>20)
	}
	return data, nil
}

// checkRecords steps over the top-level fields of a message to see that it is one and that there are not too many.
func checkRecords(data []byte) error {
	if len(data) == 0 {
		return errors.New("the file is empty")
	}
	for n := 0; len(data) > 0; n++ {
		if n == maxRecords {
			return fmt.Errorf("the profile has more than %d records", maxRecords)
		}
		_, _, size := protowire.ConsumeField(data)
		if size < 0 {
			return fmt.Errorf("this is not a pprof profile (.pb.gz): %w", protowire.ParseError(size))
		}
		data = data[size:]
	}
	return nil
}
