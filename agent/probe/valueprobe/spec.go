package valueprobe

import (
	"path"
	"strconv"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// A Spec is what a user asks for.
type Spec struct {
	Library        string // file name, or the end of a path, of the only file that is meant; "" for any
	Provider, Name string // those of a USDT probe
	Symbol         string // name of a function, if there is no Name
	Values         []Value
	Every          uint32 // executions of which one is read; 0: the budget decides
}

// String is the shortest text that Parse takes for s.
func (s Spec) String() string {
	var b strings.Builder
	b.WriteString(s.Place())
	for i, v := range s.Values {
		b.WriteByte("=,"[min(i, 1)])
		b.WriteString(v.String())
	}
	if s.Every > 0 {
		b.WriteByte('/')
		b.WriteString(strconv.FormatUint(uint64(s.Every), 10))
	}
	return b.String()
}

// Place is the part of the text that says where: a name for the probe.
func (s Spec) Place() string {
	place := "func:" + s.Symbol
	if s.Name != "" {
		place = "usdt:" + s.Provider + ":" + s.Name
	}
	if s.Library != "" {
		place = s.Library + ":" + place
	}
	return place
}

// MatchesFile reports whether a file that a process maps may have the probe, by its path.
func (s Spec) MatchesFile(file string) bool {
	return s.Library == "" || file == s.Library || path.Base(file) == s.Library ||
		strings.HasSuffix(file, "/"+s.Library)
}

// A Form is what is made of a value.
type Form uint8

// Forms.
const (
	Number Form = iota
	Text        // the value is the address of bytes
	Symbol      // the value is the address of a HotSpot Symbol
	Klass       // the value is the address of a HotSpot Klass; its name is recorded
	Class       // the value is the address of an object in HotSpot's heap; the name of its class is recorded
)

var formNames = [...]string{Text: "str", Symbol: "symbol", Klass: "klass", Class: "class"}

// IsText reports whether what is recorded is text, not a number.
func (f Form) IsText() bool { return f != Number }

// A Term is where a value begins. At most one of the fields is set.
type Term struct {
	Arg    uint8       // number of an operand or argument, from 1
	Reg    elffile.Reg // a register
	Number uint32      // the number itself; in lengths only
}

// String is the term as Parse takes it.
func (t Term) String() string {
	switch {
	case t.Arg > 0:
		return "arg" + strconv.Itoa(int(t.Arg))
	case t.Reg != elffile.NoReg:
		return t.Reg.String()
	}
	return strconv.FormatUint(uint64(t.Number), 10)
}

// MaxFollowed bounds the pointers that are followed on the way to a value, MaxValues the values of
// a probe: the kernel side has room for so many.
const (
	MaxFollowed = 2
	MaxValues   = 8
)

// A Value is one thing to read.
type Value struct {
	Base     Term
	Follow   [MaxFollowed]int32 // bytes from what was read so far to where to read next
	Followed uint8              // how many of these
	Offset   int32              // bytes added in the end
	Form     Form
	Size     int8 // size of a Number: bytes, negative if signed; 0: as wide as its operand, or 8 bytes
	Length   Term // length of a Text: bytes; the zero Term if a zero byte ends it
}

// String is the value as Parse takes it.
func (v Value) String() string {
	b := []byte(v.Base.String())
	for _, o := range v.Follow[:v.Followed] {
		b = append(b, '@')
		b = strconv.AppendInt(b, int64(o), 10)
	}
	if v.Offset > 0 {
		b = append(b, '+')
	}
	if v.Offset != 0 {
		b = strconv.AppendInt(b, int64(v.Offset), 10)
	}
	switch {
	case v.Form != Number:
		b = append(append(b, ':'), formNames[v.Form]...)
		if v.Length != (Term{}) {
			b = append(append(b, ':'), v.Length.String()...)
		}
	case v.Size < 0:
		b = strconv.AppendInt(append(b, ":s"...), -8*int64(v.Size), 10)
	case v.Size > 0:
		b = strconv.AppendInt(append(b, ":u"...), 8*int64(v.Size), 10)
	}
	return string(b)
}
