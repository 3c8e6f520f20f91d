package perfmap

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxPiece is how many bytes are read at once.
const maxPiece = 1 << 20

// ErrForeign says that somebody else may have written the file: programs share /tmp.
var ErrForeign = errors.New("its owner is neither the process's user nor root")

// A Position says how far a map's file was read. The zero value is the beginning of any file.
type Position struct {
	file   fileID
	offset int64
}

// A fileID distinguishes a file from those that have its name later.
type fileID struct{ device, inode uint64 }

// A Piece is some of the lines of a map's file.
type Piece struct {
	begin Position // of text
	text  []byte
	More  bool // follows in the file
}

// ReadPiece reads on in the file of a map from a position, if it still is the same file and has not shrunk. Otherwise it
// begins anew. The file must be the process's user's or root's (ErrForeign). It uses no Map, so that a caller may give up
// waiting for it.
func ReadPiece(f *os.File, uid uint32, from Position) (piece Piece, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return piece, fmt.Errorf("fstat: %w", err)
	}
	if st.Uid != uid && st.Uid != 0 {
		return piece, ErrForeign
	}
	piece.begin.file = fileID{st.Dev, st.Ino}
	if piece.begin.file == from.file && st.Size >= from.offset {
		piece.begin.offset = from.offset
	}
	piece.text = make([]byte, min(maxPiece, st.Size-piece.begin.offset))
	n, err := f.ReadAt(piece.text, piece.begin.offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return piece, err
	}
	piece.text = piece.text[:n]
	piece.More = piece.begin.offset+int64(n) < st.Size
	return piece, nil
}

// Position is where the next piece should begin.
func (m *Map) Position() Position { return m.position }

// Continues reports whether a piece follows what was read. If not, the file was written anew.
func (m *Map) Continues(piece Piece) bool { return piece.begin == m.position }

// Forget drops all entries, because nothing vouches for them any more. Position stays.
func (m *Map) Forget() { *m = Map{position: m.position, epoch: m.epoch + 1} }

// Add reads a piece. One that does not continue what was read replaces it. ErrFull if that is too much.
func (m *Map) Add(piece Piece) (Added, error) {
	if !m.Continues(piece) {
		m.Forget()
		m.position = piece.begin
	}
	added, err := m.appendText(piece.text, len(piece.text) == maxPiece)
	if err != nil {
		return added, err
	}
	m.position.offset += int64(added.Bytes)
	if added.Replaced {
		m.epoch++
	}
	return added, nil
}

// Epoch changes when an entry that Find gave is not right any more.
func (m *Map) Epoch() uint32 { return m.epoch }
