package cpython

import "testing"

func TestLineAt(t *testing.T) {
	for _, test := range []struct {
		name   string
		table  []byte
		format lineFormat
		index  int
		want   int
	}{
		{"3.9: the first line", []byte{2, 1, 4, 2}, linesByDelta, 0, 10},
		{"3.9: behind a delta", []byte{2, 1, 4, 2}, linesByDelta, 1, 11},
		{"3.9: behind the last one", []byte{2, 1, 4, 2}, linesByDelta, 3, 13},
		{"3.9: lines that go back", []byte{2, 5, 2, 0xfe}, linesByDelta, 2, 13},
		{"3.9: half a pair", []byte{2}, linesByDelta, 2, 10},
		{"3.10: the first range", []byte{4, 1, 2, 2}, linesByRange, 1, 11},
		{"3.10: the next range", []byte{4, 1, 2, 2}, linesByRange, 2, 13},
		{"3.10: no line", []byte{4, 1, 2, 0x80, 2, 1}, linesByRange, 2, 0},
		{"3.10: behind no line", []byte{4, 1, 2, 0x80, 2, 1}, linesByRange, 3, 12},
		{"3.10: behind the end", []byte{4, 1}, linesByRange, 2, 0},
		{"3.11: one line", []byte{0x80 | 10<<3 | 1, 0, 0}, linesByLocation, 1, 10},
		{"3.11: the next line", []byte{0x80 | 11<<3, 0, 0}, linesByLocation, 0, 11},
		{"3.11: two lines on", []byte{0x80 | 12<<3, 0, 0}, linesByLocation, 0, 12},
		{"3.11: short", []byte{0x80 | 12<<3, 0, 0, 0x80 | 3<<3, 0}, linesByLocation, 1, 12},
		{"3.11: no columns, back", []byte{0x80 | 13<<3, 5}, linesByLocation, 0, 8},
		{"3.11: long", []byte{0x80 | 14<<3, 0x40 | 8, 3, 0, 0, 0}, linesByLocation, 0, 10 + (8|3<<6)/2},
		{"3.11: no line", []byte{0x80 | 12<<3, 0, 0, 0x80 | 15<<3}, linesByLocation, 1, 0},
		{"3.11: behind the end", []byte{0x80 | 12<<3, 0, 0}, linesByLocation, 1, 0},
		{"3.11: no entry begins", []byte{1, 2, 3}, linesByLocation, 0, 0},
		{"before the first instruction", []byte{0x80 | 12<<3, 0, 0}, linesByLocation, -1, 10},
		{"no table", nil, linesByLocation, 3, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := lineAt(test.table, test.format, 10, test.index); got != test.want {
				t.Errorf("line %d, want %d", got, test.want)
			}
		})
	}
}

func FuzzLineAt(f *testing.F) {
	f.Add([]byte{2, 1, 4, 2}, uint8(0), int32(10), 3)
	f.Add([]byte{4, 1, 2, 0x80, 2, 1}, uint8(1), int32(10), 2)
	f.Add([]byte{0x80 | 14<<3, 0x40 | 8, 3, 0, 0, 0}, uint8(2), int32(-4), 0)
	f.Fuzz(func(t *testing.T, table []byte, format uint8, first int32, index int) {
		if line := lineAt(table, lineFormat(format%3), first, index); line < 0 || line > maxLine {
			t.Errorf("line %d", line)
		}
	})
}
