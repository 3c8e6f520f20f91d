// Package input reads pprof profiles that any program may have written, from files and from pages,
// and bounds the memory that they take.
package input

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"sync"

	pprof "github.com/google/pprof/profile"
)

// Bounds of a stored profile. A window of the agent has a few megabytes; other profilers' largest
// have a hundred.
const (
	maxStored = 256 << 20 // bytes, decompressed
	// maxMemory bounds what a profile takes in memory: the file, what is in it decompressed, and
	// what is parsed from that. It suffices for 5,800 stacks of 1,024 frames, the most that a
	// profile of the agent shows. If these are alike, the file has an 850th of that. A large file
	// may take more, so many bytes for each of its own, up to mostMemory: parsing other recordings
	// takes up to 175 times the size of their files.
	maxMemory  = 128 << 20
	perByte    = 300
	mostMemory = 2 << 30
)

// memoryFor is the bound of memory for a file of that size: GOMEMLIMIT, if it is set.
func memoryFor(size int64) int64 {
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		return limit
	}
	return max(maxMemory, min(perByte*size, mostMemory))
}

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

// Read reads a pprof profile, gzipped or not, or the only one in a page that record or report
// wrote. Of the formats that pprof knows it reads only the protocol buffer.
func Read(r io.Reader) (*pprof.Profile, error) {
	return read(r, maxStored, memoryFor)
}

func read(r io.Reader, limit int64, memory func(file int64) int64) (*pprof.Profile, error) {
	data, err := readAll(r, limit)
	if err != nil {
		return nil, err
	}
	file := int64(len(data))
	bound := memory(file)
	if isPage(data) {
		if data, err = profileInPage(data); err != nil {
			return nil, err
		}
	}
	open := func() (io.Reader, error) { return bytes.NewReader(data), nil }
	zipped := bytes.HasPrefix(data, []byte{0x1f, 0x8b}) // gzip
	if zipped {
		open = func() (io.Reader, error) {
			z, err := gzip.NewReader(bytes.NewReader(data))
			if err != nil {
				return nil, fmt.Errorf("decompress: %w", err)
			}
			return decompressor{z}, nil
		}
	}
	size, err := check(open, limit, bound-file)
	if err != nil {
		return nil, err
	}
	if zipped {
		z, err := open()
		if err != nil {
			return nil, err
		}
		data = make([]byte, size)
		if _, err := io.ReadFull(z, data); err != nil {
			return nil, err
		}
	}
	return parse(data, bound)
}

// check steps over a profile, of which it holds nothing, and returns its size. It fails if the
// profile would take too much memory.
func check(open func() (io.Reader, error), limit, bound int64) (size int64, err error) {
	r, err := open()
	if err != nil {
		return 0, err
	}
	need, size, err := measure(r, limit)
	switch {
	case err != nil:
		return 0, err
	case size == 0:
		return 0, errors.New("the file is empty")
	case size+need > bound:
		const mega = 1 << 20
		return 0, fmt.Errorf("the profile takes up to %d MB of memory, more than %d MB: set GOMEMLIMIT=%dMiB if you "+
			"trust the file",
			(size+need)/mega, bound/mega, (size+need)*5/4/mega+64)
	}
	return size, nil
}

// reading is held while a profile is parsed, as the limit of memory is one for the program.
var reading sync.Mutex

// parse reads a profile that is decompressed. What it leaves behind while it grows does not make it
// take more memory than the bound.
func parse(data []byte, bound int64) (*pprof.Profile, error) {
	reading.Lock()
	defer reading.Unlock()
	if limit := debug.SetMemoryLimit(-1); limit == math.MaxInt64 {
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		debug.SetMemoryLimit(int64(now.Sys-now.HeapReleased) + bound)
		defer debug.SetMemoryLimit(limit)
	}
	p, err := pprof.ParseUncompressed(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotProfile, err)
	}
	if err := p.CheckValid(); err != nil {
		return nil, fmt.Errorf("the profile is inconsistent: %w", err)
	}
	return p, nil
}

// readAll reads at most limit bytes, at once if it is known how many there are.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	var whole bytes.Buffer
	if f, ok := r.(*os.File); ok {
		if about, err := f.Stat(); err == nil && about.Mode().IsRegular() {
			whole.Grow(int(min(about.Size(), limit) + bytes.MinRead))
		}
	}
	if _, err := whole.ReadFrom(io.LimitReader(r, limit+1)); err != nil {
		return nil, err
	}
	if int64(whole.Len()) > limit {
		return nil, tooLarge(limit)
	}
	return whole.Bytes(), nil
}

func tooLarge(limit int64) error { return fmt.Errorf("the profile is larger than %d MB", limit>>20) }

// A decompressor names what failed.
type decompressor struct{ io.Reader }

func (d decompressor) Read(p []byte) (int, error) {
	n, err := d.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("decompress: %w", err)
	}
	return n, err
}
