package flame

import (
	"fmt"
	"testing"
)

// An outline has the same processes with the same values, also of several windows together.
func TestOutline(t *testing.T) {
	var whole, outline *Graph
	for window := range int64(3) {
		p := newFlameProfile(timeColumns...)
		p.add(1, "java", "main", []string{"j:main", "j:hot"}, 5, 50+window)
		p.add(1, "java", "gc", []string{"vm:mark"}, 1, 10)
		p.add(2+window, "java", "main", []string{"j:main"}, 2, 20)
		flames, err := Read(&p.Profile)
		if err != nil {
			t.Fatal(err)
		}
		if whole == nil {
			whole, outline = flames[0].Of("", 0), flames[0].Outline()
			continue
		}
		whole.Merge(flames[0])
		outline.Merge(flames[0].Outline())
	}
	if got, want := fmt.Sprint(outline.Services()), fmt.Sprint(whole.Services()); got != want || outline.Duration != whole.Duration || outline.Start != whole.Start {
		t.Errorf("%s, want %s", got, want)
	}
	if len(outline.nodes) != 5 {
		t.Errorf("%d nodes", len(outline.nodes))
	}
}
