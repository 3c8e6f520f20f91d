package budget

// A Claim is the need of one of several kinds that share a budget.
type Claim struct {
	Need  float64 // part of the processes' CPU time, if every hit is recorded
	Fixed bool    // it keeps its share, whatever it needs, and gets no more
}

// unlent is the multiple of its need that a claim keeps of its share: it may need more in the next
// second.
const unlent = 2

// Lend returns what each claim has in addition to share, which is the same for all: negative if it
// lends, positive if it borrows because it needs more than its share. Borrowers get equal parts. If
// nobody borrows, nobody lends.
func Lend(share float64, claims []Claim) (lent []float64) {
	lent = make([]float64, len(claims))
	spare, borrowers := 0.0, []int(nil)
	for i, c := range claims {
		switch left := share - unlent*c.Need; {
		case c.Fixed:
		case left > 0:
			spare += left
			lent[i] = -left
		case c.Need > share:
			borrowers = append(borrowers, i)
		}
	}
	if len(borrowers) == 0 {
		clear(lent)
	}
	for _, i := range borrowers {
		lent[i] = spare / float64(len(borrowers))
	}
	return lent
}
