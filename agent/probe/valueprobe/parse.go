package valueprobe

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// maxSpec bounds what a user may write, in bytes. Mangled names of C++ have up to a thousand.
const maxSpec = 4096

// Parse reads what a user asks for: see Help.
func Parse(text string) (Spec, error) {
	if len(text) > maxSpec {
		return Spec{}, fmt.Errorf("probe of %d bytes: the limit is %d", len(text), maxSpec)
	}
	s, err := parse(text)
	if err != nil {
		return Spec{}, fmt.Errorf("probe %q: %w", text, err)
	}
	return s, nil
}

func parse(text string) (s Spec, err error) {
	for _, c := range text {
		if c <= ' ' || c >= 0x7f {
			return s, errors.New("has a space, or a character that is not ASCII")
		}
	}
	kind, rest, err := cutLibrary(text, &s)
	if err != nil {
		return s, err
	}
	if rest, s.Every, err = cutEvery(rest); err != nil {
		return s, err
	}
	place, values, some := strings.Cut(rest, "=")
	if kind == "func" {
		s.Symbol = place
	} else if s.Provider, s.Name, some = cutProbe(place, some); s.Provider == "" || s.Name == "" {
		return s, errors.New("has no provider or no name: write usdt:PROVIDER:NAME")
	}
	if place == "" {
		return s, errors.New("has no function name: write func:SYMBOL")
	}
	if i := strings.IndexAny(place, "!,"); i >= 0 {
		return s, fmt.Errorf("a probe name cannot contain %q: write [LIBRARY:]PLACE=VALUE,VALUE", place[i:i+1])
	}
	if !some {
		return s, nil
	}
	s.Values, err = parseValues(values)
	return s, err
}

// cutLibrary returns the kind of place, and what is behind it.
func cutLibrary(text string, s *Spec) (kind, rest string, err error) {
	best := -1
	for _, k := range []string{"usdt", "func"} {
		if rest, ok := strings.CutPrefix(text, k+":"); ok {
			return k, rest, nil
		}
		if i := strings.Index(text, ":"+k+":"); i >= 0 && (best < 0 || i < best) {
			best, kind = i, k
		}
	}
	if best < 0 && strings.ContainsRune(text, '!') {
		return "", "", errors.New("has neither usdt: nor func:; " +
			"write a library before them, as in LIBRARY:usdt:PROVIDER:NAME")
	}
	if best < 0 {
		return "", "", errors.New("begins with neither usdt:PROVIDER:NAME nor func:SYMBOL")
	}
	s.Library = text[:best]
	if s.Library == "" {
		return "", "", errors.New("begins with a colon: write a library before it, or remove it")
	}
	return kind, text[best+len(kind)+2:], nil
}

func cutProbe(place string, some bool) (provider, name string, _ bool) {
	provider, name, _ = strings.Cut(place, ":")
	if strings.Contains(name, ":") {
		return "", "", some
	}
	return provider, name, some
}

// cutEvery cuts /N off the end. What is behind the last slash of a symbol is a part of it unless it
// is a number.
func cutEvery(text string) (rest string, every uint32, err error) {
	i := strings.LastIndexByte(text, '/')
	if i < 0 || i+1 == len(text) || strings.Trim(text[i+1:], "0123456789") != "" {
		return text, 0, nil
	}
	n, err := strconv.ParseUint(text[i+1:], 10, 32)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("interval %s: every Nth execution is read, N from 1 to %d", text[i:], uint32(1<<32-1))
	}
	return text[:i], uint32(n), nil
}
