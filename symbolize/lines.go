package symbolize

import (
	"io"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/elffile/pclntab"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// HasLines reports whether Lines may find anything in the file: whether it is a Go program.
func (o *Object) HasLines() bool { return o != nil && o.lines != nil }

// HasFrame reports whether the function of Go at addr has a frame of its own there: otherwise the
// return address is on top of the stack. ok is false if that is not known. r is as for Lines.
func (o *Object) HasFrame(r io.ReaderAt, m symbol.Mapping, addr uint64) (has, ok bool, err error) {
	if !o.HasLines() || addr < m.Start || addr >= m.Limit {
		return false, false, nil
	}
	bias, err := o.segments.Bias(m.Start, m.Offset)
	if err != nil {
		return false, false, nil
	}
	n, ok, err := o.lines.StackBytes(r, addr-bias)
	return n != 0, ok, err
}

// Lines is Frame for a Go program, with the lines and the inlined functions at addr, innermost
// first. It reads them from the file, which r must be: the tables of a program are large, and
// little of them is needed. There are none where no function of Go is.
func (o *Object) Lines(r io.ReaderAt, m symbol.Mapping, addr uint64) ([]symbol.Frame, error) {
	if !o.HasLines() || addr < m.Start || addr >= m.Limit {
		return nil, nil
	}
	bias, err := o.segments.Bias(m.Start, m.Offset)
	if err != nil {
		return nil, nil // the file was replaced by another one since it was mapped
	}
	found, err := o.lines.Frames(r, addr-bias)
	if err != nil {
		return nil, err
	}
	return o.lineFrames(m, addr, found), nil
}

// KnownLines is Lines without a file, for an address that it was asked for before; ok is false if it
// was not, or if that is forgotten.
func (o *Object) KnownLines(m symbol.Mapping, addr uint64) (frames []symbol.Frame, ok bool) {
	if !o.HasLines() || addr < m.Start || addr >= m.Limit {
		return nil, false
	}
	bias, err := o.segments.Bias(m.Start, m.Offset)
	if err != nil {
		return nil, false
	}
	found, ok := o.lines.Known(addr - bias)
	return o.lineFrames(m, addr, found), ok
}

// lineFrames are the frames that were found at addr.
func (o *Object) lineFrames(m symbol.Mapping, addr uint64, found []pclntab.Frame) (frames []symbol.Frame) {
	m.File = symbol.CleanName(m.File)
	if m.BuildID == "" {
		m.BuildID = o.buildID
	}
	mapping := unique.Make(m)
	for i, f := range found {
		name := symbol.CleanName(f.Function)
		frames = append(frames, symbol.Frame{
			Function: name, SystemName: name, File: symbol.CleanName(f.File), Line: f.Line, StartLine: f.StartLine,
			Kind: symbol.KindNative, Inlined: i < len(found)-1, Mapping: mapping, Address: addr,
		})
	}
	return frames
}
