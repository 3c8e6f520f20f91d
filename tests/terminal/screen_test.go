package terminal

import "testing"

func TestScreen(t *testing.T) {
	for output, want := range map[string]string{
		"a\r\nbc\r\n": "a\nbc",
		"\rrec: 1s\rrec: 2s\r\x1b[K\x1b[1mShop\x1b[0m\r\n": "Shop",
		"0123456789ab":     "0123456789\nab",
		"0123456789\r\nab": "0123456789\nab",
		"old\x1b[?1049h\x1b[H\x1b[2J\x1b[2;3Hnew\x1b[1;1H▇█": "▇█\n  new",
		"abcdef\x1b[3D\x1b[K":       "abc",
		"abc\x1b[1;2HX":             "aXc",
		"a\r\nb\x1b[1;1H\x1b[J":     "",
		"a\tb":                      "a       b",
		"\x1b[99999;99999Hx\x1b[2J": "",
	} {
		if got := Screen([]byte(output), 10); got != want {
			t.Errorf("%q shows\n%s\nwant\n%s", output, got, want)
		}
	}
}
