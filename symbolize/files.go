package symbolize

import (
	"bytes"
	"container/list"
	"fmt"
	"os"
	"sync"
	"time"
)

// A FileKey identifies the content of a file. Either the build id alone is set, or the other
// fields, so that a file that was replaced or rewritten is another one.
type FileKey struct {
	Device, Inode uint64
	Size          int64 // bytes
	ModTime       int64 // nanoseconds of the file system's clock
	BuildID       string
}

// An Opener opens the file of a mapping. It is called on the goroutine that requests the file,
// which waits. The Opener must look in the right mount namespace, and must not open a file that
// would block (a FIFO).
type Opener func() (*os.File, error)

// Files is a cache of the symbols of ELF files, bounded by their memory: the least recently
// requested files are dropped, and with DropIdle those that are not in use. While a file is read,
// up to 100 MB more can be in use for a moment, if the file was crafted for that; for libjvm.so it
// is 10 MB. Several goroutines may call its methods: reading one file does not delay requests for
// another.
type Files struct {
	limit int64 // bytes
	names nameCache

	mu      sync.Mutex
	entries map[FileKey]*list.Element // elements hold *fileEntry
	recent  list.List                 // most recently used first
	bytes   int64
	lastID  uint64
}

// A fileEntry is a file in the cache, or one being read.
type fileEntry struct {
	key    FileKey
	id     uint64    // ID of the object
	once   sync.Once // reads the file
	object *Object
	err    error

	used  time.Time // guarded by Files.mu: when it was requested last
	bytes int64     // guarded by Files.mu; 0 until the file was read
	read  bool      // guarded by Files.mu: object and err are set
}

// NewFiles returns a cache of at most limit bytes.
func NewFiles(limit int64) *Files {
	return &Files{limit: limit, entries: make(map[FileKey]*list.Element)}
}

// Get returns the file with that key, which open opens if it is not in the cache. A malformed file
// is cached as such. A failure to open is not cached, as its reason may be the exit of the process.
func (c *Files) Get(key FileKey, open Opener) (*Object, error) {
	return c.GetWithDebug(key, open, DebugFiles{})
}

// GetWithDebug is Get, and looks for the debug file of a stripped file.
func (c *Files) GetWithDebug(key FileKey, open Opener, debug DebugFiles) (*Object, error) {
	return c.get(key, func() (*Object, bool, error) {
		file, err := open()
		if err != nil {
			return nil, true, fmt.Errorf("open: %w", err)
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return nil, true, fmt.Errorf("open: %w", err)
		}
		if !info.Mode().IsRegular() {
			return nil, false, fmt.Errorf("open %s: not a regular file", info.Name())
		}
		debug.most = c.limit / 2 // with more, the file would lose the names that it has itself, or push out all others
		object, err := readObject(file, info.Size(), debug)
		return object, false, err
	})
}

// Known returns what Get returned for the file of that key; ok is false if that is not in the
// cache. It opens no file.
func (c *Files) Known(key FileKey) (o *Object, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.entries[key]
	if !ok || !at.Value.(*fileEntry).read {
		return nil, false, nil
	}
	e := c.use(at)
	return e.object, true, e.err
}

// DropIdle drops files that nobody has requested since then.
func (c *Files) DropIdle(since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for at := c.recent.Back(); at != nil && at.Value.(*fileEntry).used.Before(since); at = c.recent.Back() {
		c.drop(at)
	}
}

// use notes a request. It must be called with the lock held.
func (c *Files) use(at *list.Element) *fileEntry {
	e := at.Value.(*fileEntry)
	e.used = time.Now()
	c.recent.MoveToFront(at)
	return e
}

// GetBytes is Get for an ELF file in memory, such as the vDSO: image is read if key is not in the
// cache, and not kept.
func (c *Files) GetBytes(key FileKey, image []byte) (*Object, error) {
	return c.get(key, func() (*Object, bool, error) {
		object, err := readObject(bytes.NewReader(image), int64(len(image)), DebugFiles{})
		return object, false, err
	})
}

// get returns an entry's content, which load reads at most once; load also reports whether its
// failure is temporary.
func (c *Files) get(key FileKey, load func() (object *Object, passing bool, err error)) (*Object, error) {
	e := c.entry(key)
	e.once.Do(func() {
		object, passing, err := load()
		if err == nil && object.bytes() > c.limit {
			object, err = nil, fmt.Errorf("symbols of %d bytes do not fit in the cache of %d", object.bytes(), c.limit)
		}
		e.err = err
		if err == nil {
			object.id, object.names = e.id, &c.names
			e.object = object
		}
		c.settle(e, passing)
	})
	return e.object, e.err
}

// entry returns the entry of key, new or not.
func (c *Files) entry(key FileKey) *fileEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.entries[key]; ok {
		return c.use(at)
	}
	c.lastID++
	e := &fileEntry{key: key, id: c.lastID, used: time.Now()}
	c.entries[key] = c.recent.PushFront(e)
	return e
}

// settle accounts for an entry that was read, and makes room for it.
func (c *Files) settle(e *fileEntry, passing bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.entries[e.key]
	if !ok || at.Value != any(e) {
		return // dropped while it was read: it belongs to those who wait for it
	}
	if passing {
		c.drop(at)
		return
	}
	e.read = true
	e.bytes = objectOverhead // a failure is remembered too, and costs
	if e.object != nil {
		e.bytes = e.object.bytes()
	}
	c.bytes += e.bytes
	for c.bytes > c.limit && c.recent.Len() > 0 {
		c.drop(c.recent.Back())
	}
}

func (c *Files) drop(at *list.Element) {
	e := c.recent.Remove(at).(*fileEntry)
	delete(c.entries, e.key)
	c.bytes -= e.bytes
}
