package page

import (
	"cmp"
	"iter"
	"math/bits"
	"slices"
)

// A version is code of a method at one place, from one moment to another.
type version struct {
	id          uint32
	size        uint32
	begin       uint64
	time        uint64 // as registered
	from, until uint64 // ns, CLOCK_MONOTONIC: [from, until)
	bytes       int64  // that it is charged with
	sites       []site // ascending
}

// add adds sites, in any order.
func (v *version) add(sites []site) {
	v.sites = append(v.sites, sites...)
	slices.SortStableFunc(v.sites, func(a, b site) int { return cmp.Compare(a.offset, b.offset) })
}

// line is the line of the call that returns to offset, 0 if that is unknown.
func (v *version) line(offset uint32) uint32 {
	i, ok := slices.BinarySearchFunc(v.sites, offset, func(s site, offset uint32) int { return cmp.Compare(s.offset, offset) })
	if !ok {
		return 0
	}
	return v.sites[i].line
}

// versions are code versions by place. They are in a hash table, by size class: those of a class, whose size is at
// most 1<<class bytes and more than half of that, lie in one or two of the blocks into which memory is divided at that
// size. So looking up an address takes one probe for each class in use, and adding one is cheap in whatever order a
// hostile guest does it. The zero value is ready to use.
type versions struct {
	blocks  map[block][]*version
	classes uint64 // bit n: class n was used
}

// A block is the index'th piece of memory of 1<<class bytes.
type block struct {
	class int
	index uint64
}

// maxHistory is how many versions are kept in one block. Of live ones there are three at most, unless they overlap.
const maxHistory = 16

// at visits the versions around pc, past ones too.
func (t *versions) at(pc uint64) iter.Seq[*version] {
	return func(yield func(*version) bool) {
		for classes := t.classes; classes != 0; classes &= classes - 1 {
			class := bits.TrailingZeros64(classes)
			for _, v := range t.blocks[block{class, pc >> class}] {
				if pc-v.begin < uint64(v.size) && !yield(v) {
					return
				}
			}
		}
	}
}

// find returns the version whose code was at pc at that moment, or nil. Code that came later than other code at the
// same place replaced it.
func (t *versions) find(pc, moment uint64) (best *version) {
	for v := range t.at(pc) {
		if v.from <= moment && moment < v.until && (best == nil || v.from >= best.from) {
			best = v
		}
	}
	return best
}

// blocksOf returns where v belongs: in one block or two.
func blocksOf(v *version) []block {
	class := bits.Len32(v.size - 1)
	first, last := block{class, v.begin >> class}, block{class, (v.begin + uint64(v.size) - 1) >> class}
	if first == last {
		return []block{first}
	}
	return []block{first, last}
}

// insert adds v, and returns what had to give way to it.
func (t *versions) insert(v *version) (removed []*version) {
	if t.blocks == nil {
		t.blocks = map[block][]*version{}
	}
	for _, b := range blocksOf(v) {
		if list := t.blocks[b]; len(list) >= maxHistory {
			old := oldest(list)
			t.remove(old)
			removed = append(removed, old)
		}
		t.blocks[b] = append(t.blocks[b], v)
		t.classes |= 1 << b.class
	}
	return removed
}

// oldest prefers what is gone to what is there.
func oldest(list []*version) *version {
	return slices.MinFunc(list, func(a, b *version) int {
		return cmp.Or(cmp.Compare(a.until, b.until), cmp.Compare(a.from, b.from))
	})
}

// remove takes v out; that it is not there is as well.
func (t *versions) remove(v *version) {
	for _, b := range blocksOf(v) {
		list := slices.DeleteFunc(t.blocks[b], func(o *version) bool { return o == v })
		if len(list) == 0 {
			delete(t.blocks, b)
			continue
		}
		t.blocks[b] = list
	}
}
