package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
)

// loadObject loads all programs and maps of one object, as compiled, and releases them. It prints
// the number of instructions that the verifier examined for every program: that number changes
// first when a kernel becomes stricter.
func loadObject(out io.Writer, path string) error {
	spec, err := ebpf.LoadCollectionSpec(path)
	if err != nil {
		return fmt.Errorf("read object: %w", err)
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		var refused *ebpf.VerifierError
		if errors.As(err, &refused) {
			fmt.Fprintf(out, "%+v\n", refused) // its whole log
		}
		return errors.New("the kernel did not take it: " + firstLine(err))
	}
	defer coll.Close()
	for _, name := range slices.Sorted(maps.Keys(coll.Programs)) {
		info, err := coll.Programs[name].Info()
		if err != nil {
			return fmt.Errorf("ask about program %s: %w", name, err)
		}
		count, _ := info.VerifiedInstructions() // 0 if the kernel does not report it
		fmt.Fprintf(out, "%s: %d instructions verified\n", name, count)
	}
	return nil
}

// firstLine keeps an error inside the one line of a marker.
func firstLine(err error) string {
	for line := range strings.Lines(err.Error()) {
		return strings.TrimSpace(line)
	}
	return ""
}
