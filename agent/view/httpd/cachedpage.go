package httpd

import (
	"bytes"
	"net/http"
	"strconv"
	"sync"
)

const (
	// maxCachedPages is how many pages are kept for those who ask for the same one again.
	maxCachedPages = 8
	// maxPages is how many pages there are at once, with those that are still being read. Times
	// maxPageBytes, it is the memory that pages take.
	maxPages = 12
)

// A page is an answer in memory, shared by all who read it. It is not changed once it is finished.
type page struct {
	header http.Header
	status int
	body   []byte
	size   int // bytes of the whole page: no more than maxPageBytes of it are kept

	key     string // key in the cache, which guards what follows
	version uint64
	readers int
	kept    bool // the cache keeps it
}

func newPage() *page { return &page{header: make(http.Header), status: http.StatusOK} }

func (p *page) Header() http.Header    { return p.header }
func (p *page) WriteHeader(status int) { p.status = status }

// Write keeps what still fits.
func (p *page) Write(b []byte) (int, error) {
	p.size += len(b)
	if p.size <= maxPageBytes {
		p.body = append(p.body, b...)
	}
	return len(b), nil
}

// finish trims pprof's menus.
func (p *page) finish() {
	const head = "</head>"
	at := bytes.Index(p.body, []byte(head))
	if at < 0 || p.size > maxPageBytes {
		return
	}
	p.size += len(hide) - len(head)
	body := make([]byte, 0, p.size)
	body = append(append(body, p.body[:at]...), hide...)
	p.body = append(body, p.body[at+len(head):]...)
}

// writeTo writes the page as fast as it is read. The body is not copied.
func (p *page) writeTo(w http.ResponseWriter) {
	for key, values := range p.header {
		w.Header()[key] = values
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(p.body)))
	w.WriteHeader(p.status)
	// An error means that the client went away.
	_, _ = w.Write(p.body)
}

// A pageCache holds the pages of the last windows, and counts those that are read. The zero value
// is empty.
type pageCache struct {
	mu    sync.Mutex
	pages []*page // the one that was asked for last is the last
	alive int     // number of pages that are in pages or have readers
}

// get returns a page for one more reader, or nil.
func (c *pageCache) get(key string, version uint64) *page {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, p := range c.pages {
		if p.key == key && p.version == version {
			c.pages = append(append(c.pages[:i:i], c.pages[i+1:]...), p)
			p.readers++
			return p
		}
	}
	return nil
}

// room says whether there may be one page more. It gives up kept pages for that.
func (c *pageCache) room() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.alive >= maxPages && len(c.pages) > 0 {
		c.drop(0)
	}
	return c.alive < maxPages
}

// add keeps a page, which has a reader.
func (c *pageCache) add(key string, version uint64, p *page) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pages) >= maxCachedPages {
		c.drop(0)
	}
	p.key, p.version, p.readers, p.kept = key, version, 1, true
	c.pages = append(c.pages, p)
	c.alive++
}

// release is for a reader that is done.
func (c *pageCache) release(p *page) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.readers--
	c.settle(p)
}

// forget gives up the pages of all versions but one.
func (c *pageCache) forget(version uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.pages) - 1; i >= 0; i-- {
		if c.pages[i].version != version {
			c.drop(i)
		}
	}
}

func (c *pageCache) drop(i int) {
	p := c.pages[i]
	c.pages = append(c.pages[:i:i], c.pages[i+1:]...)
	p.kept = false
	c.settle(p)
}

// settle counts a page that nobody has any more.
func (c *pageCache) settle(p *page) {
	if !p.kept && p.readers == 0 {
		c.alive--
	}
}
