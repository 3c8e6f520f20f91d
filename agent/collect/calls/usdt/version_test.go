package usdt

import (
	"bytes"
	"errors"
	"testing"
)

func TestFindVersion(t *testing.T) {
	pad := func(n int) []byte { return bytes.Repeat([]byte{'x'}, n) }
	text := []byte("X-Powered-By: PHP/7.4.33")
	for _, test := range []struct {
		name string
		file []byte
		want Version
		err  error
	}{
		{"at the begin", text, Version{7, 4, 33}, nil},
		{"across pieces", append(pad(64<<10-9), text...), Version{7, 4, 33}, nil},
		{"in the last bytes", append(pad(200<<10), text...), Version{7, 4, 33}, nil},
		{"a release candidate", []byte("X-Powered-By: PHP/8.4.0RC1"), Version{8, 4, 0}, nil},
		{"cut", text[:20], Version{}, errNoVersion},
		{"long numbers", []byte("X-Powered-By: PHP/9999.1.1"), Version{}, errNoVersion},
		{"a prefix before", append([]byte("X-Powered-By: PHP/%s\x00"), text...), Version{7, 4, 33}, nil},
		{"empty", nil, Version{}, errNoVersion},
	} {
		v, err := findVersion(bytes.NewReader(test.file), int64(len(test.file)))
		if v != test.want || !errors.Is(err, test.err) {
			t.Errorf("%s: %v, %v, want %v, %v", test.name, v, err, test.want, test.err)
		}
	}
}

func TestLayoutOf(t *testing.T) {
	for v, known := range map[Version]bool{
		{7, 3, 0}: false, {7, 4, 33}: true, {8, 0, 0}: true, {8, 1, 0}: true, {8, 2, 0}: true, {8, 3, 0}: true,
		{8, 4, 0}: true, {8, 5, 0}: false,
	} {
		l, err := layoutOf(v)
		if (err == nil) != known || known && l.filename-l.opcodes != 64 && l.filename-l.opcodes != 72 {
			t.Errorf("%v: %+v, %v", v, l, err)
		}
	}
}
