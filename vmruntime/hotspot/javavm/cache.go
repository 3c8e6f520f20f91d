package javavm

// A Cache keeps values up to a number of bytes. It has two generations: values that were not asked
// for while the young one filled up go when the next one does, so that what is used stays and
// nothing needs to be sorted.
type Cache[K comparable, V interface{ Bytes() int }] struct {
	limit      int // bytes, of both generations
	size       int // bytes, of the young one
	young, old map[K]V
}

// NewCache keeps up to limit bytes.
func NewCache[K comparable, V interface{ Bytes() int }](limit int) *Cache[K, V] {
	return &Cache[K, V]{limit: limit, young: make(map[K]V)}
}

// Get returns the value of a key, if it is kept.
func (c *Cache[K, V]) Get(key K) (V, bool) {
	if v, ok := c.young[key]; ok {
		return v, true
	}
	v, ok := c.old[key]
	if ok {
		c.Add(key, v)
	}
	return v, ok
}

// Add keeps a value.
func (c *Cache[K, V]) Add(key K, v V) {
	if c.size+v.Bytes() > c.limit/2 {
		c.old, c.young, c.size = c.young, make(map[K]V), 0
	}
	if before, ok := c.young[key]; ok {
		c.size -= before.Bytes()
	}
	c.young[key] = v
	c.size += v.Bytes()
}

// A Key identifies a method: classes that are unloaded may leave their addresses to others.
type Key struct {
	Addr  uint64
	Epoch uint32
	// Walked: what it was in interpreted frames of that epoch. Otherwise it is what was read in it,
	// and its methodinfo.Body is to be compared with what stands there.
	Walked bool
}
