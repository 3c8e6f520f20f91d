package jvm

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
)

// CompiledMethods asks the JVM of that pid how many compilations its code cache holds.
func (j JDK) CompiledMethods(ctx context.Context, pid int) (int, error) {
	list, err := exec.CommandContext(ctx, j.tool("jcmd"), strconv.Itoa(pid), "Compiler.codelist").CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("ask pid %d for its compiled methods: %w\n%s", pid, err, list)
	}
	return bytes.Count(list, []byte("\n")) - 1, nil // the first line repeats the pid
}
