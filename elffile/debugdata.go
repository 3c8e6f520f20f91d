package elffile

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
	"slices"

	"github.com/ulikunitz/xz"
	"github.com/ulikunitz/xz/lzma"
)

// debugSymtab opens the symbol table in .gnu_debugdata ("MiniDebugInfo" in GDB's manual): an xz
// stream of an ELF file with the .symtab entries that were stripped from the outer file.
func (f *File) debugSymtab() (*symbolSection, error) {
	const title = ".gnu_debugdata"
	s := f.sectionNamed(title)
	if s == nil {
		return nil, fmt.Errorf("%s: %w", title, ErrNotFound)
	}
	compressed, err := f.sectionData(s, maxDebugData)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", title, err)
	}
	plain, err := decompress(compressed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", title, err)
	}
	inner, err := Open(bytes.NewReader(plain), int64(len(plain)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", title, err)
	}
	table, err := inner.symtab() // and not its .gnu_debugdata: there is one level, not a chain
	if err != nil {
		return nil, fmt.Errorf("%s: %w", title, err)
	}
	return table, nil
}

// decompress returns the content of one xz stream. Layouts: "The .xz File Format", version 1.2.1,
// sections 2.1.1 (stream header), 3 (block) and 5.3.1 (LZMA2).
//
// The container is parsed here and only its LZMA2 chunks are passed to the library, block by block.
// The library's own reader would allocate the dictionary that each block header requests, up to 4
// GiB; a dictionary of the size of the block's content is sufficient. The index and the footer at
// the end of the stream are not needed and not read.
func decompress(stream []byte) (plain []byte, err error) {
	check, err := blockCheck(stream)
	if err != nil {
		return nil, err
	}
	rest := stream[xz.HeaderLen:]
	for range maxDebugDataBlocks {
		header, err := blockHeader(rest)
		if err != nil {
			return nil, err
		}
		if header == 0 { // the index: there are no more blocks
			return plain, nil
		}
		rest = rest[header:]
		length, size, err := measureChunks(rest)
		if err != nil {
			return nil, err
		}
		next := (header+length+3)&^3 - header + check.Size()
		if next > len(rest) {
			return nil, errBlock
		}
		if size > maxDebugDataPlain-uint64(len(plain)) {
			return nil, fmt.Errorf("xz stream of more than %d bytes: %w", maxDebugDataPlain, ErrTooLarge)
		}
		block, err := decodeChunks(rest[:length], int(size))
		if err != nil {
			return nil, err
		}
		check.Reset()
		check.Write(block)
		if !bytes.Equal(check.Sum(nil), rest[next-check.Size():next]) {
			return nil, fmt.Errorf("xz block has a wrong checksum: %w", ErrMalformed)
		}
		plain = append(plain, block...)
		rest = rest[next:]
	}
	return nil, fmt.Errorf("xz stream of more than %d blocks: %w", maxDebugDataBlocks, ErrTooLarge)
}

var errBlock = fmt.Errorf("xz block: %w", ErrMalformed)

// blockCheck reads the stream header and returns the hash that follows each block.
func blockCheck(stream []byte) (hash.Hash, error) {
	if len(stream) < xz.HeaderLen || !xz.ValidHeader(stream[:xz.HeaderLen]) {
		return nil, fmt.Errorf("no xz stream: %w", ErrMalformed)
	}
	switch stream[7] {
	case xz.CRC32:
		return littleEndian{crc32.NewIEEE()}, nil
	case xz.CRC64:
		return littleEndian{crc64.New(crc64.MakeTable(crc64.ECMA))}, nil
	case xz.SHA256:
		return sha256.New(), nil
	}
	return nil, fmt.Errorf("xz check type %d: %w", stream[7], ErrUnsupported)
}

// littleEndian turns a checksum around: hash/crc32 and hash/crc64 give it big-endian.
type littleEndian struct{ hash.Hash }

func (h littleEndian) Sum(b []byte) []byte {
	sum := h.Hash.Sum(b)
	slices.Reverse(sum[len(b):])
	return sum
}

// blockHeader returns the length of the block header at the start of data, 0 if the index is there.
// It checks that LZMA2 is the only filter; the sizes in the header are not needed and not trusted.
func blockHeader(data []byte) (length int, err error) {
	const filterCount, hasCompressed, hasPlain, lzma2 = 0x03, 0x40, 0x80, 0x21
	if len(data) == 0 {
		return 0, errBlock
	}
	if data[0] == 0 {
		return 0, nil
	}
	length = (int(data[0]) + 1) * 4 // at least 8
	if len(data) < length {
		return 0, errBlock
	}
	flags, fields := data[1], data[2:length]
	for _, present := range []byte{hasCompressed, hasPlain} {
		if flags&present == 0 {
			continue
		}
		_, n := binary.Uvarint(fields)
		if n <= 0 {
			return 0, errBlock
		}
		fields = fields[n:]
	}
	if flags&filterCount != 0 || len(fields) == 0 || fields[0] != lzma2 {
		return 0, fmt.Errorf("xz filters other than LZMA2: %w", ErrUnsupported)
	}
	return length, nil
}

// decodeChunks decompresses a run of LZMA2 chunks whose content has size bytes.
func decodeChunks(chunks []byte, size int) ([]byte, error) {
	if size == 0 {
		return nil, nil
	}
	config := lzma.Reader2Config{DictCap: max(size, lzma.MinDictCap)}
	reader, err := config.NewReader2(bytes.NewReader(chunks))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBlock, err)
	}
	plain := make([]byte, size)
	if _, err := io.ReadFull(reader, plain); err != nil {
		return nil, fmt.Errorf("%w: %w", errBlock, err)
	}
	return plain, nil
}

// measureChunks returns the length of a run of LZMA2 chunks with its end mark, and the size of its
// content, in bytes. Nothing is decompressed: each chunk states both, and the decoder uses these
// sizes.
func measureChunks(data []byte) (length int, plain uint64, err error) {
	const end, stored, storedNoReset, compressed, withProps = 0, 1, 2, 0x80, 0xc0
	for at := 0; at < len(data); {
		chunk := data[at:]
		control := chunk[0]
		if control == end {
			return at + 1, plain, nil
		}
		if len(chunk) < 6 {
			break
		}
		size := uint64(binary.BigEndian.Uint16(chunk[1:])) + 1
		switch {
		case control == stored || control == storedNoReset:
			at += 3 + int(size)
		case control >= compressed:
			size += uint64(control&0x1f) << 16
			at += 5 + int(binary.BigEndian.Uint16(chunk[3:])) + 1
			if control >= withProps {
				at++
			}
		default:
			return 0, 0, errBlock
		}
		plain += size
	}
	return 0, 0, errBlock
}
