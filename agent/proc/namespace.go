package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// initialPIDNamespace is the number of the namespace that the kernel boots with: PROC_PID_INIT_INO of its
// include/linux/proc_ns.h.
const initialPIDNamespace = 0xEFFFFFFC

// HostPIDs says whether process ids are those of the host here, as the kernel side has them. In another PID namespace
// they stand for other processes.
func (r Root) HostPIDs() (bool, error) {
	link, err := os.Readlink(filepath.Join(r.String(), "self/ns/pid"))
	if err != nil {
		return false, err
	}
	text, found := strings.CutPrefix(link, "pid:[")
	number, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64)
	if !found || err != nil {
		return false, fmt.Errorf("PID namespace %q is not understood", link)
	}
	return number == initialPIDNamespace, nil
}
