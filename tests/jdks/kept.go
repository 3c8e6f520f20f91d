package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// Kept are results of earlier runs, by the cell's name, in a file to which each result is added: a
// whole run takes long, and an interrupted one goes on where it ended. Without a path it keeps
// nothing.
type kept struct {
	path    string
	earlier map[string]keptResult
}

// A keptResult is a result as a line of JSON.
type keptResult struct {
	Cell, Absent, Err string
	Verdicts          []keptVerdict
	Ways              []way
}

type keptVerdict struct {
	Feature string
	State   state
	Found   string
}

// readKept reads what the file has, if there is one.
func readKept(path string) (kept, error) {
	k := kept{path: path, earlier: map[string]keptResult{}}
	if path == "" {
		return k, nil
	}
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return k, nil
	}
	if err != nil {
		return k, fmt.Errorf("read kept results: %w", err)
	}
	defer file.Close()
	for lines := json.NewDecoder(file); ; {
		var r keptResult
		if err := lines.Decode(&r); errors.Is(err, io.EOF) {
			return k, nil
		} else if err != nil {
			return k, fmt.Errorf("read kept results in %s: %w", path, err)
		}
		k.earlier[r.Cell] = r
	}
}

// get returns an earlier result of the cell.
func (k kept) get(c cell) (result, bool) {
	line, found := k.earlier[c.String()]
	r := result{cell: c, absent: line.Absent, ways: line.Ways}
	if line.Err != "" {
		r.err = errors.New(line.Err)
	}
	for _, v := range line.Verdicts {
		r.verdicts = append(r.verdicts, verdict{feature: v.Feature, state: v.State, found: v.Found})
	}
	if len(r.ways) > 0 { // judged by today's rules
		r.verdicts = append(slices.DeleteFunc(r.verdicts, func(v verdict) bool {
			return slices.Contains(waitFeatures,
				v.feature)
		}), waitVerdicts(r.ways)...)
	}
	return r, found
}

// add keeps a result.
func (k kept) add(r result) error {
	if k.path == "" {
		return nil
	}
	line := keptResult{Cell: r.String(), Absent: r.absent, Ways: r.ways}
	if r.err != nil {
		line.Err = r.err.Error()
	}
	for _, v := range r.verdicts {
		line.Verdicts = append(line.Verdicts, keptVerdict{v.feature, v.state, v.found})
	}
	text, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("keep a result: %w", err)
	}
	file, err := os.OpenFile(k.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("keep a result: %w", err)
	}
	_, err = file.Write(append(text, '\n'))
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("keep a result: %w", err)
	}
	return nil
}
