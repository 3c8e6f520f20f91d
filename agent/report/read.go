package report

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	pprof "github.com/google/pprof/profile"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/vmprof-agent/vmprof-agent/agent/stored"
)

func isCalls(t *pprof.ValueType) bool {
	return t.Type == stored.TypeCalls && t.Unit == stored.UnitCount
}

// HasCalls says that a stored profile has a sample type for calls, though maybe none of them.
func HasCalls(p *pprof.Profile) bool { return slices.ContainsFunc(p.SampleType, isCalls) }

// holdsCalls says that a stored profile has calls.
func holdsCalls(p *pprof.Profile) bool {
	return HasCalls(p) && anyCalls(p, func(*pprof.Sample) bool { return true })
}

// holdsContexts says that a stored profile has calls with their whole context. Sampled edges have two frames.
func holdsContexts(p *pprof.Profile) bool { return HasCalls(p) && anyCalls(p, hasContext) }

// hasContext says of a sample of calls that it is a whole stack: one of ours, or whatever another profiler wrote.
func hasContext(s *pprof.Sample) bool {
	engine := label(s, stored.LabelEngine)
	return engine == "" || engine == stored.ExactEngine
}

func anyCalls(p *pprof.Profile, which func(*pprof.Sample) bool) bool {
	index := typeIndex(p, stored.TypeCalls)
	return slices.ContainsFunc(p.Sample, func(s *pprof.Sample) bool { return s.Value[index] > 0 && which(s) })
}

// HasTime says that a stored profile has a sample type for samples.
func HasTime(p *pprof.Profile) bool { return typeIndex(p, stored.TypeSamples) >= 0 }

// HasEntries reports whether a stored profile counts how often samples found contexts newly entered.
func HasEntries(p *pprof.Profile) bool {
	index := slices.IndexFunc(p.SampleType, func(t *pprof.ValueType) bool { return t.Type == stored.TypeEntries && t.Unit == stored.UnitCount })
	return index >= 0 && slices.ContainsFunc(p.Sample, func(s *pprof.Sample) bool { return s.Value[index] > 0 })
}

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
