package sink

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

// contextPath names a context of a tree by its methods, outermost first, in at most width columns, 0 for any number, by
// cutting its beginning.
func contextPath[K comparable](tree *cct.Tree[K], id cct.NodeID, width int, name func(K) string) string {
	var names []string
	for id != cct.Root && (width == 0 || len(names) <= width) { // more would not be seen
		// Direct recursion is one name, or it would be all that there is room for.
		key, levels := tree.Node(id).Key, 0
		for ; id != cct.Root && tree.Node(id).Key == key; id = tree.Node(id).Parent {
			levels++
		}
		text := name(key)
		if levels > 1 {
			text += fmt.Sprintf(" (%d levels)", levels)
		}
		names = append(names, text)
	}
	slices.Reverse(names)
	return keepEnd(strings.Join(names, " > "), width)
}
