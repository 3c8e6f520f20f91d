package hotspot

// A cache keeps values up to a number of bytes. It has two generations: values that were not asked
// for while the young one filled up go when the next one does, so that what is used stays and
// nothing needs to be sorted.
type cache[K comparable, V interface{ Bytes() int }] struct {
	limit      int // bytes, of both generations
	size       int // bytes, of the young one
	young, old map[K]V
}

func newCache[K comparable, V interface{ Bytes() int }](limit int) *cache[K, V] {
	return &cache[K, V]{limit: limit, young: make(map[K]V)}
}

func (c *cache[K, V]) get(key K) (V, bool) {
	if v, ok := c.young[key]; ok {
		return v, true
	}
	v, ok := c.old[key]
	if ok {
		c.add(key, v)
	}
	return v, ok
}

func (c *cache[K, V]) add(key K, v V) {
	if c.size+v.Bytes() > c.limit/2 {
		c.old, c.young, c.size = c.young, make(map[K]V), 0
	}
	if before, ok := c.young[key]; ok {
		c.size -= before.Bytes()
	}
	c.young[key] = v
	c.size += v.Bytes()
}

// A methodKey identifies a method: classes that are unloaded may leave their addresses to others.
type methodKey struct {
	addr  uint64
	epoch uint32
	// walked: what it was in interpreted frames of that epoch. Otherwise it is what was read in it,
	// and its methodBody is to be compared with what stands there.
	walked bool
}
