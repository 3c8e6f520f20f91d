package terminal

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Screen is what a terminal with so many columns shows after some output, one line for each row,
// without styles. Rows do not scroll away. It knows the sequences that move the cursor and erase,
// and characters of one column.
func Screen(output []byte, columns int) string {
	s := screen{columns: columns}
	for len(output) > 0 {
		if sequence := control.Find(output); sequence != nil && bytes.HasPrefix(output, sequence) {
			s.control(string(sequence))
			output = output[len(sequence):]
			continue
		}
		r, size := utf8.DecodeRune(output)
		output = output[size:]
		switch {
		case r == '\n':
			s.y++
		case r == '\r':
			s.x = 0
		case r == '\b':
			s.x = max(s.x-1, 0)
		case r == '\t':
			s.x = min(s.x/8*8+8, columns-1)
		case r >= ' ':
			s.put(r)
		}
	}
	lines := make([]string, len(s.rows))
	for i, row := range s.rows {
		lines[i] = strings.TrimRight(string(row), " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// A screen is the rows of a terminal, and where its cursor is.
type screen struct {
	columns, x, y int
	rows          [][]rune
}

// row returns the row of the cursor.
func (s *screen) row() []rune {
	for len(s.rows) <= s.y {
		s.rows = append(s.rows, []rune(strings.Repeat(" ", s.columns)))
	}
	return s.rows[s.y]
}

func (s *screen) put(r rune) {
	if s.x >= s.columns {
		s.x = 0
		s.y++
	}
	s.row()[s.x] = r
	s.x++
}

// control obeys a sequence.
func (s *screen) control(sequence string) {
	parameters, ok := strings.CutPrefix(sequence[:len(sequence)-1], "\x1b[")
	if !ok {
		return
	}
	if strings.HasPrefix(parameters, "?") {
		if parameters == "?1049" { // another screen, which begins empty
			*s = screen{columns: s.columns}
		}
		return
	}
	var n []int
	for field := range strings.SplitSeq(parameters, ";") {
		v, _ := strconv.Atoi(field) // 0: the default
		n = append(n, v)
	}
	const most = 1000 // whatever a broken sequence says
	steps := min(max(n[0], 1), most)
	switch sequence[len(sequence)-1] {
	case 'A':
		s.y = max(s.y-steps, 0)
	case 'B':
		s.y += steps
	case 'C':
		s.x = min(s.x+steps, s.columns-1)
	case 'D':
		s.x = max(s.x-steps, 0)
	case 'G':
		s.x = min(steps, s.columns) - 1
	case 'H', 'f':
		s.y, s.x = steps-1, 0
		if len(n) > 1 {
			s.x = min(max(n[1], 1), s.columns) - 1
		}
	case 'J':
		if n[0] == 2 {
			s.rows = nil
			return
		}
		s.erase(s.x, s.columns)
		s.rows = s.rows[:min(s.y+1, len(s.rows))]
	case 'K':
		switch n[0] {
		case 0:
			s.erase(s.x, s.columns)
		case 1:
			s.erase(0, s.x+1)
		case 2:
			s.erase(0, s.columns)
		}
	case 'X':
		s.erase(s.x, s.x+steps)
	}
}

// erase blanks columns of the cursor's row.
func (s *screen) erase(from, to int) {
	row := s.row()
	for x := max(from, 0); x < min(to, s.columns); x++ {
		row[x] = ' '
	}
}
