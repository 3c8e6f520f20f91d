package estimate

import "slices"

// A copyTree is how methods were inlined into a code.
type copyTree struct {
	copies   []Copy
	children [][]int32 // by copy: those that were inlined into it
}

// newCopyTree returns false if nothing is known, or if it is not a tree of known methods.
func newCopyTree(in *Input, id CodeID) (copyTree, bool) {
	copies := in.Codes[id].Copies
	if len(copies) == 0 || copies[0].Method != in.Codes[id].Method {
		return copyTree{}, false
	}
	t := copyTree{copies, make([][]int32, len(copies))}
	for i := 1; i < len(copies); i++ {
		c := &copies[i]
		if c.Parent < 0 || int(c.Parent) >= i || !in.knowsMethod(c.Method) {
			return copyTree{}, false
		}
		t.children[c.Parent] = append(t.children[c.Parent], int32(i))
	}
	return t, true
}

// inlined reports whether calls of a method at a bytecode of copy i were compiled away.
func (t *copyTree) inlined(i, bci int32, callee MethodID) bool {
	for _, j := range t.children[i] {
		if c := &t.copies[j]; c.BCI == bci && c.Method == callee {
			return true
		}
	}
	return false
}

// makes reports whether the copy makes calls at a bytecode.
func (c *Copy) makes(bci int32) bool {
	_, ok := slices.BinarySearch(c.Calls, bci)
	return ok
}

// chain is the inline chain of copy i, with room for the innermost place.
func (t *copyTree) chain(i int32) []Place {
	chain := []Place{{}}
	for i > 0 {
		c := &t.copies[i]
		chain = append(chain, Place{t.copies[c.Parent].Method, c.BCI})
		i = c.Parent
	}
	return chain
}
