package symbolize

import (
	"os"
	"path"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// DebugFiles locates the debug file of a stripped file. The zero value finds none.
type DebugFiles struct {
	Path string // path of the stripped file, as the process sees it
	// Open opens a file with that path, as an Opener does. It may look in several roots, and
	// returns the files that it finds.
	Open func(path string) []*os.File

	most int64 // maximum bytes of symbols; 0: no bound
}

// DebugDirectory is where distributions install debug files.
const DebugDirectory = "/usr/lib/debug"

// symbols returns the symbols of the first debug file that has the build id of the stripped one,
// nil if there is none, or too many.
func (d DebugFiles) symbols(stripped *elffile.File, buildID string) *elffile.Table {
	if d.Open == nil || buildID == "" {
		return nil
	}
	for _, name := range d.paths(stripped.DebugLink(), buildID) {
		for _, file := range d.Open(name) {
			table := debugSymbols(file, buildID)
			file.Close()
			if table != nil && (d.most == 0 || table.Bytes() <= d.most) {
				return table
			}
		}
	}
	return nil
}

// paths returns the paths at which GDB looks, too: by build id, and by the name in the stripped
// file.
func (d DebugFiles) paths(link, buildID string) []string {
	var list []string
	if len(buildID) > 2 {
		list = append(list, path.Join(DebugDirectory, ".build-id", buildID[:2], buildID[2:]+".debug"))
	}
	if dir := path.Dir(d.Path); link != "" && path.IsAbs(d.Path) {
		list = append(list, path.Join(dir, link), path.Join(dir, ".debug", link), path.Join(DebugDirectory, dir, link))
	}
	return list
}

func debugSymbols(file *os.File, buildID string) *elffile.Table {
	f, err := elffile.OpenFile(file)
	if err != nil || f.Stripped() || f.BuildID() != buildID {
		return nil
	}
	table, _ := f.Symbols()
	return table
}
