package stored

import (
	"cmp"
	"slices"
	"strings"
)

// Ranks of likeness of names, beyond the number of edits: the lower, the more alike.
const (
	nearEdits  = 3             // edits that a misspelt name may have
	sameClass  = nearEdits + 1 // for methods: another one of the class
	contained  = sameClass + 1 // one name contains the other
	sameMethod = contained + 1 // for methods: same name in another class
	far        = sameMethod + 1
)

// Near returns up to most of the names that somebody who wrote wanted most likely meant, the
// likeliest first. Names may be those of methods, with dots, and are distinct in the result.
func Near(names []string, wanted string, most int) []string {
	type ranked struct {
		name string
		rank int
	}
	var list []ranked
	for _, name := range names {
		if rank := likeness(name, wanted); rank < far {
			list = append(list, ranked{name, rank})
		}
	}
	slices.SortFunc(list, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank),
			strings.Compare(a.name, b.name))
	})
	list = slices.Compact(list)
	if len(list) > 0 && list[0].rank <= nearEdits { // misspelt, and the others are not
		list = slices.DeleteFunc(list, func(r ranked) bool { return r.rank > nearEdits })
	}
	var near []string
	for _, r := range list[:min(len(list), most)] {
		near = append(near, r.name)
	}
	return near
}

func likeness(name, wanted string) int {
	name, wanted = strings.ToLower(name), strings.ToLower(wanted)
	class, method := splitMethod(name)
	wantedClass, wantedMethod := splitMethod(wanted)
	_, simple := splitMethod(class)
	_, wantedSimple := splitMethod(wantedClass)
	// Words that differ much in length need no closer look.
	if abs(len(method)-len(wantedMethod)) <= nearEdits && abs(len(simple)-len(wantedSimple)) <= nearEdits {
		if edits := Edits(method, wantedMethod) + Edits(simple, wantedSimple); edits <= min(nearEdits,
			len(wantedMethod)/2) {
			return edits
		}
	}
	switch {
	case class != "" && class == wantedClass && !strings.HasPrefix(method, "<"): // not constructors
		return sameClass
	case len(wanted) > 0 && (strings.Contains(name, wanted) || len(name) > nearEdits && strings.Contains(wanted, name)):
		return contained
	case method == wantedMethod:
		return sameMethod
	}
	return far
}

// splitMethod splits a.b.C.m at its last dot.
func splitMethod(name string) (class, method string) {
	i := strings.LastIndexByte(name, '.')
	return name[:max(i, 0)], name[i+1:]
}

func abs(n int) int { return max(n, -n) }

// Edits counts the insertions, deletions and replacements between two words (Levenshtein). It looks
// at no more than 32 bytes of each.
func Edits(a, b string) int {
	const most = 32
	a, b = a[:min(len(a), most)], b[:min(len(b), most)]
	var row [most + 1]int // distances of a's first i bytes from each beginning of b
	for j := range len(b) + 1 {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
