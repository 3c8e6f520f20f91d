package javavm

import "testing"

type sized int

func (s sized) Bytes() int { return int(s) }

func TestCache(t *testing.T) {
	c := NewCache[int, sized](100)
	for i := range 20 {
		c.Add(i, 10)
		if _, ok := c.Get(0); !ok {
			t.Fatalf("what is asked for all the time is gone after %d", i)
		}
		total := 0
		for _, generation := range []map[int]sized{c.young, c.old} {
			for _, v := range generation {
				total += int(v)
			}
		}
		if total > 100 {
			t.Fatalf("%d bytes after %d", total, i)
		}
	}
	if _, ok := c.Get(19); !ok {
		t.Error("the last one is gone")
	}
	if _, ok := c.Get(1); ok {
		t.Error("one that was not asked for is still there")
	}
	c.Add(19, 10)
	c.Add(19, 10)
	if c.size > 50 {
		t.Errorf("replacing counts twice: %d", c.size)
	}
}
