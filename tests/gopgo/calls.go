package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// readCalls reads a profile that go tool preprofile wrote: for each call the caller, the callee,
// and in one line the distance from the line on which the caller begins and the weight.
func readCalls(path string) (weights, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	if all[0] != "GO PREPROFILE V1" || len(all)%3 != 1 {
		return nil, errors.New("go tool preprofile writes another format than expected")
	}
	w := weights{}
	for i := 1; i < len(all); i += 3 {
		var offset int
		var weight float64
		if _, err := fmt.Sscan(all[i+2], &offset, &weight); err != nil {
			return nil, fmt.Errorf("read call: %w", err)
		}
		w[fmt.Sprintf("%s:+%d -> %s", all[i], offset, all[i+1])] = weight
	}
	return w, nil
}
