package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ulikunitz/xz"

	"github.com/vmprof-agent/vmprof-agent/elffile/elftest"
)

func TestDebugDataSymbols(t *testing.T) {
	segments := []elf.Prog64{elftest.Code(0x1000, 0x1000, 0x100)}
	inner := elftest.Image{Machine: elf.EM_X86_64, Segments: segments, Sections: elftest.Symbols(elf.SHT_SYMTAB,
		elftest.Symbol{Name: "hidden", Value: 0x1040, Size: 0x10, Local: true})}
	outer := elftest.Image{Machine: elf.EM_X86_64, Segments: segments, Sections: append(elftest.Symbols(elf.SHT_DYNSYM,
		elftest.Symbol{Name: "exported", Value: 0x1000, Size: 0x20}),
		elftest.Section{Name: ".gnu_debugdata", Header: elf.Section64{Type: uint32(elf.SHT_PROGBITS)},
			Data: compress(t, inner.Bytes(), xz.WriterConfig{})})}
	f := open(t, outer)
	table, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[uint64]string{0x1000: "exported", 0x1040: "hidden"} {
		if i, ok := table.Find(addr); !ok || table.Name(i) != want {
			t.Errorf("%#x is not %s", addr, want)
		}
	}
	if found, err := f.FindSymbols("hidden"); err != nil || found["hidden"].Value != 0x1040 {
		t.Errorf("found %v, %v", found, err)
	}
}

// compress makes an xz stream.
func compress(t testing.TB, data []byte, config xz.WriterConfig) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := config.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestDecompress(t *testing.T) {
	text := []byte(strings.Repeat("the same and the same again, ", 10000))
	for name, config := range map[string]xz.WriterConfig{
		"crc64":  {},
		"crc32":  {CheckSum: xz.CRC32},
		"sha256": {CheckSum: xz.SHA256},
		"blocks": {BlockSize: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			plain, err := decompress(compress(t, text, config))
			if err != nil || !bytes.Equal(plain, text) {
				t.Errorf("%d bytes, %v, want %d", len(plain), err, len(text))
			}
		})
	}
}

// referenceStream is what "xz -T2" of XZ Utils 5.4.1 makes of "hello\n". Unlike the library's, its
// block header states both sizes, and it asks for a dictionary of 8 MiB.
const referenceStream = "fd377a585a000004e6d6b44604c00a06210116000000000000000000aa308ea601000568656c6c6f0a000000" +
	"a56097f194f6fde0000126063a933b0a1fb6f37d010000000004595a"

func TestDecompressReference(t *testing.T) {
	stream, err := hex.DecodeString(referenceStream)
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := decompress(stream); err != nil || string(plain) != "hello\n" {
		t.Errorf("%q, %v", plain, err)
	}
}

func TestDecompressRefuses(t *testing.T) {
	good := compress(t, bytes.Repeat([]byte("x"), 100), xz.WriterConfig{CheckSum: xz.CRC32})
	patch := func(at int, b byte) []byte {
		data := slices.Clone(good)
		data[at] ^= b
		return data
	}
	header := xz.HeaderLen
	chunk := header + (int(good[header])+1)*4
	// One stored chunk of 64 KiB, then compressed ones that claim 2 MiB for each 6 bytes.
	bomb := slices.Concat(good[:chunk], bytes.Repeat([]byte{0xff, 0xff, 0xff, 0, 0, 0x5d, 0}, 64), []byte{0})
	for _, test := range []struct {
		name string
		data []byte
		want error
	}{
		{"no stream", []byte("hello, world, hello"), ErrMalformed},
		{"cut", good[:len(good)-30], ErrMalformed},
		{"checksum", patch(len(good)-29, 1), ErrMalformed},
		{"block header passes the end", patch(header, 0xff^good[header]), ErrMalformed},
		{"two filters", patch(header+1, 1), ErrUnsupported},
		{"chunk type", patch(chunk, 0x90), ErrMalformed},
		{"claims too much", bomb, ErrMalformed},
	} {
		plain, err := decompress(test.data)
		if plain != nil || err == nil {
			t.Errorf("%s: %d bytes, error %v", test.name, len(plain), err)
		}
	}
	if _, err := decompress(append(bomb, make([]byte, 64)...)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("bomb: error %v, want %v", err, ErrTooLarge)
	}
}

// FuzzDebugData decompresses arbitrary bytes; what comes out is within the limit.
func FuzzDebugData(f *testing.F) {
	small := []byte("ELF ELF ELF ELF")
	f.Add(compress(f, small, xz.WriterConfig{}))
	f.Add(compress(f, small, xz.WriterConfig{CheckSum: xz.SHA256, BlockSize: 4}))
	f.Add(compress(f, small, xz.WriterConfig{CheckSum: xz.CRC32}))
	f.Fuzz(func(t *testing.T, data []byte) {
		plain, err := decompress(data)
		if err != nil && plain != nil {
			t.Errorf("%d bytes and error %v", len(plain), err)
		}
		if len(plain) > maxDebugDataPlain {
			t.Errorf("%d bytes", len(plain))
		}
	})
}
