package bpf

import "unsafe"

// The tag of records of CPython, and the code offset of the FrameStub that stands for a wait for the
// global interpreter lock.
const (
	processCPython = 1 << 31
	CPythonGIL     = 1
)

// Sizes of what a walk reads at most of a frame of CPython and of a code object, in bytes.
const (
	CPythonFrameBytes = 8 * 16
	CPythonCodeBytes  = 8 * 32
)

// A CPythonProcess is what the walker must know of one interpreter of CPython.
type CPythonProcess = ProfileCpythonProcess

// How an interpreter has its frames (enum cpython_flags).
const (
	CPythonCFrame    = uint32(ProfileCpythonFlagsCPYTHON_CFRAME)
	CPythonAddress   = uint32(ProfileCpythonFlagsCPYTHON_ADDRESS)
	CPythonBytes     = uint32(ProfileCpythonFlagsCPYTHON_BYTES)
	CPythonEntryEach = uint32(ProfileCpythonFlagsCPYTHON_ENTRY_EACH)
	CPythonEntryFlag = uint32(ProfileCpythonFlagsCPYTHON_ENTRY_FLAG)
	CPythonEntryShim = uint32(ProfileCpythonFlagsCPYTHON_ENTRY_SHIM)
)

// CPythonRecord is the record of an interpreter in the map of processes. That map has one form of
// values, which begins with who the process is; the rest of it is another one for each kind of VM.
func CPythonRecord(p *CPythonProcess) *HotspotProcess {
	record := new(HotspotProcess)
	*(*CPythonProcess)(unsafe.Pointer(record)) = *p
	record.Flags |= processCPython
	return record
}

// OfCPython returns the part of a record that is CPython's, nil if it is of another VM. It is the
// same memory.
func OfCPython(record *HotspotProcess) *CPythonProcess {
	if record.Flags&processCPython == 0 {
		return nil
	}
	return (*CPythonProcess)(unsafe.Pointer(record))
}
