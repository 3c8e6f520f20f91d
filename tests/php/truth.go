package php

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// A Call is an edge of a program's call graph.
type Call struct {
	Caller, Callee string // "Class::method", "function"
	Line           int    // line of the call
}

// Truth returns how often Known makes each call in one round. The lines of the program say so
// themselves: "#> caller callee count, caller callee count".
func Truth() (map[Call]int, error) {
	text, err := programs.ReadFile("programs/" + string(Known))
	if err != nil {
		return nil, err
	}
	truth := map[Call]int{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		_, said, ok := strings.Cut(lines.Text(), "#> ")
		if !ok || strings.HasPrefix(lines.Text(), "//") {
			continue
		}
		for call := range strings.SplitSeq(said, ",") {
			c, count := Call{Line: n}, 0
			if _, err := fmt.Sscan(call, &c.Caller, &c.Callee, &count); err != nil {
				return nil, fmt.Errorf("line %d: %q: %w", n, call, err)
			}
			truth[c] += count
		}
	}
	return truth, lines.Err()
}

// Count has a program do one round and returns how often it makes each call, as PHP itself counts
// them: no probe and no agent is in it. A generator counts once, and not for each value. It takes a
// few times as long as the round.
func Count(ctx context.Context, p Program) (map[Call]int, error) {
	tool, err := toolOf(p)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "vmprof-php-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := write(dir); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, tool, "counted.php", string(p))
	cmd.Dir, cmd.Stdin, cmd.Stderr = dir, strings.NewReader("run 1\n"), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("count the calls of %s: %w", p, err)
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	return parseCounts(lines[len(lines)-1])
}

// parseCounts reads what counted.php prints.
func parseCounts(line []byte) (map[Call]int, error) {
	var rows [][4]any
	if err := json.Unmarshal(line, &rows); err != nil {
		return nil, fmt.Errorf("read counted calls: %w", err)
	}
	counts := map[Call]int{}
	for _, row := range rows {
		caller, ok := row[0].(string)
		at, ok1 := row[1].(float64)
		callee, ok2 := row[2].(string)
		count, ok3 := row[3].(float64)
		if !ok || !ok1 || !ok2 || !ok3 {
			return nil, fmt.Errorf("read counted calls: %v is none", row)
		}
		counts[Call{Caller: caller, Callee: callee, Line: int(at)}] += int(count)
	}
	return counts, nil
}
