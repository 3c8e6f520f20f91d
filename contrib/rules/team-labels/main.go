// Team-labels is for serve --window-exec: it labels processes with the team that their service
// belongs to.
//
//	echo 'checkout ^shop-(cart|pay)' >>/etc/vmprof-agent/teams
//	go build -o /usr/local/libexec/team-labels ./contrib/rules/team-labels
//	vmprof-agent serve --window-exec=/usr/local/libexec/team-labels
//
// Each line of the file is a team and a regular expression. The first one that matches a service
// counts.
package main

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"os"
	"regexp"
	"strings"

	"github.com/google/pprof/profile"
)

func main() {
	file, err := os.Open("/etc/vmprof-agent/teams")
	if err != nil {
		log.Fatal(err)
	}
	if err := label(os.Stdout, os.Stdin, file); err != nil {
		log.Fatal(err)
	}
}

// label writes the label of each process in a window.
func label(out io.Writer, window, teams io.Reader) error {
	p, err := profile.Parse(window)
	if err != nil {
		return fmt.Errorf("read the window: %w", err)
	}
	services := make(map[int64]string) // by pid
	for _, s := range p.Sample {
		for _, pid := range s.NumLabel["pid"] {
			services[pid] = strings.Join(s.Label["service"], "")
		}
	}
	lines := bufio.NewScanner(teams)
	for lines.Scan() {
		team, pattern, _ := strings.Cut(lines.Text(), " ")
		service, err := regexp.Compile(pattern)
		if err != nil {
			return fmt.Errorf("team %s: %w", team, err)
		}
		for pid, name := range services {
			if service.MatchString(name) {
				fmt.Fprintf(out, "process_labels{pid=\"%d\",team=%q} 1\n", pid, team)
				delete(services, pid)
			}
		}
	}
	return lines.Err()
}
