package javaobject

import (
	"strings"
	"unicode/utf16"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// maxStringBytes bounds what is read of a string, in bytes of its characters.
const maxStringBytes = 512

// StringsAt reads objects that are java.lang.Strings: "" where there is none.
func (p *Heap) StringsAt(objects []uint64, epoch uint32) ([]string, error) {
	const class = "java.lang.String"
	l := &p.Layout.Objects
	arrays, err := p.Follow(objects, epoch, func(f Field) bool {
		return f.Class == class && f.Name == "value" && (f.Type == "byte[]" || f.Type == "char[]")
	})
	if err != nil {
		return nil, err
	}
	classes, err := p.Classes(arrays, epoch)
	if err != nil {
		return nil, err
	}
	// How many elements the arrays have, and, where they are bytes, the strings' coders.
	lengths := make([]uint64, len(objects))
	owners, err := p.Classes(objects, epoch)
	if err != nil {
		return nil, err
	}
	coders := FieldsOf(objects, owners, func(f Field) bool { return f.Class == class && f.Name == "coder" })
	for i, array := range arrays {
		if classes[i] == nil || owners[i] == nil || array == 0 {
			coders[i] = 0
			continue
		}
		lengths[i] = array + uint64(l.ArrayLength)
	}
	if lengths, err = p.Words(lengths, 4); err != nil {
		return nil, err
	}
	if coders, err = p.Words(coders, 1); err != nil {
		return nil, err
	}
	var b vmstructs.Batch
	for i, array := range arrays {
		c := classes[i]
		if c == nil || !c.shape.Array || c.Name != "byte[]" && c.Name != "char[]" {
			array, lengths[i] = 0, 0
			b.Add(array, 0)
			continue
		}
		b.Add(array+c.shape.Header, min(lengths[i]<<c.shape.Shift, maxStringBytes))
	}
	if err := b.Read(p.Memory.Mem); err != nil {
		return nil, err
	}
	texts := make([]string, len(objects))
	for i := range objects {
		if text, ok := b.Bytes(i); ok {
			texts[i] = javaText(text, classes[i].Name == "char[]" || coders[i] == 1)
		}
	}
	return texts, nil
}

// javaText decodes the characters of a string: UTF-16 if they are wide, else Latin-1.
func javaText(text []byte, wide bool) string {
	if wide {
		units := make([]uint16, len(text)/2)
		for i := range units {
			units[i] = uint16(text[2*i]) | uint16(text[2*i+1])<<8
		}
		return vmstructs.CleanText([]byte(string(utf16.Decode(units))))
	}
	var b strings.Builder
	for _, c := range text {
		b.WriteRune(rune(c))
	}
	return vmstructs.CleanText([]byte(b.String()))
}
