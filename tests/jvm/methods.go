package jvm

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// CompiledMethods asks the JVM of that pid how many compilations its code cache holds.
func (j JDK) CompiledMethods(ctx context.Context, pid int) (int, error) {
	list, err := j.codeList(ctx, pid)
	return strings.Count(list, "\n") - 1, err // the first line repeats the pid
}

// Optimized asks the JVM of that pid whether it has code of C2 for a method, such as
// guest.Plain.heavy.
func (j JDK) Optimized(ctx context.Context, pid int, method string) (bool, error) {
	list, err := j.codeList(ctx, pid)
	of := regexp.MustCompile(`(?m)^\s*\d+\s+4\s+\d+\s+` + regexp.QuoteMeta(method) + `\(`) // id, level, state
	return of.MatchString(list), err
}

func (j JDK) codeList(ctx context.Context, pid int) (string, error) {
	list, err := exec.CommandContext(ctx, j.tool("jcmd"), strconv.Itoa(pid), "Compiler.codelist").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ask pid %d for its compiled methods: %w\n%s", pid, err, list)
	}
	return string(list), nil
}
