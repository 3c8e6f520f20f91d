package symbolize

import "sync"

// A Name is a function's name in two forms, both clean.
type Name struct {
	Function string // for people: demangled
	System   string // as the linker has it
}

// maxNames is the size of each generation of a nameCache. Two generations of names of at most
// 2*MaxName bytes take at most 9 MB; a usual name takes 200 bytes.
const maxNames = 4096

// A nameCache caches demangled names, as demangling takes microseconds and the same few thousand
// functions are on top of most stacks. When the young generation is full, it replaces the old one,
// and names that are still requested come back: this approximates LRU without a list.
type nameCache struct {
	mu         sync.Mutex
	young, old map[symbolID]Name
}

// symbolID is one symbol of one loaded table. It is not a pointer, so that the cache does not keep
// tables alive.
type symbolID struct {
	object uint64
	symbol int
}

// get returns the name of id, which create makes if it is not cached. Two callers may both make it;
// nobody waits.
func (c *nameCache) get(id symbolID, create func() Name) Name {
	if name, ok := c.find(id); ok {
		return name
	}
	name := create()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(id, name)
	return name
}

func (c *nameCache) find(id symbolID) (Name, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name, ok := c.young[id]
	if !ok {
		if name, ok = c.old[id]; ok {
			c.put(id, name)
		}
	}
	return name, ok
}

// put must be called with the lock held.
func (c *nameCache) put(id symbolID, name Name) {
	if c.young == nil || len(c.young) >= maxNames {
		c.old, c.young = c.young, make(map[symbolID]Name)
	}
	c.young[id] = name
}
