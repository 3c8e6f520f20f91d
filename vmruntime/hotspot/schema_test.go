package hotspot

import (
	"maps"
	"testing"
)

// TestNewSchemaMissing: an unknown libjvm is told by everything that it lacks, at once.
func TestNewSchemaMissing(t *testing.T) {
	p := loadRecording(t, "testdata/jdk17.gz").attach(t, nil)
	s, err := readStructs(p.memory, p.symbol)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newSchema(s); err != nil {
		t.Fatal(err)
	}
	delete(s.fields, "CodeBlob._name")
	delete(s.fields, "CompiledMethod._method")
	delete(s.sizes, "ConstMethod")
	_, err = newSchema(s)
	want := "unknown libjvm: missing CodeBlob._name, nmethod._method or CompiledMethod._method, sizeof(ConstMethod)"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// FuzzVMStructs reads the arrays out of any memory.
func FuzzVMStructs(f *testing.F) {
	m := &image{base: 0x10000}
	symbols := structsImage(m)
	f.Add(m.data)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := readStructs(target{(&image{base: 0x10000, data: data}).memory()}, lookupIn(symbols))
		if (err == nil) != (s != nil) {
			t.Fatalf("%v, %v", s, err)
		}
		if err != nil {
			return
		}
		for name := range maps.Keys(s.fields) {
			if len(name) > 2*maxNameBytes+1 {
				t.Fatalf("name of %d bytes", len(name))
			}
		}
		if schema, err := newSchema(s); err == nil && schema == nil {
			t.Fatal("no schema and no error")
		}
	})
}
