package hotspot

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf16"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// A lister reads the threads of one VM.
type lister struct {
	*heap
	virtualClass uint64                       // java.lang.VirtualThread, 0 if unknown
	ranVirtual   bool                         // it was found to be initialized
	virtualList  func() (*virtualList, error) // what looking for it gave; nil until then
}

// maxThreadName bounds what is read of a thread's name, in bytes of its characters.
const maxThreadName = 512

// ThreadNames returns the names of Java threads, as Thread.getName does, by their id as in Threads;
// threads of the VM that have a java.lang.Thread are among them. It costs seven reads of some bytes
// for each thread, in batches. The VM may move objects meanwhile: then names are missing. One that
// is wrong would be that of another thread or string that was there a moment ago.
func (p *lister) ThreadNames() (map[uint32]string, error) {
	if !p.layout.HasObjects {
		return nil, errors.New("names of threads: objects of this JVM are not known")
	}
	if s := &p.thread; !s.osThread.Known || !s.osThreadID.Known {
		return nil, errors.New("names of threads: the VM does not export their ids")
	}
	l, t, epoch := &p.layout.Objects, &p.layout.Thread, p.currentEpoch()
	addrs, err := p.threads(vmruntime.MaxListedThreads)
	if err != nil {
		return nil, fmt.Errorf("list of threads: %w", err)
	}
	var words []uint64
	for _, addr := range addrs {
		words = append(words, addr+uint64(l.ThreadObject), addr+uint64(t.OSThread))
	}
	if words, err = p.words(words, vmstructs.WordSize); err != nil {
		return nil, fmt.Errorf("threads: %w", err)
	}
	objects, systems := make([]uint64, len(addrs)), make([]uint64, len(addrs))
	for i := range addrs {
		objects[i] = words[2*i]
		if words[2*i+1] != 0 {
			systems[i] = words[2*i+1] + uint64(t.OSThreadID)
		}
	}
	ids, err := p.words(systems, 4)
	if err != nil {
		return nil, fmt.Errorf("ids of threads: %w", err)
	}
	if l.ThreadObjectIsHandle {
		if objects, err = p.words(objects, vmstructs.WordSize); err != nil {
			return nil, fmt.Errorf("objects of threads: %w", err)
		}
	}
	for i := range objects {
		objects[i] = l.Uncolour(objects[i])
	}
	referents, err := p.follow(objects, epoch, func(f Field) bool {
		return f.Class == "java.lang.Thread" && f.Name == "name" && f.Type == "java.lang.String"
	})
	if err != nil {
		return nil, fmt.Errorf("names of threads: %w", err)
	}
	texts, err := p.stringsAt(referents, epoch)
	if err != nil {
		return nil, fmt.Errorf("names of threads: %w", err)
	}
	names := make(map[uint32]string, len(ids))
	for i, id := range ids {
		if id != 0 && texts[i] != "" {
			names[uint32(id)] = texts[i]
		}
	}
	return names, nil
}

// stringsAt reads objects that are java.lang.Strings: "" where there is none.
func (p *lister) stringsAt(objects []uint64, epoch uint32) ([]string, error) {
	const class = "java.lang.String"
	l := &p.layout.Objects
	arrays, err := p.follow(objects, epoch, func(f Field) bool {
		return f.Class == class && f.Name == "value" && (f.Type == "byte[]" || f.Type == "char[]")
	})
	if err != nil {
		return nil, err
	}
	classes, err := p.classes(arrays, epoch)
	if err != nil {
		return nil, err
	}
	// How many elements the arrays have, and, where they are bytes, the strings' coders.
	lengths := make([]uint64, len(objects))
	owners, err := p.classes(objects, epoch)
	if err != nil {
		return nil, err
	}
	coders := fieldsOf(objects, owners, func(f Field) bool { return f.Class == class && f.Name == "coder" })
	for i, array := range arrays {
		if classes[i] == nil || owners[i] == nil || array == 0 {
			coders[i] = 0
			continue
		}
		lengths[i] = array + uint64(l.ArrayLength)
	}
	if lengths, err = p.words(lengths, 4); err != nil {
		return nil, err
	}
	if coders, err = p.words(coders, 1); err != nil {
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
		b.Add(array+c.shape.Header, min(lengths[i]<<c.shape.Shift, maxThreadName))
	}
	if err := b.Read(p.memory.Mem); err != nil {
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
