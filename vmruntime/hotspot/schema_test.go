package hotspot

import (
	"maps"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

// TestNewSchemaMissing: an unknown libjvm is told by everything that it lacks, at once.
func TestNewSchemaMissing(t *testing.T) {
	p := loadRecording(t, "testdata/jdk17.gz").attach(t, nil)
	s, err := vmstructs.ReadTables(p.memory, p.symbol)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newSchema(s); err != nil {
		t.Fatal(err)
	}
	delete(s.Fields, "CodeBlob._name")
	delete(s.Fields, "CompiledMethod._method")
	delete(s.Sizes, "ConstMethod")
	_, err = newSchema(s)
	want := "unknown libjvm: missing CodeBlob._name, nmethod._method or CompiledMethod._method, sizeof(ConstMethod)"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// FuzzVMStructs reads the arrays out of any memory.
func FuzzVMStructs(f *testing.F) {
	m := &vmtest.Image{Base: 0x10000}
	symbols := vmtest.Tables(m)
	f.Add(m.Data)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := vmstructs.ReadTables(vmstructs.Reader{Mem: (&vmtest.Image{Base: 0x10000, Data: data}).Memory()}, vmtest.Lookup(symbols))
		if (err == nil) != (s != nil) {
			t.Fatalf("%v, %v", s, err)
		}
		if err != nil {
			return
		}
		for name := range maps.Keys(s.Fields) {
			if len(name) > 2*vmstructs.MaxNameBytes+1 {
				t.Fatalf("name of %d bytes", len(name))
			}
		}
		if schema, err := newSchema(s); err == nil && schema == nil {
			t.Fatal("no schema and no error")
		}
	})
}
