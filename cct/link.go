package cct

// An Activation is a frame of a stack as a Chain sees it: not only which method, but where on the stack. M identifies a
// method (one version of its code, as each has frames of its own size), S a call site in it.
type Activation[M, S comparable] struct {
	Method M
	Site   S      // where in Method the call to the next inner frame stands; not used of a leaf
	Depth  uint32 // bytes from the base of the stack to the frame's canonical frame address; 0: unknown
}

// A Link is what is known of a sample without walking its stack: the quadruple of Inoue and Nakatani (OOPSLA 2009,
// section 6.1), {callee, its depth, caller, its depth}, and the call site, which they do not have.
type Link[M, S comparable] struct {
	Leaf   Activation[M, S]
	Caller Activation[M, S] // zero if it is not known
}

func (l Link[M, S]) called() bool { return l.Caller != Activation[M, S]{} }
