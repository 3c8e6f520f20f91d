package perfmap

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// maxPiece is how many bytes are read at once.
const maxPiece = 1 << 20

// ReadPiece reads on in the file of a map from a position, if it still is the same file and has not
// shrunk. Otherwise it begins anew. The file must be the process's user's or root's
// (vmruntime.ErrForeignMap). It uses no Map, so that a caller may give up waiting for it.
func ReadPiece(f *os.File, uid uint32, from vmruntime.MapPosition) (piece vmruntime.MapPiece, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return piece, fmt.Errorf("fstat: %w", err)
	}
	if st.Uid != uid && st.Uid != 0 {
		return piece, vmruntime.ErrForeignMap
	}
	piece.Begin.Device, piece.Begin.Inode = st.Dev, st.Ino
	if st.Dev == from.Device && st.Ino == from.Inode && st.Size >= from.Offset {
		piece.Begin.Offset = from.Offset
	}
	piece.Text = make([]byte, min(maxPiece, st.Size-piece.Begin.Offset))
	n, err := f.ReadAt(piece.Text, piece.Begin.Offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return piece, err
	}
	piece.Text = piece.Text[:n]
	piece.More = piece.Begin.Offset+int64(n) < st.Size
	return piece, nil
}

// Position is where the next piece should begin.
func (m *Map) Position() vmruntime.MapPosition { return m.position }

// Continues reports whether a piece follows what was read. If not, the file was written anew.
func (m *Map) Continues(piece vmruntime.MapPiece) bool { return piece.Begin == m.position }

// Forget drops all entries, because nothing vouches for them any more. Position stays.
func (m *Map) Forget() { *m = Map{position: m.position, epoch: m.epoch + 1} }

// Add reads a piece. One that does not continue what was read replaces it. vmruntime.ErrMapFull if
// that is too much.
func (m *Map) Add(piece vmruntime.MapPiece) (vmruntime.MapAdded, error) {
	if !m.Continues(piece) {
		m.Forget()
		m.position = piece.Begin
	}
	added, err := m.appendText(piece.Text, len(piece.Text) == maxPiece)
	if err != nil {
		return added, err
	}
	m.position.Offset += int64(added.Bytes)
	if added.Replaced {
		m.epoch++
	}
	return added, nil
}

// Epoch changes when an entry that Find gave is not right any more.
func (m *Map) Epoch() uint32 { return m.epoch }
