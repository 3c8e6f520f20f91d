package valueprobe

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

const (
	maxArg  = 12  // sys/sdt.h has macros for so many operands
	maxText = 480 // bytes of a Text: the kernel side has no room for more
)

func parseValues(text string) ([]Value, error) {
	words := strings.SplitN(text, ",", MaxValues+1)
	if len(words) > MaxValues {
		return nil, fmt.Errorf("has more than %d values", MaxValues)
	}
	values := make([]Value, len(words))
	for i, word := range words {
		v, err := parseValue(word)
		if err != nil {
			return nil, fmt.Errorf("value %q: %w", word, err)
		}
		values[i] = v
	}
	return values, nil
}

func parseValue(text string) (v Value, err error) {
	where, form, formed := strings.Cut(text, ":")
	where, offset := cutOffset(where)
	parts := strings.Split(where, "@")
	if v.Base, err = parseTerm(parts[0]); err != nil {
		return v, err
	}
	if len(parts)-1 > MaxFollowed {
		return v, fmt.Errorf("follows more than %d pointers", MaxFollowed)
	}
	for i, part := range parts[1:] {
		if v.Follow[i], err = parseOffset(part); err != nil {
			return v, err
		}
		v.Followed++
	}
	if offset != "" {
		if v.Offset, err = parseOffset(offset); err != nil {
			return v, err
		}
	}
	if formed {
		err = v.parseForm(form)
	}
	return v, err
}

// cutOffset cuts +N or -N off the end; the sign behind an @ belongs to the offset there.
func cutOffset(where string) (rest, offset string) {
	i := strings.LastIndexAny(where, "+-")
	if i <= 0 || where[i-1] == '@' {
		return where, ""
	}
	return where[:i], where[i:]
}

// parseOffset reads a number of bytes, decimal or with 0x.
func parseOffset(text string) (int32, error) {
	n, err := strconv.ParseInt(text, 0, 32)
	if err != nil || strings.ContainsRune(text, '_') {
		return 0, fmt.Errorf("offset %q is not a 32-bit number", text)
	}
	return int32(n), nil
}

func parseTerm(text string) (Term, error) {
	if number, ok := strings.CutPrefix(text, "arg"); ok {
		n, err := strconv.ParseUint(number, 10, 8)
		if err != nil || n == 0 || n > maxArg || number[0] == '0' {
			return Term{}, fmt.Errorf("arguments are arg1 to arg%d", maxArg)
		}
		return Term{Arg: uint8(n)}, nil
	}
	for r := elffile.RAX; r <= elffile.SP; r++ {
		if r.String() == text {
			return Term{Reg: r}, nil
		}
	}
	return Term{}, fmt.Errorf("%q is neither an argument (arg1) nor a whole register (rdi, x0)", text)
}

func (v *Value) parseForm(text string) error {
	switch name, length, sized := strings.Cut(text, ":"); {
	case name == "str" && sized:
		return v.parseLength(length)
	case sized:
		return fmt.Errorf("form %q: only str has a length", name)
	case name != "" && (name[0] == 'u' || name[0] == 's') && v.parseSize(name):
		return nil
	default:
		for f := Text; int(f) < len(formNames); f++ {
			if formNames[f] == name {
				v.Form = f
				return nil
			}
		}
		return fmt.Errorf("form %q is not known: u8 to u64, s8 to s64, str, str:LENGTH, symbol, klass, class", name)
	}
}

func (v *Value) parseSize(name string) bool {
	size, ok := map[string]int8{"8": 1, "16": 2, "32": 4, "64": 8}[name[1:]]
	if name[0] == 's' {
		size = -size
	}
	v.Size = size
	return ok
}

func (v *Value) parseLength(text string) error {
	v.Form = Text
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		if n == 0 || n > maxText {
			return fmt.Errorf("length %s: texts have 1 to %d bytes", text, maxText)
		}
		v.Length = Term{Number: uint32(n)}
		return nil
	}
	length, err := parseTerm(text)
	if err != nil {
		return fmt.Errorf("length: %w", err)
	}
	v.Length = length
	return nil
}
