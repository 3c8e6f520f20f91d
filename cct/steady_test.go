package cct

import "testing"

func TestSteady(t *testing.T) {
	var c Chain[string, int]
	link := Link[string, int]{
		Leaf:   Activation[string, int]{Method: "leaf", Depth: 64},
		Caller: Activation[string, int]{Method: "caller", Site: 1, Depth: 48},
	}
	walk := func(outer ...string) {
		stack := []Activation[string, int]{link.Leaf, link.Caller}
		for i, m := range outer {
			stack = append(stack, Activation[string, int]{Method: m, Site: 1, Depth: uint32(40 - i)})
		}
		c.Walk(stack, 1)
	}
	expect := func(why string, want bool) {
		t.Helper()
		if got := c.Steady(link); got != want {
			t.Errorf("%s: steady is %v", why, got)
		}
	}
	expect("not known", true)
	walk("a", "b", "c")
	expect("one walk", true)
	walk("a", "b", "d")
	expect("the same three callers", true)
	walk("a")
	expect("a shorter stack", false)
	for range doubtWalks - 1 {
		walk("a", "b", "d")
	}
	expect("not often enough as expected", false)
	walk("a", "b", "c")
	expect("often enough as expected", true)
	walk("a", "x", "c")
	expect("another third caller", false)
	for range 3 * doubtWalks {
		walk("a", "x", "c")
	}
	expect("what is new became what is expected", true)
	walk("a", "b", "c")
	expect("what was expected before", false)
	c.Purge()
	expect("forgotten", true)

	c.Purge()
	c.Proof = 2
	walk("a", "b")
	expect("not proved", false)
	walk("a", "b")
	expect("half proved", false)
	walk("a", "b")
	expect("proved", true)
	c.Proof = 0

	other := link
	other.Caller.Site = 2
	walk("a", "b")
	walk("b", "b")
	expect("two contexts", false)
	if !c.Steady(other) {
		t.Error("another site in the caller is not steady either")
	}
}
