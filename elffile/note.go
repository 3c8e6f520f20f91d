package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// noteGNUBuildID is NT_GNU_BUILD_ID of elf.h.
const noteGNUBuildID = 3

// A note is one record of a note section. Its slices point into the section's data.
type note struct {
	owner []byte // without the NUL
	kind  uint32
	desc  []byte
}

// nextNote cuts the first note off data. A note is three 32-bit words (length of the owner with its
// NUL, length of the descriptor, kind), then owner and descriptor, each padded to four bytes:
// Elf64_Nhdr of elf.h. The last padding may be missing.
func nextNote(data []byte) (n note, rest []byte, err error) {
	const header = 12
	if len(data) < header {
		return note{}, nil, fmt.Errorf("note header is cut short: %w", ErrMalformed)
	}
	ownerSize := uint64(binary.LittleEndian.Uint32(data))
	descSize := uint64(binary.LittleEndian.Uint32(data[4:]))
	n.kind = binary.LittleEndian.Uint32(data[8:])
	data = data[header:]

	// 64-bit sums of 32-bit numbers: no overflow.
	descStart := (ownerSize + 3) &^ 3
	descEnd := descStart + descSize
	if descEnd > uint64(len(data)) {
		return note{}, nil, fmt.Errorf("note of %d bytes passes the end of its section: %w", descEnd, ErrMalformed)
	}
	n.owner = bytes.TrimRight(data[:ownerSize], "\x00")
	n.desc = data[descStart:descEnd]
	return n, data[min((descEnd+3)&^3, uint64(len(data))):], nil
}

// BuildID returns the file's GNU build id in lower-case hex, empty if it has none. Notes that are
// malformed or too large count as absent, as a file is usable without.
func (f *File) BuildID() string {
	for _, area := range f.noteAreas() {
		data, err := f.read(area.off, area.size, maxNotes)
		for err == nil && len(data) > 0 {
			var n note
			n, data, err = nextNote(data)
			if err == nil && n.kind == noteGNUBuildID && string(n.owner) == "GNU" && validBuildID(n.desc) {
				return hex.EncodeToString(n.desc)
			}
		}
	}
	return ""
}

func validBuildID(id []byte) bool { return len(id) > 0 && len(id) <= maxBuildID }

type area struct{ off, size uint64 }

// noteAreas lists where a build id may be: the note segments, and for a file without them (the ELF
// file inside .gnu_debugdata) the section that linkers make for it.
func (f *File) noteAreas() (areas []area) {
	for i := range f.progs {
		if p := &f.progs[i]; elf.ProgType(p.Type) == elf.PT_NOTE && len(areas) < maxNoteAreas {
			areas = append(areas, area{p.Off, p.Filesz})
		}
	}
	if s := f.sectionNamed(".note.gnu.build-id"); s != nil && elf.SectionType(s.Type) == elf.SHT_NOTE {
		areas = append(areas, area{s.Off, s.Size})
	}
	return areas
}
