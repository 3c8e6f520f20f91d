package elffile_test

import (
	"bytes"
	"debug/elf"
	"fmt"
	"log"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/elffile/elftest"
)

// library is a shared object with two functions and a probe. A program would read one from disk.
func library() []byte {
	return elftest.Image{
		Machine:  elf.EM_X86_64,
		Segments: []elf.Prog64{elftest.Code(0x1000, 0x1000, 0x1000)},
		Pad:      0x2000,
		Sections: slices.Concat(
			elftest.Symbols(elf.SHT_DYNSYM,
				elftest.Symbol{Name: "parse", Value: 0x1000, Size: 0x40},
				elftest.Symbol{Name: "render", Value: 0x1040, Size: 0x80}),
			[]elftest.Section{{Name: ".note.stapsdt", Header: elf.Section64{Type: uint32(elf.SHT_NOTE)},
				Data: elftest.Probe("app", "request", "8@%rdi -4@-8(%rbp)", 0x1010, 0, 0)}},
		),
	}.Bytes()
}

func open() *elffile.File {
	data := library()
	file, err := elffile.Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		log.Fatal(err)
	}
	return file
}

// An address of a process is named in three steps: the load bias of the mapping, the address in the
// file, and the symbol there.
func Example() {
	file := open()
	const mapStart, mapOffset = 0x7f0000001000, 0x1000 // as in /proc/PID/maps
	bias, err := file.Bias(mapStart, mapOffset)
	if err != nil {
		log.Fatal(err)
	}
	table, err := file.Symbols()
	if err != nil {
		log.Fatal(err)
	}
	address := 0x7f0000001050 - bias
	if i, ok := table.Find(address); ok {
		fmt.Printf("%s+%#x\n", table.Name(i), address-table.Start(i))
	}
	// Output: render+0x10
}

// A few names are found without a table of all symbols. Those that the file lacks are absent.
func ExampleFile_FindSymbols() {
	found, err := open().FindSymbols("render", "missing")
	if err != nil {
		log.Fatal(err)
	}
	_, ok := found["missing"]
	fmt.Printf("render at %#x, %d bytes; missing: %v\n", found["render"].Value, found["render"].Size, ok)
	// Output: render at 0x1040, 128 bytes; missing: false
}

// A USDT probe has a place in the code, and operands that say where its arguments are. A negative
// size is that of a signed value.
func ExampleFile_Probes() {
	probes, err := open().Probes()
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range probes {
		fmt.Printf("%s:%s at offset %#x\n", p.Provider, p.Name, p.Offset)
		for _, arg := range p.Args {
			switch arg.Kind {
			case elffile.OperandReg:
				fmt.Printf("size %d in %v\n", arg.Size, arg.Reg)
			case elffile.OperandMem:
				fmt.Printf("size %d at %v%+d\n", arg.Size, arg.Reg, arg.Disp)
			}
		}
	}
	// Output:
	// app:request at offset 0x1010
	// size 8 in rdi
	// size -4 at rbp-8
}
