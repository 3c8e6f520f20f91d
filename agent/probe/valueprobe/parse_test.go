package valueprobe

import (
	"reflect"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

func arg(n uint8) Term { return Term{Arg: n} }

func TestParse(t *testing.T) {
	for _, test := range []struct {
		text string
		want Spec
	}{
		{"usdt:hotspot:gc__begin", Spec{Provider: "hotspot", Name: "gc__begin"}},
		{"usdt:hotspot:gc__begin/97", Spec{Provider: "hotspot", Name: "gc__begin", Every: 97}},
		{"func:malloc", Spec{Symbol: "malloc"}},
		{"func:ObjectMonitor::enter=rdi", Spec{Symbol: "ObjectMonitor::enter",
			Values: []Value{{Base: Term{Reg: elffile.RDI}}}}},
		{"libjvm.so:func:A::~A/2", Spec{Library: "libjvm.so", Symbol: "A::~A", Every: 2}},
		{"/a=b/lib:x.so:usdt:p:n", Spec{Library: "/a=b/lib:x.so", Provider: "p", Name: "n"}},
		{"func:github.com/x/y.F", Spec{Symbol: "github.com/x/y.F"}},
		{"func:f:usdt:g", Spec{Symbol: "f:usdt:g"}},
		{"l:func:f:usdt:g", Spec{Library: "l", Symbol: "f:usdt:g"}},
		{"func:github.com/x/y.F=arg1:u8/5", Spec{Symbol: "github.com/x/y.F", Values: []Value{{Base: arg(1), Size: 1}},
			Every: 5}},
		{"usdt:p:n=arg1,arg12:s64,x29:u32,rsp:s16", Spec{Provider: "p", Name: "n", Values: []Value{
			{Base: arg(1)}, {Base: arg(12), Size: -8}, {Base: Term{Reg: elffile.X29}, Size: 4},
			{Base: Term{Reg: elffile.RSP}, Size: -2}}}},
		{"usdt:p:n=arg1@24,arg1@-8@0x10:s32,arg2+24:str,arg2@8-1:str:arg3,arg2:str:16,arg2:str:rdx",
			Spec{Provider: "p", Name: "n", Values: []Value{
				{Base: arg(1), Follow: [2]int32{24}, Followed: 1},
				{Base: arg(1), Follow: [2]int32{-8, 16}, Followed: 2, Size: -4},
				{Base: arg(2), Offset: 24, Form: Text},
				{Base: arg(2), Follow: [2]int32{8}, Followed: 1, Offset: -1, Form: Text, Length: arg(3)},
				{Base: arg(2), Form: Text, Length: Term{Number: 16}},
				{Base: arg(2), Form: Text, Length: Term{Reg: elffile.RDX}}}}},
		{"usdt:p:n=arg1:symbol,arg2:klass,arg3:class", Spec{Provider: "p", Name: "n", Values: []Value{
			{Base: arg(1), Form: Symbol}, {Base: arg(2), Form: Klass}, {Base: arg(3), Form: Class}}}},
	} {
		got, err := Parse(test.text)
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, %v; want %+v", test.text, got, err, test.want)
		}
		if again, err := Parse(got.String()); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%s: becomes %s, which is %+v, %v", test.text, got, again, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "neither usdt:PROVIDER:NAME nor func:SYMBOL",
		"gc__begin":              "neither usdt:PROVIDER:NAME nor func:SYMBOL",
		"libjvm.so!func:f":       "LIBRARY:usdt:PROVIDER:NAME",
		"func:libjvm.so!f":       `cannot contain "!"`,
		":func:f":                "begins with a colon",
		"func:":                  "no function name",
		"func:=arg1":             "no function name",
		"func:f,arg1":            `cannot contain ","`,
		"usdt:hotspot":           "usdt:PROVIDER:NAME",
		"usdt::n":                "usdt:PROVIDER:NAME",
		"usdt:p:":                "usdt:PROVIDER:NAME",
		"usdt:p:n:m":             "usdt:PROVIDER:NAME",
		"func:f =arg1":           "space",
		"func:f\x00":             "space",
		"func:f=":                "neither an argument",
		"func:f=arg0":            "arg1 to arg12",
		"func:f=arg13":           "arg1 to arg12",
		"func:f=arg01":           "arg1 to arg12",
		"func:f=arg":             "arg1 to arg12",
		"func:f=edi":             "whole register",
		"func:f=16":              "neither an argument",
		"func:f=none":            "neither an argument",
		"func:f=arg1@":           "offset",
		"func:f=arg1@x":          "offset",
		"func:f=arg1@1_0":        "offset",
		"func:f=arg1@0x80000000": "offset",
		"func:f=arg1@1@2@3":      "more than 2 pointers",
		"func:f=arg1+":           "offset",
		"func:f=arg1+8@8":        "offset",
		"func:f=arg1:":           "form",
		"func:f=arg1:u7":         "form",
		"func:f=arg1:int":        "form",
		"func:f=arg1:u8:arg2":    "only str has a length",
		"func:f=arg1:str:":       "length",
		"func:f=arg1:str:0":      "1 to 480",
		"func:f=arg1:str:481":    "1 to 480",
		"func:f=arg1:str:arg2@8": "length",
		"func:f/0":               "interval",
		"func:f/4294967296":      "interval",
		"func:f=arg1/-1":         "arg1 to arg12",
		"func:f=" + nine:         "more than 8 values",
		"func:" + long:           "bytes",
	} {
		got, err := Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %+v, error %v, want one with %q", text, got, err, want)
		}
	}
}

var (
	nine = strings.TrimSuffix(strings.Repeat("arg1,", 9), ",")
	long = strings.Repeat("f", maxSpec)
)

func TestIn(t *testing.T) {
	for _, test := range []struct {
		library, file string
		want          bool
	}{
		{"", "/usr/bin/php", true},
		{"libjvm.so", "/usr/lib/jvm/libjvm.so", true},
		{"server/libjvm.so", "/usr/lib/server/libjvm.so", true},
		{"erver/libjvm.so", "/usr/lib/server/libjvm.so", false},
		{"jvm.so", "/usr/lib/jvm/libjvm.so", false},
		{"/usr/lib/libjvm.so", "/usr/lib/libjvm.so", true},
		{"/lib/libjvm.so", "/usr/lib/libjvm.so", false},
	} {
		if got := (Spec{Library: test.library}).MatchesFile(test.file); got != test.want {
			t.Errorf("%q in %q: %v", test.library, test.file, got)
		}
	}
}

// What the help shows can be typed, and no shell makes something else of it.
func TestHelp(t *testing.T) {
	examples := 0
	for line := range strings.Lines(Help) {
		if len(line) > 80 { // 79 and the newline
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
		word := strings.Fields(line + " .")[0]
		if !strings.HasPrefix(word, "usdt:") && !strings.Contains(word, "func:") ||
			strings.Contains(word, "PROVIDER") || strings.Contains(word, "SYMBOL") {
			continue
		}
		examples++
		if _, err := Parse(word); err != nil {
			t.Error(err)
		}
		if i := strings.IndexAny(word, "!*?()[]{}<>|&;$`\\\"'#~^ "); i >= 0 {
			t.Errorf("%s: shells see something in %q", word, word[i:i+1])
		}
	}
	if examples < 5 {
		t.Errorf("%d examples", examples)
	}
}

// FuzzParse: a spec or an error, and its text means the same spec.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"usdt:hotspot:gc__begin=arg1/97", "a:func:f=arg1@-8@0x10+4:str:arg3,rdi:class",
		"func:a/b/1", "usdt:p:n=x0:s8"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		if len(s.Values) > MaxValues || (s.Name == "") == (s.Symbol == "") {
			t.Errorf("%q: %+v", text, s)
		}
		again, err := Parse(s.String())
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("%q: %+v; its text %q is %+v, %v", text, s, s.String(), again, err)
		}
	})
}
