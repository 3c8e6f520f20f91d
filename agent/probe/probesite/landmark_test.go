package probesite

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/elffile/elftest"
)

// A vmImage is a small libjvm: functions without meaningful symbols, and tables in its data.
type vmImage struct {
	routines []routine // a call is "e8 @" and the name of another
	natives  []nativeEntry
	nulls    uint64 // content before the table of JNI instead of nulls
	entries  int    // number of entries of that table
	enter    string // the function for MonitorEnter there
}

type nativeEntry struct{ name, signature, function string }

const (
	dataOffset, dataAddress = 0x3000, 0x9000
	dataSize                = 0x2000
)

// Functions of a vmImage.
var (
	unsafePark = routine{"Unsafe_Park", "55 4889cb 31f6 84d2 4889da 400f95c6 e8@park 85c0 7400 5d c3"}
	parkerPark = routine{"park", "55 5d c3"}

	clearFlag, setFlag = " c6835801000000 ", " c6835801000001 "

	jniEnterOld = routine{"jni_enter", "55 4889f3" + clearFlag + "ba05000000 e8@inflate 4889de 4889c7 e8@enter" +
		setFlag + "5d c3"}
	jniEnterNew = routine{"jni_enter", "55 4889f3" + clearFlag + "4989d8 4889d9 e8@inflate 4885c0 7400" + setFlag +
		"5d c3"}
	common = []routine{
		{"MonitorEnter", "55 e8@jni_enter 5d c3"}, {"inflate", "55 5d c3"},
		{"enter", "f30f1efa 55 e8@inflate 85c0 7400 5d c3"},
		{"enter_for", "55 e8@inflate 85c0 7400 5d c3"},
		{"one", "55 e8@enter 85c0 7400 c3"}, {"two", "55 e8@enter 85c0 7400 c3"}, {"three", "55 e8@enter 85c0 7400 c3"},
		{"four", "55 e8@enter_for 85c0 7400 c3"},
	}
)

func newImage(routines ...routine) vmImage {
	return vmImage{
		routines: slices.Concat(common, []routine{unsafePark, parkerPark}, routines), entries: jniFunctions,
		enter: "MonitorEnter",
		natives: []nativeEntry{{"park", "(ZJ)V", "Unsafe_Park"}, {"unpark", "(Ljava/lang/Object;)V", "one"},
			{"park", "(ZJ)V", "Unsafe_Park"}},
	}
}

// replace replaces the routine with the same name.
func (m vmImage) replace(r routine) vmImage {
	m.routines = slices.Clone(m.routines)
	for i := range m.routines {
		if m.routines[i].name == r.name {
			m.routines[i] = r
		}
	}
	return m
}

func (m vmImage) finder(t *testing.T) (*Finder, map[string]uint64) {
	t.Helper()
	size := func(code string) (n int) {
		for i, part := range strings.Split(code, "@") {
			if i > 0 {
				_, part, _ = strings.Cut(part, " ")
				n += 4
			}
			n += len(unhex(t, part))
		}
		return n
	}
	at, end := map[string]uint64{}, uint64(codeAddress)
	for _, r := range m.routines {
		at[r.name] = end
		end += uint64(size(r.code))
	}
	var code []byte
	var symbols []elftest.Symbol
	for _, r := range m.routines {
		begin := len(code)
		for i, part := range strings.Split(r.code, "@") {
			if i > 0 {
				var callee string
				callee, part, _ = strings.Cut(part, " ")
				code = binary.LittleEndian.AppendUint32(code, uint32(at[callee]-(codeAddress+uint64(len(code))+4)))
			}
			code = append(code, unhex(t, part)...)
		}
		symbols = append(symbols, elftest.Symbol{Name: "f" + string(rune('a'+len(symbols))), Value: at[r.name],
			Size: uint64(len(code) - begin)})
	}
	data := make([]byte, dataSize)
	var relocations []byte
	point := func(place, to uint64) {
		relocations = elftest.Append(relocations, elf.Rela64{Off: place, Info: uint64(elf.R_X86_64_RELATIVE),
			Addend: int64(to)})
	}
	texts, entry := uint64(0x800), uint64(0)
	text := func(s string) uint64 {
		begin := texts
		texts += uint64(copy(data[texts:], s+"\x00"))
		return dataAddress + begin
	}
	for _, n := range m.natives {
		point(dataAddress+entry, text(n.name))
		point(dataAddress+entry+8, text(n.signature))
		point(dataAddress+entry+16, at[n.function])
		entry += 32
	}
	const table = 0x1000
	binary.LittleEndian.PutUint64(data[table+8:], m.nulls)
	for i := range m.entries {
		to := at["one"]
		if i == jniMonitorEnter-jniNulls {
			to = at[m.enter]
		}
		point(dataAddress+table+8*uint64(jniNulls+i), to)
	}
	image := elftest.Image{
		Machine: elf.EM_X86_64,
		Segments: []elf.Prog64{elftest.Code(codeOffset, codeAddress, uint64(len(code))),
			elftest.Data(dataOffset, dataAddress, dataSize, 0)},
		Sections: append(elftest.Symbols(elf.SHT_SYMTAB, symbols...),
			elftest.Section{Name: ".rela.dyn", Data: relocations,
				Header: elf.Section64{Type: uint32(elf.SHT_RELA), Flags: uint64(elf.SHF_ALLOC), Entsize: 24}}),
		Pad: 0x10000,
	}
	// Contents of sections come first in the file, where the segments are too: pad it so that they
	// come behind.
	pad := elftest.Section{Name: ".pad", Data: make([]byte, dataOffset+dataSize),
		Header: elf.Section64{Type: uint32(elf.SHT_PROGBITS)}}
	image.Sections = append([]elftest.Section{pad}, image.Sections...)
	b := image.Bytes()
	copy(b[codeOffset:], code)
	copy(b[dataOffset:], data)
	return finderOf(t, b), at
}

func TestMonitorEntry(t *testing.T) {
	twoCallers := newImage(jniEnterNew).replace(routine{"three", "55 c3"})
	for _, test := range []struct {
		name   string
		image  vmImage
		want   string // the function
		handle bool
		reason string // why there is none
	}{
		{"JDK 8 to 23", newImage(jniEnterOld), "enter", false, ""},
		{"JDK 24 and later", newImage(jniEnterNew), "enter", true, ""},
		{"inlined into the JNI function", newImage(routine{"jni_enter", "c3"}).replace(routine{"MonitorEnter",
			jniEnterOld.code}), "enter", false, ""},
		{"the flag is not set again", newImage(routine{"jni_enter",
			strings.Replace(jniEnterOld.code, setFlag, " ", 1)}), "", false, "0 like ObjectMonitor::enter"},
		{"another flag is", newImage(routine{"jni_enter", strings.Replace(jniEnterOld.code, setFlag, " c6835901000001 ",
			1)}), "", false, "0 like ObjectMonitor::enter"},
		{"another register than the result", newImage(routine{"jni_enter",
			strings.Replace(jniEnterOld.code, "4889c7", "4889cf", 1)}), "", false, "0 like ObjectMonitor::enter"},
		{"another register than the thread", newImage(routine{"jni_enter",
			strings.Replace(jniEnterOld.code, "4889de", "4889ce", 1)}), "", false, "0 like ObjectMonitor::enter"},
		{"two that fit", newImage(routine{"jni_enter", jniEnterOld.code + " " +
			strings.Replace(jniEnterOld.code, "@enter", "@one", 1)}), "", false, "2 like ObjectMonitor::enter"},
		{"too few functions", func() vmImage { m := newImage(jniEnterOld); m.entries--; return m }(), "", false,
			"table of functions"},
		{"something before them", func() vmImage { m := newImage(jniEnterOld); m.nulls = 1; return m }(), "", false,
			"table of functions"},
		{"no caller with callers", twoCallers, "", false, "has many callers"},
		{"two of them", newImage(jniEnterNew, routine{"five", "55 e8@enter_for 85c0 7400 c3"},
			routine{"six", "55 e8@enter_for 85c0 7400 c3"}), "", false, "both have many"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, at := test.image.finder(t)
			entry, err := f.MonitorEntry()
			if test.reason != "" {
				if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), test.reason) {
					t.Fatalf("%+v, %v, want %q", entry, err, test.reason)
				}
				return
			}
			if err != nil || entry.Handle != test.handle {
				t.Fatalf("%+v, %v", entry, err)
			}
			sites, err := f.EntriesWith(entry.Function, 1)
			if err != nil || len(sites) != 1 || sites[0].Address < at[test.want] || sites[0].Address > at[test.want]+4 {
				t.Errorf("%+v, %v, want it in %#x", sites, err, at[test.want])
			}
			r, err := f.AfterCalls(Calls{Callee: entry.Function, Tails: true, Joins: true, Stores: true})
			if err != nil || len(r.Sites) < 3 {
				t.Errorf("%+v, %v, want sites in three functions", r, err)
			}
		})
	}
}

func TestParkEntry(t *testing.T) {
	park := func(code string) vmImage { return newImage(jniEnterOld).replace(routine{"Unsafe_Park", code}) }
	natives := func(n ...nativeEntry) vmImage { m := newImage(jniEnterOld); m.natives = n; return m }
	for _, test := range []struct {
		name   string
		image  vmImage
		reason string
	}{
		{"as it is", newImage(jniEnterOld), ""},
		{"the flag is widened", park("55 4889cb 84d2 4889da 400f95c6 400fb6f6 e8@park 85c0 7400 5d c3"), ""},
		{"the time is in memory", park("55 48894df0 84d2 488b55f0 400f95c6 e8@park 85c0 7400 5d c3"), ""},
		{"no flag", park("55 4889cb 31f6 4889da e8@park 85c0 7400 5d c3"), "calls none"},
		{"another time", park("55 4889cb 31f6 4889f2 400f95c6 e8@park 85c0 7400 5d c3"), "calls none"},
		{"two functions", park("55 4889cb 4889da 400f95c6 e8@park 4889da 400f95c6 e8@one c3"), "calls several"},
		{"another signature", natives(nativeEntry{"park", "(JZ)V", "Unsafe_Park"}), "park(ZJ)V"},
		{"two native methods", natives(nativeEntry{"park", "(ZJ)V", "Unsafe_Park"},
			nativeEntry{"park", "(ZJ)V", "one"}), "several functions"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, at := test.image.finder(t)
			name, err := f.ParkEntry()
			if test.reason != "" {
				if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), test.reason) {
					t.Fatalf("%v, want %q", err, test.reason)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			sites, err := f.EntriesWith(name, 0)
			if err != nil || len(sites) != 1 || sites[0].Address != at["park"] {
				t.Errorf("%+v, %v, want %#x", sites, err, at["park"])
			}
			if r, err := f.AfterCalls(Calls{Callee: name, Stores: true}); err != nil || len(r.Sites) != 1 ||
				len(r.Missed) != 0 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// The same functions are found with and without symbols.
func TestLiveLandmarks(t *testing.T) {
	onEach(t, func(t *testing.T, version int, named *Finder) {
		stripped := strippedOf(t, named)
		entry, err := stripped.MonitorEntry()
		if err != nil {
			t.Fatal(err)
		}
		want := map[int]struct {
			name   string
			handle bool
		}{17: {"ObjectMonitor::enter", false}, 25: {"LightweightSynchronizer::enter", true}}[version]
		if entry.Handle != want.handle {
			t.Errorf("%+v, want a handle: %v", entry, want.handle)
		}
		park, err := stripped.ParkEntry()
		if err != nil {
			t.Fatal(err)
		}
		for found, name := range map[string]string{entry.Function: want.name, park: "Parker::park"} {
			sites, err := stripped.EntriesWith(found, 1)
			if err != nil {
				t.Fatal(err)
			}
			reference, err := named.EntriesWith(name, 1)
			if err != nil {
				t.Fatal(err)
			}
			if len(sites) != 1 || len(reference) != 1 || sites[0].Address != reference[0].Address {
				t.Errorf("%s: %+v, %+v by its symbol", name, sites, reference)
			}
			how := Calls{Callee: found, Tails: true, Joins: true, Stores: true}
			got, err := stripped.AfterCalls(how)
			if err != nil {
				t.Fatal(err)
			}
			how.Callee = name
			all, err := named.AfterCalls(how)
			if err != nil {
				t.Fatal(err)
			}
			places := func(r Returns) (list []uint64) {
				for _, s := range r.Sites {
					list = append(list, s.Address)
				}
				return list
			}
			if stripped.lookups > maxLookups/4 {
				t.Errorf("%d lookups, of which %d are allowed", stripped.lookups, maxLookups)
			}
			if !slices.Equal(places(got), places(all)) {
				t.Errorf("%s: ends at %#x, with symbols at %#x", name, places(got), places(all))
			}
		}
	})
}

// A file that causes more look-ups than a libjvm is rejected.
func TestLandmarkLookups(t *testing.T) {
	f, _ := newImage(jniEnterOld).finder(t)
	entry, err := f.MonitorEntry()
	if err != nil {
		t.Fatal(err)
	}
	for f.lookups <= maxLookups {
		if _, err = f.unnamed(codeAddress); err != nil {
			break
		}
	}
	if !errors.Is(err, elffile.ErrTooLarge) {
		t.Errorf("%v after %d lookups", err, f.lookups)
	}
	if r, err := f.AfterCalls(Calls{Callee: entry.Function, Tails: true}); !errors.Is(err, elffile.ErrTooLarge) {
		t.Errorf("%d sites, %v", len(r.Sites), err)
	}
}

// strippedOf returns a finder for the same file without its table of symbols.
func strippedOf(t *testing.T, f *Finder) *Finder {
	t.Helper()
	b := make([]byte, 64<<20)
	n, _ := f.bytes.ReadAt(b, 0)
	b = b[:n]
	headers, count := binary.LittleEndian.Uint64(b[0x28:]), binary.LittleEndian.Uint16(b[0x3c:])
	for i := range uint64(count) {
		kind := b[headers+64*i+4:]
		if binary.LittleEndian.Uint32(kind) == uint32(elf.SHT_SYMTAB) {
			binary.LittleEndian.PutUint32(kind, uint32(elf.SHT_NULL))
		}
	}
	stripped := finderOf(t, b)
	if _, err := stripped.named("ObjectMonitor::enter"); !errors.Is(err, elffile.ErrNotFound) {
		t.Fatalf("the copy has symbols: %v", err)
	}
	return stripped
}
