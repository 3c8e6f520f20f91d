package bpf

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"unsafe"
)

type plainCodeLoad struct {
	plainHeader
	Begin                           uint64
	Size, CompileID                 uint32
	ClassLen, NameLen, SignatureLen uint16
	Pad                             uint16
	Class                           [192]byte
	Name                            [96]byte
	Signature                       [160]byte
}

var exampleCodeLoad = plainCodeLoad{
	plainHeader: exampleHeader, Begin: 0x7f00_0000_1000, Size: 96, CompileID: 12, ClassLen: 4, NameLen: 192,
	SignatureLen: 3,
	Class:        [192]byte{'M', 'a', 'i', 'n'}, Name: [96]byte{'r', 'u', 'n'}, Signature: [160]byte{'(', ')', 'V'},
}

func TestDecodeCodeLoad(t *testing.T) {
	good := exampleCodeLoad
	good.NameLen = 3
	for shift := range uint8(8) {
		var l CodeLoad
		if err := DecodeCodeLoad(record(encode(good), shift), &l); err != nil {
			t.Fatal(err)
		}
		if string(l.Class) != "Main" || string(l.Name) != "run" || string(l.Signature) != "()V" {
			t.Errorf("named %q.%q%q", l.Class, l.Name, l.Signature)
		}
		if l.Begin != 0x7f00_0000_1000 || l.Size != 96 || l.CompileID != 12 || l.Pid != 3 {
			t.Errorf("code load %+v", l)
		}
	}
	for name, raw := range map[string][]byte{
		"name longer than its field": encode(exampleCodeLoad),
		"one byte short":             encode(good)[:unsafe.Sizeof(CodeMapCodeLoad{})-1],
		"empty":                      nil,
	} {
		if err := DecodeCodeLoad(raw, &CodeLoad{}); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecodeCodeLoad(f *testing.F) {
	f.Add(encode(exampleCodeLoad), uint8(0))
	f.Add(encode(plainCodeLoad{}), uint8(1))
	f.Fuzz(func(t *testing.T, raw []byte, shift uint8) {
		var l CodeLoad
		if err := DecodeCodeLoad(record(raw, shift), &l); err != nil {
			if !reflect.DeepEqual(l, CodeLoad{}) {
				t.Fatalf("error %v and a code load", err)
			}
			return
		}
		var want plainCodeLoad
		fields(t, raw, &want)
		header := headerOf(l.Header)
		header.Pad = want.plainHeader.Pad
		if header != want.plainHeader || l.Begin != want.Begin || l.Size != want.Size || l.CompileID != want.CompileID {
			t.Fatalf("got %+v, want %+v", l, want)
		}
		if !bytes.Equal(l.Class, want.Class[:want.ClassLen]) || !bytes.Equal(l.Name, want.Name[:want.NameLen]) ||
			!bytes.Equal(l.Signature, want.Signature[:want.SignatureLen]) {
			t.Fatalf("named %q.%q%q", l.Class, l.Name, l.Signature)
		}
	})
}

func FuzzDecodeProcess(f *testing.F) {
	f.Add(encode(exampleHeader, [16]byte{'j', 'a', 'v', 'a'}), uint8(0))
	f.Add([]byte("short"), uint8(5))
	f.Fuzz(func(t *testing.T, raw []byte, shift uint8) {
		p, err := DecodeProcess(record(raw, shift))
		if (err == nil) == (p == nil) {
			t.Fatalf("%v and %v", p, err)
		}
		if err != nil {
			return
		}
		var header plainHeader
		var comm [16]byte
		fields(t, raw, &header, &comm)
		got := headerOf(&p.Header)
		got.Pad = header.Pad
		if got != header || p.Comm != comm {
			t.Fatalf("got %+v, want %+v, %q", p, header, comm)
		}
	})
}
